"""Two workers and a planner in network namespaces, over a link that delays, reorders, loses and cuts.

The link is a pair of TUN devices whose packets this process carries from one to the other, so that no kernel module (netem) is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from typing import Iterator, List, Optional

from setting import REPOSITORY, REQUEST, SWEEP, Programs, planner, records_of, require, require_kept, worker

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
COMM_SWEEP = """kind: comm
seed: {seed}
num_samples: {samples}
num_ranks: [2, 4]
collectives: [all_to_all, all_reduce]
batch_size: 64
dims: [16, 8]
min_tables: 4
max_tables: 8
max_start_offset: 2
settings: {{warmup_iterations: 1, min_iterations: 3, max_iterations: 3}}
"""


class Link:
    """Carries packets between two namespaces. Fields may be changed at any time."""

    def __init__(self, name: str, seed: int):
        self.delay_s = 0.0
        self.jitter_s = 0.0  # packets overtake each other
        self.loss = 0.0
        self.cut = False
        self.carried = self.lost = self.overtaken = 0
        self.namespaces = [f"{name}-a", f"{name}-b"]
        self.addresses = ["10.77.0.1", "10.77.0.2"]
        self._draw = random.Random(seed)
        self._ends: List[int] = []
        self._stopping = False
        for i, namespace in enumerate(self.namespaces):
            device = f"nsf{os.getpid() % 10000}{'ab'[i]}"
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self._ends.append(end)
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN_NO_PI))
            for command in (f"ip netns add {namespace}", f"ip link set {device} netns {namespace}", f"ip -n {namespace} link set lo up",
                            f"ip -n {namespace} address add {self.addresses[i]}/24 dev {device}", f"ip -n {namespace} link set {device} up"):
                subprocess.run(command.split(), check=True, capture_output=True)
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def within(self, side: int) -> List[str]:
        return ["ip", "netns", "exec", self.namespaces[side]]

    def _carry(self) -> None:
        waiting: list = []  # (due, number, end, packet)
        number = newest = 0
        while not self._stopping:
            until = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.05
            for end in select.select(self._ends, [], [], min(until, 0.05))[0]:
                with contextlib.suppress(BlockingIOError, OSError):
                    packet = os.read(end, 65536)
                    number += 1
                    if self.cut or self._draw.random() < self.loss:
                        self.lost += 1
                        continue
                    due = time.monotonic() + self.delay_s + self._draw.uniform(0, self.jitter_s)
                    heapq.heappush(waiting, (due, number, self._ends[1 - self._ends.index(end)], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, order, end, packet = heapq.heappop(waiting)
                self.overtaken += order < newest
                newest = max(newest, order)
                if self.cut:
                    self.lost += 1
                    continue
                with contextlib.suppress(OSError):
                    os.write(end, packet)
                    self.carried += 1

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        for end in self._ends:
            os.close(end)
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


@contextlib.contextmanager
def calm(link: Link) -> Iterator[None]:
    """The link is as it was afterwards."""
    try:
        yield
    finally:
        link.delay_s = link.jitter_s = link.loss = 0
        link.cut = False


class NetworkSuite:
    def __init__(self, programs: Programs, folder: pathlib.Path, link: Link):
        self.programs, self.folder, self.link = programs, folder, link
        self.servers = [
            worker(programs, folder, "--cpu-devices", "2", "--collective-host", address, "--insecure", prefix=link.within(side), address=f"{address}:0")
            for side, address in enumerate(link.addresses)]
        self.number = 0

    def sweep(self, kind: str, samples: int) -> List:
        """A new sweep over both workers, with short patience; its store is the last word."""
        self.number += 1
        config = self.folder / f"{self.number}.yaml"
        form = COMM_SWEEP if kind == "comm" else SWEEP
        config.write_text(form.format(seed=self.number, samples=samples, repository=REPOSITORY))
        return ["neuroshard", "sweep", kind, config, "--workers", ",".join(server.address for server in self.servers), "--reconnect-s", "5",
                "--sample-timeout-s", "20", "--store", self.folder / f"{self.number}.db"]

    def start(self, command: List) -> subprocess.Popen:
        return subprocess.Popen([*self.link.within(0), self.programs.path(command[0]), *map(str, command[1:])],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def run(self, command: List, patience_s: float = 180) -> subprocess.CompletedProcess:
        process = self.start(command)
        try:
            out, err = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            require(False, f"{' '.join(map(str, command[:3]))} ends within {patience_s:.0f} s")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def completes(self, command: List, when: str) -> int:
        done = self.run(command)
        require(done.returncode == 0, f"{when}: a sweep completes: {done.returncode}: {done.stderr[-600:]}")
        return len(records_of(command[-1]))

    def delayed_and_reordered(self) -> str:
        expected = self.completes(self.sweep("comm", 6), "on a calm link")
        with calm(self.link):
            self.link.delay_s, self.link.jitter_s, self.link.loss = 0.005, 0.015, 0.01
            before = (self.link.overtaken, self.link.lost)
            found = self.completes(self.sweep("comm", 6), "5 to 20 ms, reordered, 1 % lost")
            require(found == expected, f"as many records as on a calm link: {found}, {expected}")
            self.completes(self.sweep("compute", 20), "5 to 20 ms, reordered, 1 % lost")
            return f"{self.link.overtaken - before[0]} packets overtaken, {self.link.lost - before[1]} lost, {found} records of groups"

    def cut(self, kind: str, samples: int, heal_after_s: float) -> str:
        """Cut while the sweep measures, for good (0) or for some seconds; then healed."""
        command = self.sweep(kind, samples)
        store = command[-1]
        with calm(self.link):
            process = self.start(command)
            give_up = time.monotonic() + 60
            while not records_of(store):
                require(process.poll() is None and time.monotonic() < give_up, "the sweep begins")
                time.sleep(0.05)
            self.link.cut = True
            started = time.monotonic()
            known = records_of(store)
            if heal_after_s > 0:
                time.sleep(heal_after_s)
                self.link.cut = False
            try:
                _, said = process.communicate(timeout=150)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                require(False, f"{kind}: a sweep over a cut link ends")
            took_s = time.monotonic() - started
            require(process.returncode in (0, 1), f"{kind}: ends with {process.returncode}: {said[-400:]}")
            require(process.returncode == 0 or any(server.address in said for server in self.servers), f"{kind}: says who is gone: {said[-400:]}")
            require_kept(known, records_of(store), f"{kind}, cut")
        known = records_of(store)
        complete = self.completes(command, f"{kind}, after the cut")
        require_kept(known, records_of(store), f"{kind}, after the cut")
        require(all(server.process.poll() is None for server in self.servers), "both workers live")
        return f"ended with {process.returncode} after {took_s:.1f} s, {len(known)} records then, {complete} when healed"

    def plans(self) -> str:
        request = self.folder / "request.yaml"
        request.write_text(REQUEST)
        address = self.link.addresses[1]
        answers = []
        with planner(self.programs, self.folder, self.folder / "none", "--insecure", prefix=[*self.link.within(1)], address=f"{address}:0") as server, calm(self.link):
            for delay_s in (0, 0.02):
                self.link.delay_s = self.link.jitter_s = delay_s
                out = self.folder / "plan.json"
                done = self.run(["neuroshard", "plan", request, "--planner", server.address, "--stream", "--format", "torchrec", "--out", out])
                require(done.returncode == 0, f"a plan comes: {done.stderr[-400:]}")
                answers.append(out.read_text())
            self.link.cut = True
            started = time.monotonic()
            done = self.run(["neuroshard", "plan", request, "--planner", server.address, "--format", "torchrec"], 120)
            took_s = time.monotonic() - started
            require(done.returncode == 1 and server.address in done.stderr, f"says who does not answer: {done.stderr[-400:]}")
        require(answers[0] == answers[1], "the same plan over any link")
        return f"the same plan over both; over a cut link an error after {took_s:.1f} s"

    def close(self) -> None:
        for server in self.servers:
            server.kill()


def why_not() -> Optional[str]:
    """What is missing to run here."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs ip (Debian's iproute2)"
    name = f"nsf{os.getpid()}-probe"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True)
    except OSError as fault:
        return f"needs /dev/net/tun: {fault.strerror}"
    except subprocess.CalledProcessError as fault:
        return f"may not make network namespaces: {fault.stderr.decode().strip()}"
    return None


def run(programs: Programs, folder: pathlib.Path) -> List[str]:
    broken = []
    link = Link("nsf" + str(os.getpid()), 1)
    try:
        suite = NetworkSuite(programs, folder, link)
        try:
            for name, part in (
                ("streams of plans", suite.plans), ("delayed, reordered, lossy", suite.delayed_and_reordered),
                ("groups, cut for good", lambda: suite.cut("comm", 40, 0)), ("groups, cut for 2 s", lambda: suite.cut("comm", 40, 2)),
                ("streams, cut for good", lambda: suite.cut("compute", 300, 0)), ("streams, cut for 2 s", lambda: suite.cut("compute", 300, 2)),
            ):
                try:
                    print(f"network, {name}: {part()}", flush=True)
                except AssertionError as failed:
                    broken.append(f"{name}: {failed}")
                    print("BROKEN", broken[-1], flush=True)
        finally:
            suite.close()
    finally:
        link.close()
    return broken
