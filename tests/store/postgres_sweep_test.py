#!/usr/bin/env python3
"""Real sweeps of real workers into a real PostgreSQL: two at a time, clients and the server killed with SIGKILL in the middle, and what is
then stored beside the same sweep in SQLite.

    postgres_sweep_test.py NEUROSHARD NEUROSHARD_WORKER CACHE_OF_POSTGRES
"""

import json
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from planner_process import NativeWorkerProcess
from postgres_server import SKIPPED, PostgresServer, find_programs

CLIENT, WORKER, CACHE = sys.argv[1:4]
SAMPLES = 1500  # so many that a sweep still runs when it is killed, also where psql takes long to count its records
SWEEP = """
kind: compute
seed: {seed}
num_samples: {samples}
tables: {tables}
dims: [16, 8, 4]
min_tables: 1
max_tables: 3
max_weights_bytes: 4194304
batch_size: 64
optimizer: sgd
settings: {{warmup_iterations: 0, min_iterations: 1, max_iterations: 2, max_time_ms: 5, flush_cache: false}}
"""
TABLES = pathlib.Path(__file__).resolve().parents[2] / "configs/workloads/dlrm_2021_tables856.csv"
# What a sweep must store alike in both databases; costs differ from run to run.
CONTENT = """SELECT position, sample_id, batch_size, optimizer, seed, outcome, total_ms > 0, forward_series IS NOT NULL, measured_at_unix_ms > 0,
(SELECT count(*) FROM {shards}) FROM compute_samples s JOIN sweeps w USING (sweep_id) LEFT JOIN compute_measurements m USING (sample)
WHERE w.config_hash = '{hash}' ORDER BY position"""


class PostgresSweepTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.postgres = PostgresServer(PROGRAMS)
        cls.addClassCleanup(cls.postgres.stop)
        cls.workers = [NativeWorkerProcess(WORKER) for _ in range(2)]
        for worker in cls.workers:
            cls.addClassCleanup(worker.stop)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def setUp(self):
        self.postgres.sql(f"CREATE DATABASE {self._testMethodName}")
        self.store = self.postgres.address(self._testMethodName)

    def sql(self, text):
        return self.postgres.sql("SET search_path = neuroshard; " + text, self._testMethodName)

    def recorded(self):
        try:
            return int(self.sql("SELECT count(*) FROM compute_measurements"))
        except RuntimeError:  # no tables yet
            return 0

    def start(self, worker, seed=1, store=None):
        config = self.folder / f"sweep{seed}.yaml"
        config.write_text(SWEEP.format(seed=seed, samples=SAMPLES, tables=TABLES))
        return subprocess.Popen(
            [CLIENT, "sweep", "compute", config, "--workers", worker.address, "--store", store or self.store, "--format", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, sweep):
        out, err = sweep.communicate(timeout=120)
        self.assertEqual(sweep.returncode, 0, err)
        return json.loads(out)

    def wait_for_records(self, count, *sweeps):
        while self.recorded() < count:
            for sweep in sweeps:
                self.assertIsNone(sweep.poll(), "the sweep ended before it was to be killed")

    def rows(self):
        query = CONTENT.format(hash=self.sql("SELECT min(config_hash) FROM sweeps"), shards="json_array_elements(shard_ids::json)")
        return [line.split("|") for line in self.sql(query).split("\n")]

    def test_killed_clients_lose_nothing_and_the_store_is_as_in_sqlite(self):
        recorded = 0
        for kill_at in (20, 90, 170):
            sweep = self.start(self.workers[0])
            self.wait_for_records(kill_at, sweep)
            sweep.send_signal(signal.SIGKILL)
            sweep.communicate()
            self.assertGreaterEqual(self.recorded(), max(kill_at, recorded))
            recorded = self.recorded()
        # What the server was about to store when the client died may come in a moment later.
        report = self.finish(self.start(self.workers[0]))
        self.assertTrue(report["complete"])
        self.assertGreaterEqual(report["done_before"], recorded)
        self.assertEqual(report["done_before"] + report["recorded"], SAMPLES)
        self.assertEqual(self.recorded(), SAMPLES)
        self.assertEqual(self.sql("SELECT count(DISTINCT sample) FROM compute_measurements"), str(SAMPLES))

        file = self.folder / "sqlite.db"
        self.finish(self.start(self.workers[0], store=file))
        with sqlite3.connect(file) as database:
            config_hash = database.execute("SELECT config_hash FROM sweeps").fetchone()[0]
            in_sqlite = database.execute(CONTENT.format(hash=config_hash, shards="json_each(shard_ids)")).fetchall()
        words = {"t": "1", "f": "0"}
        self.assertEqual(len(in_sqlite), SAMPLES)
        self.assertEqual([[words.get(value, value) for value in row] for row in self.rows()], [[str(value) for value in row] for row in in_sqlite])

    def test_a_backup_of_a_store_that_is_written_is_whole(self):
        sweep = self.start(self.workers[0], 31)
        self.wait_for_records(50, sweep)
        backup = self.folder / "backup.db"
        subprocess.run([CLIENT, "store", "backup", "--store", self.store, backup], check=True, capture_output=True)
        subprocess.run([CLIENT, "store", "verify", "--store", backup], check=True, capture_output=True)
        self.finish(sweep)
        with sqlite3.connect(backup) as database:
            kept = database.execute("SELECT sample_id, total_ms FROM compute_measurements JOIN compute_samples USING (sample)").fetchall()
        stored = self.sql("SELECT sample_id, total_ms FROM compute_measurements JOIN compute_samples USING (sample)")
        self.assertGreaterEqual(len(kept), 50)
        self.assertLessEqual(dict(kept).items(), {line.split("|")[0]: float(line.split("|")[1]) for line in stored.split("\n")}.items())

    def test_two_sweeps_go_on_after_the_server_was_killed(self):
        sweeps = [self.start(worker, seed) for seed, worker in enumerate(self.workers, start=11)]
        for kill_at in (60, 240):
            self.wait_for_records(kill_at, *sweeps)
            before = self.recorded()
            self.postgres.kill()
            self.postgres.start()
            self.assertGreaterEqual(self.recorded(), before)
        for sweep in sweeps:
            report = self.finish(sweep)
            self.assertEqual((report["recorded"], report["missing"], report["given_up"]), (SAMPLES, 0, []))
        self.assertEqual(self.recorded(), 2 * SAMPLES)

    def test_a_server_that_stays_away_is_waited_for_once(self):
        config = self.folder / "sweep41.yaml"
        config.write_text(SWEEP.format(seed=41, samples=SAMPLES, tables=TABLES))
        workers = ",".join(worker.address for worker in self.workers)
        sweep = subprocess.Popen([CLIENT, "sweep", "compute", config, "--workers", workers, "--store", self.store], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait_for_records(20, sweep)
        began = time.monotonic()
        self.postgres.kill()
        try:
            _, err = sweep.communicate(timeout=180)
        finally:
            self.postgres.start()
        self.assertEqual(sweep.returncode, 1)
        self.assertLess(time.monotonic() - began, 55, "each device waited for its own 30 s")
        self.assertEqual(err.count("the store cannot be reached, tried again for 30 s"), 1, err)
        self.assertIn("run the same command again", err)

    def test_two_clients_share_one_sweep(self):
        reports = [self.finish(sweep) for sweep in [self.start(worker, 21) for worker in self.workers]]
        self.assertEqual([report["missing"] for report in reports], [0, 0])
        self.assertEqual(self.recorded(), SAMPLES)
        self.assertEqual(self.sql("SELECT count(*) FROM sweeps"), "1")

    def test_a_password_shows_nowhere(self):
        sweep = self.start(self.workers[0], store=self.store.replace("neuroshard@", "neuroshard:swordfish@"))
        out, err = sweep.communicate()
        self.assertEqual(sweep.returncode, 1)
        self.assertIn("PGPASSFILE", err)
        self.assertNotIn("swordfish", out + err)


PROGRAMS = find_programs(CACHE)
if __name__ == "__main__":
    if PROGRAMS is None:
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
