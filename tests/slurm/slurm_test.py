#!/usr/bin/env python3
"""deploy/slurm on a real Slurm: munged, slurmctld and a slurmd for each of six nodes, all on this machine, and sweeps that are requeued, preempted,
out of time and cancelled.

    slurm_test.py BIN CACHE

BIN has neuroshard and neuroshard-worker. Debian's packages are unpacked into CACHE, not installed. Exits 77, which ctest shows as skipped, where they
cannot be fetched.
"""

import concurrent.futures
import getpass
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from debian_packages import unpacked
from held_port import HeldPort

BIN, CACHE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
ROOT = pathlib.Path(__file__).resolve().parents[2]
SWEEP = ROOT / "deploy/slurm/sweep.sbatch"
LIBRARIES = CACHE / "usr/lib/x86_64-linux-gnu"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15", "libnuma1", "liblz4-1", "libreadline8", "libpam0g")
NODES = [f"n{i}" for i in range(1, 7)]
SKIPPED = 77
SLURM_CONF = """ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MailProg=/bin/true
ReturnToService=2
KillWait=30
{nodes}
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=20
PartitionName=high Nodes=ALL State=UP PriorityTier=2 PreemptMode=OFF
"""
COMPUTE = """kind: compute
seed: 1
num_samples: {samples}
tables: {root}/configs/workloads/dlrm_2021_tables856.csv
dims: [4]
min_tables: 1
max_tables: 2
max_weights_bytes: 16MiB
batch_size: 64
optimizer: sgd
settings: {{warmup_iterations: 0, min_iterations: 1, max_iterations: 1, max_time_ms: 1000, flush_cache: true}}
"""
COMM = """kind: comm
seed: 1
num_samples: 3
num_ranks: [3]
batch_size: 48
dims: [4]
min_tables: 3
max_tables: 6
settings: {warmup_iterations: 1, min_iterations: 2, max_iterations: 2, max_time_ms: 1000}
"""


def wait_until(condition, what, limit_s=120):
    give_up = time.monotonic() + limit_s
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise TimeoutError(what() if callable(what) else what)
        time.sleep(0.05)
    return found


