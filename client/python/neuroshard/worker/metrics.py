"""Metrics of measuring, by the names of neuroshard-worker (worker/README.md)."""

from __future__ import annotations

import contextlib
import time
from typing import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .faults import Fault

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class _Outcome:
    value = "error"

    def set(self, value: str) -> None:
        self.value = value


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
