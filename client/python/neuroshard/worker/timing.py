"""When a series of timed iterations ends, and its summary: the rules of kernels/api/statistics.h. Pure."""

from __future__ import annotations

import dataclasses
import math
from typing import List


@dataclasses.dataclass(frozen=True)
class Settings:
    warmup_iterations: int = 3
    min_iterations: int = 5
    max_iterations: int = 50
    target_relative_error: float = 0.02
    max_time_ms: int = 2000
    flush_cache: bool = True

    def __str__(self) -> str:
        return " ".join(f"{name}={str(value).lower()}" for name, value in dataclasses.asdict(self).items())


def percentile(values: List[float], percent: float) -> float:
    """Linear between the closest ranks; 0 when there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    position = percent / 100 * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median_half_width_95(values: List[float]) -> float:
    """Half the width of the distribution-free 95% confidence interval of the median; infinite below 6 values."""
    n, order, cumulative = len(values), 0, 0.0
    log_term = -n * math.log(2)
    for k in range(n):
        cumulative += math.exp(log_term)
        if cumulative > 0.025:
            order = k
            break
        log_term += math.log((n - k) / (k + 1))
    if order == 0:
        return math.inf
    ordered = sorted(values)
    return (ordered[n - order] - ordered[order - 1]) / 2


class Series:
    """Timed iterations in ms. `reason` is why the series was first satisfied: it may go on while another one is not."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.samples_ms: List[float] = []
        self.total_ms = 0.0
        self.reason = "max_time"
        self.finished = False

    def add(self, duration_ms: float) -> None:
        self.samples_ms.append(duration_ms)
        self.total_ms += duration_ms
        if not self.finished:
            self.finished = self._satisfied()

    def _satisfied(self) -> bool:
        settings, count = self._settings, len(self.samples_ms)
        if count >= settings.max_iterations:
            self.reason = "max_iterations"
        elif count < settings.min_iterations:
            return False
        elif median_half_width_95(self.samples_ms) <= settings.target_relative_error * percentile(self.samples_ms, 50):
            self.reason = "converged"
        elif self.total_ms >= settings.max_time_ms:
            self.reason = "max_time"
        else:
            return False
        return True

    def summary(self) -> dict:
        """The fields of TimedSeries."""
        median = percentile(self.samples_ms, 50)
        spread = (percentile(self.samples_ms, 90) - percentile(self.samples_ms, 10)) / median if median else 0.0
        return {"samples_ms": self.samples_ms, "median_ms": median, "relative_spread": spread, "stop_reason": self.reason,
                "warmup_iterations": self._settings.warmup_iterations}
