"""Device time of what Python enqueues, without the gaps of its launches: as neuroshard-worker and gpu_kernels_bench time theirs (DeviceGate)."""

import time

import torch

_FIRST_HOLD_MS, _LONGEST_HOLD_MS = 20.0, 200.0


class GatedClock:
    """neuroshard.worker's DeviceClock for comparisons with our own kernels on a GPU. A kernel that only waits stands before the timed work until
    all of it is enqueued; `not_held` counts passes that it did not last for, or that waited for the device themselves: their times have gaps. One
    thread."""

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        self._flushed = torch.zeros(max(2 * properties.L2_cache_size, 128 << 20) // 8, dtype=torch.int64, device=device)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cycles = 10_000_000
        torch.cuda._sleep(cycles)  # loads it
        self._begin.record()
        torch.cuda._sleep(cycles)
        self._end.record()
        self._end.synchronize()
        self._cycles_per_ms = cycles / self._begin.elapsed_time(self._end)
        self._hold_ms = _FIRST_HOLD_MS
        self.not_held = 0

    def flush_cache(self) -> None:
        """By reading, as a worker does."""
        self._flushed.sum()

    def time_ms(self, work) -> float:
        torch.cuda.synchronize()
        torch.cuda._sleep(int(self._hold_ms * self._cycles_per_ms))
        self._begin.record()
        began = time.perf_counter()
        work()
        self._end.record()
        enqueued_ms = 1e3 * (time.perf_counter() - began)
        held = not self._begin.query()
        self._end.synchronize()
        self.not_held += not held
        self._hold_ms = min(max(2 * enqueued_ms, 1.0), _LONGEST_HOLD_MS)
        return self._begin.elapsed_time(self._end)
