"""Numbers as people read them, with their units."""

import math
from typing import Sequence

UNKNOWN = "–"


def number(value: float, decimals: int) -> str:
    """1234.5 -> "1,234.5"; "–" for what is no finite number; very large ones as 1.2e+15."""
    if not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.{decimals}f}" if abs(value) < 1e9 else f"{value:.3g}"


def count(value: float) -> str:
    return number(value, 0)


def decimals_for(values: Sequence[float]) -> int:
    """Decimals with which the largest of some milliseconds has four digits, at least one and at most six."""
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0)
    return 3 if largest <= 0 else max(1, min(6, 3 - math.floor(math.log10(largest))))


def size(num_bytes: float) -> str:
    """Bytes in the units of the command line: "168.45 MiB"."""
    value, unit = float(num_bytes), 0
    while abs(value) >= 1024 and unit < 5:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{number(value, 2)} {('KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit - 1]}"


def percent(share: float, decimals: int = 1) -> str:
    return f"{number(100 * share, decimals)} %" if math.isfinite(share) else UNKNOWN


def whole_percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else percent(share, 0)


def change(ratio: float) -> str:
    """1.034 -> "+3.4 %", "0.0 %" below half a digit."""
    if not (math.isfinite(ratio) and abs(ratio) < 1e6):
        return UNKNOWN
    text = f"{100 * (ratio - 1):+,.1f} %"
    return text[1:] if text[1:] == "0.0 %" else text.replace("-", "\u2212")


def plural(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def number_ranges(numbers: Sequence[int], max_ranges: int = 6) -> str:
    """[0, 1, 2, 5] -> "0–2, 5"."""
    ordered = sorted(set(numbers))
    starts = [i for i, n in enumerate(ordered) if i == 0 or n != ordered[i - 1] + 1]
    parts = []
    for begin, end in zip(starts, starts[1:] + [len(ordered)]):
        first, last = ordered[begin], ordered[end - 1]
        parts.append(str(first) if first == last else f"{first}–{last}" if last > first + 1 else f"{first}, {last}")
    left = len(parts) - max_ranges
    return ", ".join(parts[:max_ranges]) + (f" and {left} more runs" if left > 0 else "")


def step_decimals(step: float) -> int:
    """With so many decimals every multiple of a round step is exact."""
    return next((d for d in range(30) if math.isclose(step * 10**d, round(step * 10**d), rel_tol=1e-9)), 30)


def axis_step(highest: float) -> float:
    """A round step that divides an axis from 0 to `highest` into three to seven parts."""
    if not (math.isfinite(highest) and highest > 0):
        return 1
    power = 10.0 ** math.floor(math.log10(highest))
    return next(power * part for part in (0.2, 0.25, 0.5, 1, 2, 2.5) if highest / (power * part) <= 6)
