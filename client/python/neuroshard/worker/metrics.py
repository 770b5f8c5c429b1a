"""Metrics of calls and of measuring, by the names and in the words of neuroshard-worker (worker/README.md, common/README.md)."""

from __future__ import annotations

import contextlib
import time
from typing import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .faults import Fault

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class _Outcome:
    value = "error"

    def set(self, value: str) -> None:
        self.value = value


# Profiling streams take many minutes.
_CALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
OTHER = "other"


class RpcMetrics:
    """Of the calls of `rpcs`; every other method is `other`."""

    def __init__(self, registry: CollectorRegistry, rpcs: Iterable[str], max_in_flight: int) -> None:
        self._requests = Counter("neuroshard_rpc_requests", "RPCs answered, by method and gRPC status code", ["rpc", "code"], registry=registry)
        self._shed = Counter("neuroshard_rpc_shed", "RPCs refused because the server is overloaded, the caller is over its quota or the server drains, by method",
                             ["rpc", "reason"], registry=registry)
        self._seconds = Histogram("neuroshard_rpc_duration_seconds", "Time inside the handler, by method, without shed calls", ["rpc"],
                                  buckets=_CALL_SECONDS, registry=registry)
        self._in_flight = Gauge("neuroshard_rpc_in_flight", "RPCs being handled, by method", ["rpc"], registry=registry)
        Gauge("neuroshard_rpc_in_flight_limit", "RPCs that may be handled at the same time; cheap ones do not count", registry=registry).set(max_in_flight)
        for rpc in rpcs:  # at 0 before their first call
            self._requests.labels(rpc, "OK")
            for reason in ("OVERLOADED", "OVER_QUOTA", "DRAINING"):
                self._shed.labels(rpc, reason)
            self._seconds.labels(rpc)
            self._in_flight.labels(rpc)
        for code in ("PERMISSION_DENIED", "UNIMPLEMENTED"):
            self._requests.labels(OTHER, code)

    def began(self, rpc: str) -> None:
        self._in_flight.labels(rpc).inc()

    def ended(self, rpc: str, code: str, reason: str, seconds: float) -> None:
        """reason: why it was shed; "": it was not."""
        self._in_flight.labels(rpc).dec()
        self._requests.labels(rpc, code).inc()
        if reason:
            self._shed.labels(rpc, reason).inc()
        else:
            self._seconds.labels(rpc).observe(seconds)

    def refused_outside(self, rpc: str, code: str) -> None:
        """Before its handler ran: without the role, or a method that there is not."""
        self._requests.labels(rpc, code).inc()


class WorkerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._samples = Counter("neuroshard_worker_samples", "Samples that came to an end", ["kind", "outcome"], registry=registry)
        self._seconds = Histogram("neuroshard_worker_measurement_seconds", "Time from a sample's arrival on the device to its record", ["kind"],
                                  buckets=_SECONDS, registry=registry)
        self._open_groups = Gauge("neuroshard_worker_open_comm_groups", "Communication groups that hold devices", registry=registry)
        self._busy = Gauge("neuroshard_worker_device_busy", "1 while the device is leased", ["device"], registry=registry)

    def set_open_groups(self, count: int) -> None:
        self._open_groups.set(count)

    def set_busy(self, device: int, busy: bool) -> None:
        self._busy.labels(str(device)).set(busy)

    @contextlib.contextmanager
    def sample(self, kind: str) -> Iterator[_Outcome]:
        """Counts what happens in it; the outcome is "error" or "cancelled" unless it is set."""
        outcome, begin = _Outcome(), time.monotonic()
        try:
            yield outcome
        except BaseException as error:
            is_error = isinstance(error, Exception) and not (isinstance(error, Fault) and error.code == "CANCELLED")
            outcome.set("error" if is_error else "cancelled")
            raise
        finally:
            self._samples.labels(kind, outcome.value).inc()
            self._seconds.labels(kind).observe(time.monotonic() - begin)
