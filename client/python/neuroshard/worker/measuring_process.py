"""The process that measures: one a job, forked from a server process that has imported torch and FBGEMM, so that a crash in them ends the job and nothing
else, and so that serving takes no time from measuring. Talks with the worker over a socket (wire.py)."""

from __future__ import annotations

import os
import select
import signal
import socket
from typing import Any, Optional, Tuple

import torch

from neuroshard import v1

from . import host
from .clock import DeviceClock
from .collectives import Rank, measure_comm
from .compute import OutOfMemory, measure_compute
from .faults import Fault
from .rank_address import RankAddress
from .timing import Settings
from .wire import HEAD_BYTES, STOP, Job, frame, frame_length, parse


class _Wire:
    """The process's end of the socket. When the worker is gone, so is the process."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire

    def receive(self) -> Any:
        return parse(self._exactly(frame_length(self._exactly(HEAD_BYTES))))

    def send(self, message: Any) -> None:
        self._wire.sendall(frame(message))

    def check(self) -> None:
        """Raises Fault CANCELLED when the worker asked to stop."""
        while select.select([self._wire], [], [], 0)[0]:
            if self.receive()[0] == STOP:
                raise Fault("CANCELLED", "stopped while measuring")

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._wire.recv(size - len(data))
            if not more:
                os._exit(0)
            data += more
        return data


class _Work:
    """What the worker may ask for; a method a verb."""

    def __init__(self, job: Job, wire: _Wire) -> None:
        self._job, self._wire = job, wire
        self._device = torch.device(job.device)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        self._clock = DeviceClock(self._device, host.last_level_cache_bytes())
        self._rank: Optional[Rank] = None

    def compute(self, sample: bytes, settings: Settings) -> dict:
        return measure_compute(v1.ComputeSample.FromString(sample), settings, self._device, self._clock, self._job.memory_bytes, self._wire.check)

    def open_rank(self, rank: int, world_size: int, timeout_ms: int) -> bytes:
        self._rank = Rank(rank, world_size, timeout_ms, self._job.host, self._device)
        return self._rank.address.encode()

    def connect_rank(self, first: Tuple[Any, ...]) -> None:
        assert self._rank is not None
        self._rank.connect(RankAddress(*first))

    def comm(self, sample: bytes, settings: Settings) -> dict:
        assert self._rank is not None
        return measure_comm(self._rank, v1.CommSample.FromString(sample), settings, self._device, self._clock, self._job.memory_bytes, self._wire.check)


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (OutOfMemory, MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def run(job: Job, wire: socket.socket) -> None:
    """Until the worker closes its end. Answers ("ok", value), ("out_of_memory", text) or ("fault", Fault)."""
    for of_the_worker in (signal.SIGINT, signal.SIGTERM):  # sent to the whole process group by terminals and supervisors: the worker drains
        signal.signal(of_the_worker, signal.SIG_IGN)
    torch.set_num_threads(job.threads)
    end = _Wire(wire)
    work = _Work(job, end)
    while True:
        verb, *arguments = end.receive()
        if verb == STOP:
            continue  # came when the work was done
        try:
            answer = ("ok", getattr(work, verb)(*arguments))
        except Fault as fault:
            answer = ("fault", fault)
        except Exception as error:  # FBGEMM's and torch's, too
            text = str(error).strip().splitlines() or [""]
            if _is_out_of_memory(error):
                answer = ("out_of_memory", text[0] or "the host has no memory left")
            else:
                answer = ("fault", Fault("INTERNAL", f"{type(error).__name__}: {text[0]}"))
        end.send(answer)


def describe(backend: str) -> list:
    """The host's devices as (torch device, name, memory in bytes or 0): "cpu", "cuda", or "auto": GPUs where there are any."""
    if backend != "cpu" and torch.cuda.is_available():
        properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        return [(f"cuda:{i}", one.name, int(one.total_memory * 0.9)) for i, one in enumerate(properties)]
    if backend == "cuda":
        raise Fault("UNAVAILABLE", "torch finds no GPU")
    return [("cpu", host.cpu_name(), 0)]


def probe(backend: str, wire: socket.socket) -> None:
    """Answers with describe(), from a process of its own: CUDA must not be initialised in one that forks."""
    end = _Wire(wire)
    try:
        end.send(("ok", describe(backend)))
    except Fault as fault:
        end.send(("fault", fault))
