"""The stopping rule: the cases of kernels/api/statistics_test.cc."""

import math
import random
import unittest

from neuroshard.worker.timing import Series, Settings, median_half_width_95, percentile

SETTINGS = Settings(min_iterations=5, max_iterations=50, target_relative_error=0.02, max_time_ms=2000)


def feed_until_finished(series: Series, value) -> int:  # type: ignore[no-untyped-def]
    fed = 0
    while not series.finished:
        series.add(value(fed))
        fed += 1
    return fed


class TimingTest(unittest.TestCase):
    def test_percentiles_interpolate(self) -> None:
        self.assertEqual([percentile([40, 10, 30, 20], p) for p in (0, 25, 50, 90, 100)], [10, 17.5, 25, 37, 40])
        self.assertEqual(percentile([], 50), 0)

    def test_half_width_uses_the_tabulated_order_statistics(self) -> None:
        for n, lower in ((6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (50, 18)):
            self.assertEqual(median_half_width_95(list(range(1, n + 1))), (n + 1 - 2 * lower) / 2)
        self.assertEqual(median_half_width_95([1.0] * 5), math.inf)
        self.assertAlmostEqual(median_half_width_95(list(range(5000))), 0.98 * math.sqrt(5000), delta=2)  # 2^-5000 underflows

    def test_reasons(self) -> None:
        noise = random.Random(1)
        for value, fed, reason in (
            (lambda i: 3.0, 6, "converged"),
            (lambda i: 0.0, 6, "converged"),
            (lambda i: 500.0 if i == 0 else 3.0, 9, "converged"),
            (lambda i: 1 + noise.random(), 50, "max_iterations"),
            (lambda i: 100.0 if i % 2 == 0 else 300.0, 10, "max_time"),
        ):
            series = Series(SETTINGS)
            self.assertEqual((feed_until_finished(series, value), series.reason), (fed, reason))

    def test_the_first_reason_stays(self) -> None:
        series = Series(SETTINGS)
        feed_until_finished(series, lambda i: 3.0)
        for _ in range(60):
            series.add(1000.0)
        self.assertEqual((series.reason, len(series.samples_ms)), ("converged", 66))

    def test_summary(self) -> None:
        series = Series(SETTINGS)
        for value in (3.0, 1.0, 2.0):
            series.add(value)
        self.assertEqual(series.summary(), {"samples_ms": [3.0, 1.0, 2.0], "median_ms": 2.0, "relative_spread": (2.8 - 1.2) / 2,
                                            "stop_reason": "max_time", "warmup_iterations": 3})


if __name__ == "__main__":
    unittest.main()
