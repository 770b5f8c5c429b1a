"""A store in PostgreSQL at each message between a sweep and the database: the connection is cut, the server is killed, the client is killed.

For every number N, something happens instead of passing on the N-th message of either side: a statement that never arrives, or one that was executed and
whose answer is lost. Afterwards:
  - a client that lives completes its sweep by itself, unless it never had a connection: a server that cannot be reached is an error at once, which names it;
  - the command of a client that was killed, given again, completes its sweep;
  - what was recorded before is there and unchanged, every sample is there once, and `neuroshard store verify` finds the store whole.
"""

from __future__ import annotations

import pathlib
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import urllib.parse
from typing import Callable, Dict, List, Tuple

from setting import PATIENCE_S, REPOSITORY, SWEEP, Broken, Programs, Server, require, require_kept

sys.path.append(str(REPOSITORY / "tests/support"))

from postgres_server import PostgresServer, find_programs  # noqa: E402,F401

SAMPLES = 4
HANDSHAKE = 2  # messages until a connection is there
FAULTS = ("connection cut", "server killed", "client killed")
RECORDS = """SELECT w.config_hash, s.sample_id, m.outcome, m.total_ms FROM neuroshard.compute_measurements m
JOIN neuroshard.compute_samples s USING (sample) JOIN neuroshard.sweeps w USING (sweep_id)"""


class Between:
    """Passes on what one client at a time and the server say. A message is what comes at once; with libpq that is a statement, or its answer."""

    def __init__(self, server: pathlib.Path):
        self.server = str(server / ".s.PGSQL.5432")
        self.folder = tempfile.mkdtemp(prefix="nspgb", dir="/tmp")  # short, as a socket's path must be
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.folder + "/.s.PGSQL.5432")
        self.listener.listen(16)
        self.arm(0, lambda: None)
        threading.Thread(target=self._serve, daemon=True).start()

    def arm(self, at: int, fault: Callable[[], None]) -> None:
        """Counts from 1 again; `fault` instead of message `at`, then both sides' connections end."""
        self.messages, self.at, self.fault, self.happened = 0, at, fault, False

    def close(self) -> None:
        self.listener.close()
        shutil.rmtree(self.folder)

    def _serve(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX) as server:
                try:
                    server.connect(self.server)
                    self._pass_on(client, server)
                except OSError:  # one of them is gone
                    pass

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while True:
            for one in select.select([client, server], [], [])[0]:
                message = one.recv(1 << 20)
                if not message:
                    return
                self.messages += 1
                if self.messages == self.at:
                    self.happened = True
                    self.fault()
                    return
                other[one].sendall(message)


class PostgresSuite:
    def __init__(self, programs: Programs, folder: pathlib.Path, postgres: PostgresServer, worker: Server):
        self.programs, self.folder, self.postgres, self.worker = programs, folder, postgres, worker
        self.runs = 0
        self.broken: List[str] = []
        self.between = Between(postgres.folder)

    def command(self, seed: int, store: str) -> List:
        config = self.folder / f"sweep{seed}.yaml"
        config.write_text(SWEEP.format(seed=seed, samples=SAMPLES, repository=REPOSITORY))
        return ["neuroshard", "sweep", "compute", config, "--workers", self.worker.address, "--store", store]

    def records(self) -> Dict[Tuple[str, str], Tuple[str, str]]:
        if self.postgres.sql("SELECT to_regclass('neuroshard.compute_measurements') IS NULL", "place") == "t":
            return {}
        rows = [line.split("|") for line in self.postgres.sql(RECORDS, "place").splitlines()]
        found = {(row[0], row[1]): (row[2], row[3]) for row in rows}
        require(len(found) == len(rows), "no record is there twice")
        return found

    def one(self, template: str, at: int, fault: str) -> bool:
        """Whether there was a message `at`."""
        self.postgres.sql("DROP DATABASE IF EXISTS place WITH (FORCE)")
        self.postgres.sql(f"CREATE DATABASE place TEMPLATE {template}")
        before = self.records()
        client = None
        started = threading.Event()

        def happen() -> None:
            started.wait()
            if fault == "server killed":
                self.postgres.kill()
                self.postgres.start()
            elif fault == "client killed":
                client.send_signal(signal.SIGKILL)

        self.between.arm(at, happen)
        command = self.command(1, f"postgresql://neuroshard@{urllib.parse.quote(self.between.folder, safe='')}/place")
        client = self.programs.start(command)
        started.set()
        _, said = client.communicate(timeout=PATIENCE_S)
        happened = self.between.happened
        self.runs += happened
        require_kept(before, self.records(), fault)
        if happened and (fault == "client killed" or at <= HANDSHAKE):
            killed = fault == "client killed"
            require(client.returncode == (-signal.SIGKILL if killed else 1), f"ends with {client.returncode}: {said[-300:]}")
            require(killed or self.between.folder in said, f"what is said names the store: {said[-300:]}")
            self.programs.run_well(command)
        else:
            require(client.returncode == 0, f"the sweep goes on: {client.returncode}: {said[-500:]}")
        now = self.records()
        require_kept(before, now, fault)
        require(len(now) == len(before) + SAMPLES, f"the sweep is complete: {len(now) - len(before)} of {SAMPLES}")
        self.programs.run_well(["neuroshard", "store", "verify", "--store", self.postgres.address("place")])
        return happened

    def run(self, points: int) -> None:
        """At most `points` messages of each fault, spread evenly; into an empty database, and into one that has a sweep."""
        self.postgres.sql("CREATE DATABASE empty")
        self.postgres.sql("CREATE DATABASE measured")
        self.programs.run_well(self.command(2, self.postgres.address("measured")))
        for template in ("empty", "measured"):
            self.one(template, 0, FAULTS[0])
            count = self.between.messages
            share = min(points, count)
            chosen = [1 + (2 * i + 1) * count // (2 * share) for i in range(share)] if share < count else range(1, count + 1)
            for fault in FAULTS:
                for at in chosen:
                    try:
                        self.one(template, at, fault)
                    except Broken as broken:
                        self.broken.append(f"{template} store, {fault} at message {at}: {broken}")
                        print("BROKEN", self.broken[-1], flush=True)
            print(f"sweep into a store that is {template}: {count} messages, {len(chosen)} x {len(FAULTS)} faults", flush=True)
        self.between.close()
