"""A real worker process of the package, neuroshard.worker, for tests."""

from __future__ import annotations

import contextlib
import pathlib
import queue
import re
import signal
import subprocess
import sys
import time
from typing import Any, List, Tuple

import grpc
from neuroshard import v1
from neuroshard.call import CHANNEL_OPTIONS
from neuroshard.v1.worker_pb2_grpc import WorkerServiceStub

DEADLINE_S = 60
QUICK = v1.MeasurementSettings(warmup_iterations=1, min_iterations=2, max_iterations=3, max_time_ms=1000)


class WorkerProcess:
    """python -m neuroshard.worker on a port that it chooses."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "neuroshard.worker", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise AssertionError(f"the worker did not start: {self.process.communicate()[1]}")
        self.address = line.split()[-1]
        self.metrics = ""
        # In text or in JSON.
        while not re.search(r'serving("|\b).*address', line := self.process.stderr.readline()):
            if found := re.search(r'metrics_listening\W+address\W+([\d.:]+)', line):
                self.metrics = found[1]
        self.channel = grpc.insecure_channel(self.address, CHANNEL_OPTIONS)
        self.stub = WorkerServiceStub(self.channel)

    def end(self, number: int = signal.SIGTERM) -> Tuple[int, str]:
        """Exit status and what was logged."""
        self.channel.close()
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, log

    def jobs(self) -> List[str]:
        return [device.running_job for device in self.stub.GetWorkerInfo(v1.GetWorkerInfoRequest()).devices]

    def measuring_processes(self) -> List[int]:
        """Children of the server process that forks them."""

        def children(pid: int) -> List[int]:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                return [int(child) for thread in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (thread / "children").read_text().split()]
            return []

        return [grandchild for child in children(self.process.pid) for grandchild in children(child)]

    def open_stream(self, settings: v1.MeasurementSettings = QUICK, device: int = 0) -> ComputeStream:
        return ComputeStream(self, settings, device)


class ComputeStream:
    """A ProfileCompute call. To be kept: a call that nobody holds is cancelled."""

    def __init__(self, worker: WorkerProcess, settings: v1.MeasurementSettings, device: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        self._queue.put(v1.ProfileComputeRequest(header=v1.ProfileComputeHeader(device=device, settings=settings)))
        self.call = worker.stub.ProfileCompute(iter(self._queue.get, None), timeout=DEADLINE_S)

    def send(self, sample: v1.ComputeSample) -> None:
        self._queue.put(v1.ProfileComputeRequest(sample=sample))

    def measure(self, sample: v1.ComputeSample) -> v1.ComputeMeasurement:
        self.send(sample)
        return next(self.call).measurement

    def end(self) -> None:
        self._queue.put(None)
        for _ in self.call:
            pass


def wait_for(what: Any) -> Any:
    """The first true value of what(); polls the worker, not the clock."""
    until = time.monotonic() + DEADLINE_S
    while not (value := what()):
        if time.monotonic() > until:
            raise AssertionError("waited in vain")
        time.sleep(0.01)
    return value