class Cluster:
    """Six nodes on this machine."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        plugins = LIBRARIES / "slurm-wlm"
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": f"{LIBRARIES}:{plugins}", "SLURM_CONF": f"{folder}/slurm.conf", "PATH": f"{CACHE}/usr/bin:{os.environ['PATH']}", "NEUROSHARD_BIN": str(BIN),
        }
        self.ports = [HeldPort() for _ in range(1 + len(NODES))]
        ports = [port.number for port in self.ports]
        lines = [f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1" for node, port in zip(NODES, ports[1:])]
        for name in ("state", *(f"spool.{node}" for node in NODES)):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(SLURM_CONF.format(ports=ports, user=getpass.getuser(), folder=folder, plugins=plugins, nodes="\n".join(lines)))
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self.start("munged", "--foreground", "--force", f"--key-file={key}", *(f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")))
        wait_until((folder / "munge.socket").exists, lambda: self.log("munged"))
        self.start("slurmctld-wlm", "-D")
        for node in NODES:
            self.start("slurmd-wlm", "-D", "-N", node, "-d", CACHE / "usr/sbin/slurmstepd-wlm", name=node)
        wait_until(lambda: self.run("sinfo", "-h", "-p", "low", "-t", "idle", "-o", "%D", check=False) == str(len(NODES)), lambda: self.log("slurmctld-wlm") + self.log("n1"))

    def start(self, program, *arguments, name=None):
        with open(self.folder / f"{name or program}.log", "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen([CACHE / "usr/sbin" / program, *arguments], env=self.environment, stdout=log, stderr=log))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()[-2000:]

    def run(self, *command, check=True):
        return subprocess.run(command, env=self.environment, cwd=self.folder, check=check, stdout=subprocess.PIPE, text=True, timeout=60).stdout.strip()

    def stop(self):
        """Jobs too, those of a test that failed."""
        self.run("scancel", f"--user={getpass.getuser()}", check=False)
        wait_until(lambda: not self.run("squeue", "-h", check=False), "jobs do not end")
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


class Job:
    """A submitted sweep.sbatch."""

    def __init__(self, cluster, name, kind, config, *options):
        self.cluster = cluster
        self.store = cluster.folder / f"{name}.db"
        self.output_file = cluster.folder / f"{name}.out"
        file = cluster.folder / f"{name}.yaml"
        file.write_text(config)
        self.job_id = cluster.run("sbatch", "--parsable", f"--output={self.output_file}", *options, SWEEP, kind, file, "--store", self.store)

    def output(self):
        return self.output_file.read_text() if self.output_file.exists() else ""

    def field(self, name):
        return re.search(rf"\b{name}=(\S+)", self.cluster.run("scontrol", "show", "job", self.job_id))[1]

    def wait_for_end(self):
        states = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        wait_until(lambda: self.field("JobState") in states, lambda: self.cluster.run("scontrol", "show", "job", self.job_id) + self.output() + self.cluster.log("slurmctld-wlm"), limit_s=120)
        return self.field("JobState")

    def records(self):
        """{sample: (when it was measured, what came of it)} of the compute sweep."""
        if not self.store.exists():
            return {}
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=10) as store:
            try:
                return {row[0]: row[1:] for row in store.execute("SELECT sample, measured_at_unix_ms, total_ms, outcome FROM compute_measurements")}
            except sqlite3.OperationalError:  # the sweep is making its tables
                return {}

    def reports(self):
        return [json.loads(text) for text in re.findall(r"^\{$.*?^\}$", self.output(), re.MULTILINE | re.DOTALL)]

    def wait_for_records(self, count):
        return wait_until(lambda: len(found := self.records()) >= count and found, self.output)


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="neuroshard-slurm-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = Cluster(pathlib.Path(folder.name))
        cls.addClassCleanup(cls.cluster.stop)

    def compute(self, name, samples, *options):
        return Job(self.cluster, name, "compute", COMPUTE.format(samples=samples, root=ROOT), *options)

    def expect_whole(self, job, before):
        """Run again, everything is measured, once, and what was there before the interruption is untouched."""
        self.assertEqual(job.wait_for_end(), "COMPLETED", job.output())
        after = job.records()
        self.assertEqual({key: after[key] for key in before}, before)
        first, second = job.reports()
        self.assertEqual((first["error"], second["complete"]), ("stopped", True))
        self.assertEqual((first["recorded"], second["recorded"], len(after)), (second["done_before"], first["missing"], first["samples"]))

    def test_sweeps_on_all_nodes(self):
        job = self.compute("whole", 60, "--nodes=3")
        self.assertEqual(job.wait_for_end(), "COMPLETED", job.output())
        self.assertEqual(len(job.records()), 60)
        self.assertIn("run 1 on 3 of 3 nodes", job.output())
        comm = Job(self.cluster, "comm", "comm", COMM, "--nodes=3")
        self.assertEqual(comm.wait_for_end(), "COMPLETED", comm.output())
        self.assertTrue(comm.reports()[-1]["complete"], comm.output())

    def test_interrupted_sweeps_go_on(self):
        """All at a time, because Slurm lets requeued jobs wait for the end of their credentials."""
        requeued, out_of_time, preempted = jobs = [self.compute(name, 1200, "--nodes=2") for name in ("requeued", "out_of_time", "preempted")]
        interrupts = [
            lambda: self.cluster.run("scontrol", "requeue", requeued.job_id),
            lambda: self.cluster.run("scancel", "--batch", "--signal=USR1", out_of_time.job_id),  # what --signal=B:USR1@60 sends
            lambda: self.cluster.run("sbatch", "--partition=high", f"--nodelist={preempted.field('NodeList')}", "--output=/dev/null", "--wrap=true"),
        ]

        def interrupt(job, action):
            records = job.wait_for_records(100)
            action()
            return records

        # Each as soon as it has some records: they need not start together, and may be done in seconds.
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as threads:
            before = list(threads.map(interrupt, jobs, interrupts))
        for job, records in zip(jobs, before):
            with self.subTest(job=job.store.stem):
                self.expect_whole(job, records)
        self.assertIn("sweep.sbatch: the time limit is near: requeued", out_of_time.output())
        self.assertIn("sweep.sbatch: all workers were told to end: requeued", preempted.output())

    def test_cancelled_is_not_requeued(self):
        job = self.compute("cancelled", 100_000, "--nodes=2")
        job.wait_for_records(20)
        self.cluster.run("scancel", job.job_id)
        self.assertEqual(job.wait_for_end(), "CANCELLED", job.output())
        wait_until(lambda: job.reports(), job.output)
        self.assertEqual((job.reports()[0]["recorded"], job.field("Restarts")), (len(job.records()), "0"))
        self.assertNotIn("requeued", job.output())

    def test_workers_that_do_not_start(self):
        job = self.compute("faulty", 10, "--nodes=2", "--export=ALL,NEUROSHARD_WORKER_ARGS=--config /nowhere.yaml")
        self.assertEqual(job.wait_for_end(), "FAILED")
        self.assertIn("no worker serves", job.output())
        self.assertIn("/nowhere.yaml", job.output())


if __name__ == "__main__":
    if not unpacked(CACHE, PACKAGES, "usr/sbin/slurmd-wlm"):
        print("SKIPPED: Debian's Slurm cannot be fetched; deploy/slurm was not tested")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
