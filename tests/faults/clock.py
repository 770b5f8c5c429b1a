"""Wall clocks that jump, of one process or of all: nothing is lost, no lease, group or deadline ends early or late, certificates follow the clock.

The monotonic clock goes on as it is (clock_jumps.c).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import threading
import time
from typing import Dict, Iterator, List, Sequence

from network import COMM_SWEEP
from setting import REPOSITORY, REQUEST, SWEEP, Broken, Programs, planner, records_of, require, worker

DAY_S = 86_400
JUMPS_S = (3_600, -3_600, DAY_S, -DAY_S, 2, -2, 0.5, -0.5, 0)
LATE_S = 20  # beside builds


class Clock:
    """The wall clock of the processes that are started with it."""

    def __init__(self, programs: Programs, folder: pathlib.Path, name: str, seed: int):
        self.path = folder / f"{name}.clock"
        self.path.write_bytes(bytes(8))
        self.preload, self.draw, self.jumps = programs.preload, random.Random(seed), 0
        self.environment: Dict[str, str] = {"LD_PRELOAD": str(self.preload), "CLOCK_JUMPS_FILE": str(self.path)}
        self.prefix: Sequence[str] = ["env", *(f"{key}={value}" for key, value in self.environment.items())]

    def set(self, seconds: float) -> None:
        with open(self.path, "r+b") as file:  # in place: processes have it mapped
            file.write(struct.pack("=q", int(seconds * 1e9)))
        self.jumps += 1

    @contextlib.contextmanager
    def jumping(self, every_s: float) -> Iterator[None]:
        """Jumps all the time."""
        over = threading.Event()

        def jump() -> None:
            while not over.wait(self.draw.uniform(0, 2 * every_s)):
                self.set(self.draw.choice(JUMPS_S))

        thread = threading.Thread(target=jump)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.set(0)


class ClockSuite:
    def __init__(self, programs: Programs, folder: pathlib.Path, seed: int):
        self.programs, self.folder = programs, folder
        self.clocks = {name: Clock(programs, folder, name, seed + number) for number, name in enumerate(("client", "worker", "planner"))}
        self.broken: List[str] = []

    def start(self, command: List) -> subprocess.Popen:
        return self.programs.start(command, env={**os.environ, **self.clocks["client"].environment})

    def run(self, command: List) -> subprocess.CompletedProcess:
        return self.programs.run(command, self.clocks["client"].environment)

    def sweeps(self, kind: str, samples: int, jumping: Sequence[str]) -> str:
        """A sweep during which the clocks of `jumping` jump: complete at the first attempt, and every duration is one."""
        store, config = self.folder / f"{kind}.{'.'.join(jumping)}.db", self.folder / f"{kind}.yaml"
        config.write_text((COMM_SWEEP if kind == "comm" else SWEEP).format(seed=1, samples=samples, repository=REPOSITORY))
        with worker(self.programs, self.folder, "--cpu-devices", "4", prefix=self.clocks["worker"].prefix) as server, contextlib.ExitStack() as stack:
            for name in jumping:
                stack.enter_context(self.clocks[name].jumping(0.02))
            done = self.run(["neuroshard", "sweep", kind, config, "--workers", server.address, "--store", store, "--reconnect-s", "5"])
            require(done.returncode == 0, f"{kind}, {jumping}: a sweep completes: {done.returncode}: {done.stderr[-600:]}")
            require("again" not in done.stderr, f"{kind}, {jumping}: nothing has to be tried again: {done.stderr[-600:]}")
            require("failed" not in server.log(), f"{kind}, {jumping}: no call fails: {server.log()[-600:]}")
        records = records_of(store)
        # A sweep of groups measures several collectives of each sample; that all are there is what exit code 0 says.
        require(len(records) == samples or (kind == "comm" and len(records) > samples), f"{kind}, {jumping}: {len(records)} records")
        costs = [record[1] for record in records.values() if record[0] == "ok"]
        require(len(costs) == len(records) and all(0 < cost < 60_000 for cost in costs), f"{kind}, {jumping}: costs {sorted(costs)[:2]} to {max(costs)} ms")
        return f"{len(records)} records, median {statistics.median(costs):.2g} ms"

    def deadlines(self) -> str:
        """Calls that take a while, under jumps of both sides: as long as they were told to."""
        request = self.folder / "request.yaml"
        request.write_text(REQUEST)
        out = self.folder / "plan.json"
        took: List[float] = []
        with planner(self.programs, self.folder, self.folder / "none", prefix=self.clocks["planner"].prefix) as server:
            command = ["neuroshard", "plan", request, "--planner", server.address, "--format", "torchrec", "--out", out]
            self.programs.run_well(command)
            expected = out.read_text()
            with self.clocks["planner"].jumping(0.005), self.clocks["client"].jumping(0.005):
                for more in ([], ["--stream"], ["--time-budget-ms", "500"]):
                    done = self.run([*command, "--timeout-s", "60", *more])
                    require(done.returncode == 0, f"no deadline of 60 s ends early: {done.returncode}: {done.stderr[-400:]}")
                    require(out.read_text() == expected, "the same plan")
            # No answer: the caller gives up when its time is over, not before. Late where its clock goes back: gRPC's timers wait for
            # wall-clock times (abseil's futex), so they end when the clock is there again.
            for jump_s, late_s in ((DAY_S, LATE_S), (-DAY_S, 3)):
                server.process.send_signal(signal.SIGSTOP)
                began = time.monotonic()
                waiting = self.start([*command, "--timeout-s", "2"])
                time.sleep(1)
                self.clocks["client"].set(jump_s)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    waiting.wait(timeout=2 + late_s)
                require(jump_s < 0 or waiting.returncode is not None, f"a deadline of 2 s ends within {LATE_S} s when the clock jumps by {jump_s} s")
                self.clocks["client"].set(0)
                try:
                    waiting.communicate(timeout=LATE_S)
                except subprocess.TimeoutExpired:
                    waiting.kill()
                    waiting.communicate()
                    raise Broken("a deadline of 2 s ends when the clock that jumped is right again") from None
                finally:
                    server.process.send_signal(signal.SIGCONT)
                took.append(time.monotonic() - began)
                require(waiting.returncode == 1 and took[-1] > 1.9, f"a deadline of 2 s took {took[-1]:.1f} s when the clock jumped by {jump_s} s")
        return f"a deadline of 2 s ended after {took[0]:.1f} s when the clock went on a day, after {took[1]:.1f} s when it went back for 5 s"

    def certificates(self) -> str:
        """Of one day: refused by whoever's clock is beyond it, and good again when that clock goes back."""
        folder = self.folder / "certificates"
        subprocess.run([REPOSITORY / "deploy/make_dev_certs.sh", folder, "server=DNS:localhost,IP:127.0.0.1", "trainer=DNS:trainer"],
                       check=True, env={**os.environ, "NEUROSHARD_CERT_DAYS": "1"})
        (self.folder / "tls").mkdir()
        tls = {"certificate": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
        more = "tls: {" + ", ".join(f"{key}: {folder / file}" for key, file in tls.items()) + ", roles: {admin: [trainer]}}\n"
        with planner(self.programs, self.folder / "tls", self.folder / "none", prefix=self.clocks["planner"].prefix, more=more) as server:
            command = ["neuroshard", "models", "list", "--planner", server.address, "--timeout-s", "10", "--tls-ca", folder / "ca.pem",
                       "--tls-cert", folder / "trainer.pem", "--tls-key", folder / "trainer.key"]
            for name in ("client", "planner"):
                for jump_s, welcome in ((0, True), (2 * DAY_S, False), (0, True)):
                    self.clocks[name].set(jump_s)
                    done = self.run(command)
                    require((done.returncode == 0) == welcome,
                            f"the {name}'s clock is {jump_s} s ahead of certificates of a day: {done.returncode}: {done.stderr[-400:]}")
        return "refused in time, by either side"

    def run_all(self, compute: int, comm: int) -> None:
        parts = [("sweep, worker's and client's clocks", lambda: self.sweeps("compute", compute, ("client", "worker"))),
                 ("deadlines", self.deadlines), ("certificates", self.certificates)]
        if comm > 0:
            parts += [("sweep, client's clock", lambda: self.sweeps("compute", compute, ("client",))),
                      ("sweep, worker's clock", lambda: self.sweeps("compute", compute, ("worker",))),
                      ("groups, worker's and client's clocks", lambda: self.sweeps("comm", comm, ("client", "worker")))]
        for name, part in parts:
            try:
                print(f"clock, {name}: {part()}", flush=True)
            except Broken as broken:
                self.broken.append(f"{name}: {broken}")
                print("BROKEN", self.broken[-1], flush=True)
        print(f"clock: {sum(clock.jumps for clock in self.clocks.values())} jumps", flush=True)
