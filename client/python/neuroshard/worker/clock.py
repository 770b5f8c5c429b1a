"""What times work on a device, and what waits. Imports torch: for measuring processes."""

from __future__ import annotations

import time
from typing import Callable

import torch

_SPIN_S = 300e-6  # the system wakes a sleeper up to some 100 us late
_LONGEST_SLEEP_S = 0.02  # how late a stop is noticed
_MOST_FLUSHED_BYTES = 128 << 20


class DeviceClock:
    """Times work on one device and flushes its caches. One thread."""

    def __init__(self, device: torch.device, last_level_cache_bytes: int) -> None:
        self._device = device
        if device.type == "cuda":  # writing displaces what an L2 holds
            self._flushed = torch.empty(2 * torch.cuda.get_device_properties(device).L2_cache_size // 8, dtype=torch.int64, device=device)
        else:
            self._flushed = torch.ones(min(2 * last_level_cache_bytes, _MOST_FLUSHED_BYTES) // 8, dtype=torch.int64)

    def flush_cache(self) -> None:
        if self._device.type == "cuda":
            self._flushed.zero_()
        else:
            self._flushed.sum()

    def time_ms(self, work: Callable[[], object]) -> float:
        """From the start of `work` to its completion on the device; launching is part of it where the device waits for it."""
        if self._device.type == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize(self._device)
            begin.record()
            work()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)


def wait_until(target_s: float, check: Callable[[], None]) -> None:
    """Until time.perf_counter() is `target_s`: sleeps, then spins. `check` may raise."""
    while (left := target_s - _SPIN_S - time.perf_counter()) > 0:
        check()
        time.sleep(min(left, _LONGEST_SLEEP_S))
    while time.perf_counter() < target_s:
        pass
