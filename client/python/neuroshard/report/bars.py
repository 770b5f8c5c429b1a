"""Charts as HTML tables: a row for each rank, with a stacked bar and its numbers. They need no script and read without colours."""

import math
from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

from neuroshard.report.markup import Markup, tag
from neuroshard.report.page import details
from neuroshard.report.units import axis_step, number, step_decimals

MANY_ROWS = 24  # more of them are behind a summary, below an overview


@dataclass
class BarRow:
    label: str
    parts: Sequence[float] = ()  # one for each series
    numbers: Sequence[str] = ()
    interval: Optional[Tuple[float, float]] = None
    capacity: float = math.nan
    marks: Sequence[Tuple[str, float]] = ()  # (class, value): "dot" measured, "tick" before
    is_hot: bool = False  # the row that decides


@dataclass
class BarChart:
    what: str  # of the rows' label: "rank"
    columns: Sequence[str]  # heads of BarRow.numbers; those after the first are left out on a phone
    series: Sequence[Tuple[str, str]]  # (class, name or "" where the rows name it), in the order of BarRow.parts
    rows: Sequence[BarRow] = ()
    unit: str = "ms"
    line: Optional[float] = None  # a value that all bars are held against
    legend: Sequence[Markup] = field(default_factory=list)
    top: float = 0  # right end of the axis; 0: the largest value

    def highest(self) -> float:
        values = [self.top, self.line or 0]
        for row in self.rows:
            values += [sum(row.parts), row.capacity, *(row.interval or ()), *(value for _, value in row.marks)]
        return max((v for v in values if v < 1e300), default=0) or 1  # what is beyond ends at the edge

    def render(self) -> Markup:
        many = len(self.rows) > MANY_ROWS
        top = self.highest() if self.top else self.highest() * 1.02
        step = axis_step(top)
        head = tag("tr", tag("th", self.what, scope="col"), tag("th", self._axis(top, step), class_="bar"),
                   [tag("th", name, scope="col", class_=_column_class(i)) for i, name in enumerate(self.columns)])
        table = tag("table", tag("thead", head), tag("tbody", [self._row(row, top) for row in self.rows]),
                    class_="chart dense" if many else "chart", style=f"--step:{100 * step / top:.3f}%")
        keys = [tag("li", tag("i", class_=css), name) for css, name in self.series if name] + list(self.legend)
        legend = tag("ul", keys, class_="legend") if keys else ""
        if not many:
            return Markup(legend + table)
        return Markup(legend + self._overview(top) + details(f"Each {self.what} as a bar", table))

    def _axis(self, top: float, step: float) -> List[Markup]:
        decimals = step_decimals(step)
        labels = []
        for i in range(int(top / step) + 1):
            text = number(i * step, decimals if i else 0) + (f" {self.unit}" if i == 0 else "")
            labels.append(tag("span", text, style=f"left:{100 * i * step / top:.2f}%"))
        return [tag("div", labels, class_="axis")]

    def _row(self, row: BarRow, top: float) -> Markup:
        inside = [tag("i", class_=css, style=f"width:{_share(value, top):.2f}%") for (css, _), value in zip(self.series, row.parts)]
        if math.isfinite(row.capacity):
            inside.append(tag("s", style=f"width:{_share(row.capacity, top):.2f}%"))
        if row.interval:
            low, high = (_share(value, top) for value in row.interval)
            inside.append(tag("b", class_="interval", style=f"left:{low:.2f}%;width:{max(0.0, high - low):.2f}%"))
        inside += [tag("b", class_=css, style=f"left:{_share(value, top):.2f}%") for css, value in row.marks if math.isfinite(value)]
        if self.line is not None:
            inside.append(tag("u", style=f"left:{_share(self.line, top):.2f}%"))
        cells = [tag("td", text, class_=_column_class(i)) for i, text in enumerate(row.numbers)]
        bar = tag("td", tag("div", inside, class_="track"), class_="bar", aria_hidden="true")
        return tag("tr", tag("th", row.label, scope="row"), bar, cells, class_="hot" if row.is_hot else None)

    def _overview(self, top: float) -> Markup:
        """All rows as columns, one path a series."""
        paths = []
        heights = [0.0] * len(self.rows)
        for s, (css, _) in enumerate(self.series):
            steps = []
            for i, row in enumerate(self.rows):
                part = _share(row.parts[s], top) if s < len(row.parts) else 0
                if part <= 0:
                    continue
                steps.append(f"M{i + 0.08:.2f} {100 - heights[i]:.2f}h.84v{-part:.2f}h-.84z")
                heights[i] += part
            paths.append(tag("path", d="".join(steps), class_=css))
        picture = tag("svg", paths, viewBox=f"0 0 {len(self.rows)} 100", preserveAspectRatio="none", role="img",
                      aria_label=f"All {len(self.rows)} rows in order")
        ends = [tag("span", f"{self.what} {self.rows[0].label}"), tag("span", f"0 to {number(top, 0 if top >= 100 else 2)} {self.unit}"),
                tag("span", f"{self.what} {self.rows[-1].label}")]
        return tag("figure", picture, tag("figcaption", ends), class_="overview")


def _column_class(index: int) -> str:
    return "number" if index == 0 else "number wide"


def _share(value: float, top: float) -> float:
    return min(100.0, max(0.0, 100 * (value / top))) if math.isfinite(value) else 0.0
