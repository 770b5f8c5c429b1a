"""Messages between the worker and its measuring processes, and how such a process begins. Imports neither torch nor gRPC's server."""

from __future__ import annotations

import pickle
import struct
from typing import Any, NamedTuple

_HEAD = struct.Struct(">I")
HEAD_BYTES = _HEAD.size
STOP = "stop"


class Job(NamedTuple):
    """What a measuring process is started with."""

    device: str  # "cpu", "cuda:1"
    threads: int
    memory_bytes: int
    host: str  # that ranks of groups listen on


def frame(message: Any) -> bytes:
    """Both ends are this program: what is pickled never came over the network."""
    data = pickle.dumps(message)
    return _HEAD.pack(len(data)) + data


def frame_length(head: bytes) -> int:
    return _HEAD.unpack(head)[0]


def parse(data: bytes) -> Any:
    return pickle.loads(data)


def begin(entry: str, argument: Any, socket: Any) -> None:
    """In the new process: `entry` is a function of measuring_process, which was imported before the fork."""
    from . import measuring_process

    getattr(measuring_process, entry)(argument, socket)
