"""The report of a cost model: how far off it is on what it has not seen, by network, size, training samples and time."""

import itertools
import math
from typing import Dict, List, Optional, Sequence, Tuple

from neuroshard.report.bars import BarChart, BarRow
from neuroshard.report.markup import Markup, printable, tag
from neuroshard.report.model_directory import ModelReport, as_number
from neuroshard.report.page import details, facts, notes, page, section
from neuroshard.report.units import UNKNOWN, count, number

MAX_NETWORKS = 64
MAX_POINTS = 1500
_MAPE, _TAU, _COVERED = 4, 6, 7  # columns of the table of networks


def model_page(model: ModelReport) -> str:
    title = f"Cost model {printable(model.name, 80)} version {printable(model.version, 20)}"
    body = [
        tag("h1", title),
        tag("p", _sentence(model), class_="answer"),
        tag("p", _particulars(model)),
        notes([f"Not usable: {model.unusable_reason}"] if model.unusable_reason else [], is_bad=True),
        _networks_section(model),
        _by_size_section(model) if model.error_by_size else None,
        _held_out_section(model) if model.held_out else None,
        _learning_section(model) if model.learning_curve else None,
        _drift_section(model),
        section("How it was made", facts([row for row in model.provenance[:100] if len(row) == 2])),
    ]
    return page(title, [part for part in body if part])


def _network(model: ModelReport, name: str) -> Optional[List[str]]:
    return next((row for row in model.networks if row[0] == name), None)


def _sentence(model: ModelReport) -> str:
    row = _network(model, "compute")
    if row is not None and math.isfinite(as_number(row[_MAPE])):
        return f"Predictions of compute are off by {number(as_number(row[_MAPE]), 1)} % on average, on samples that training did not see."
    errors = [as_number(row[_MAPE]) for row in main_networks(model) if math.isfinite(as_number(row[_MAPE]))]
    if not errors:
        return "Nothing was held out to say how far off the predictions are."
    spread = f"{number(min(errors), 1)} to {number(max(errors), 1)}" if len(errors) > 1 else number(errors[0], 1)
    return f"Predictions of communication are off by {spread} % on average; compute was not trained in this version."


def _particulars(model: ModelReport) -> str:
    parts = []
    unseen = _network(model, "compute, unseen tables")
    if unseen is not None:
        parts.append(f"On tables that training did not see: {number(as_number(unseen[_MAPE]), 1)} %.")
    row = _network(model, "compute")
    if row is not None:
        parts.append(f"Order of two samples: Kendall tau {printable(row[_TAU], 10)} (1 is always right).")
    of = model.hardware
    kernels = [f"{of['backend']} kernels"] if of.get("backend") else []
    kernels += [f"{of['collective_backend']} collectives"] if of.get("collective_backend") else []
    if kernels:
        parts.append(f"Measured with {printable(' and '.join(kernels), 160)} on {printable(of.get('device', 'devices not stated'), 80)}.")
    return " ".join(parts)


def main_networks(model: ModelReport) -> List[List[str]]:
    """Rows that are not a part of another row: no rank counts, no "before"."""
    names = {row[0] for row in model.networks}
    return [row for row in model.networks if not any(row[0].startswith((f"{name} x", f"{name}, before", f"{name}, re", f"{name}, new")) for name in names)]


def _networks_section(model: ModelReport) -> Markup:
    has_coverage = all(len(row) > _COVERED for row in model.networks)
    chart = BarChart(
        what="network", unit="%", columns=["error, %", "Kendall tau", "held out"] + (["in interval, %"] if has_coverage else []),
        series=[("blue", "")],
        rows=[
            BarRow(printable(row[0], 40), [as_number(row[_MAPE])],
                   [printable(row[i], 12) for i in (_MAPE, _TAU, 2, *([_COVERED] if has_coverage else []))])
            for row in main_networks(model)[:MAX_NETWORKS]
        ],
    )
    heads = ["network", "train", "held out", "MSE, ms²", "error, %", "R²", "Kendall tau", "in interval, %"][: len(model.networks[0]) if model.networks else 8]
    rows = [tag("tr", tag("th", printable(row[0], 60), scope="row"),
                [tag("td", printable(cell, 16), class_="number", data_of=head) for head, cell in itertools.zip_longest(heads[1:], row[1:], fillvalue="")])
            for row in model.networks[:400]]
    table = tag("table", tag("thead", tag("tr", [tag("th", h, scope="col", class_="number" if i else None) for i, h in enumerate(heads)])),
                tag("tbody", rows), class_="grid labelled")
    lead = "Mean of |predicted − measured| / measured (MAPE) on held-out samples."
    return section("Error", tag("p", lead), chart.render(),
                   details("Every network and rank count in numbers", tag("div", table, class_="sideways", tabindex="0"), printed=False))


def _grouped(rows: Sequence[List[str]]) -> Dict[str, List[List[str]]]:
    groups: Dict[str, List[List[str]]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return dict(list(groups.items())[:MAX_NETWORKS])


def _small_charts(groups: Dict[str, List[List[str]]], what: str, label, percents: int) -> Markup:
    """A small bar chart of errors for each network, all on one scale."""
    top = max((as_number(row[percents]) for rows in groups.values() for row in rows if math.isfinite(as_number(row[percents]))), default=1)
    # One class that is far off would make all others unreadable: each network has its own scale then.
    typical = sorted(as_number(row[percents]) for rows in groups.values() for row in rows if math.isfinite(as_number(row[percents])))
    shared = top if typical and top <= 4 * typical[len(typical) // 2] else 0
    charts = []
    for name, rows in groups.items():
        chart = BarChart(what=what, unit="%", columns=["error, %"], series=[("blue", "")], top=shared,
                         rows=[BarRow(label(row), [as_number(row[percents])], [printable(row[percents], 10)]) for row in rows[:20]])
        charts.append(tag("figure", tag("h3", printable(name, 60)), chart.render()))
    return tag("div", charts, class_="plots")


def _by_size_section(model: ModelReport) -> Markup:
    lead = "A fifth of the held-out samples each, by what was measured."
    return section("Error by size", tag("p", lead),
                   _small_charts(_grouped(model.error_by_size), "measured, ms", lambda row: printable(row[1].replace(" to ", "–"), 24), 3))


def _learning_section(model: ModelReport) -> Markup:
    lead = ("Networks that learned from a part of the samples, with the same options, on the same held-out samples. "
            "Where the last step still gains much, more samples would help.")
    return section("Learning curve", tag("p", lead),
                   _small_charts(_grouped(model.learning_curve), "samples", lambda row: count(as_number(row[1])), 2))


def _held_out_section(model: ModelReport) -> Markup:
    plots = [_scatter(printable(name, 60), points) for name, points in list(model.held_out.items())[:MAX_NETWORKS]]
    return section("Predicted against measured", tag("p", "Held-out samples, both axes logarithmic; on the line the prediction is right."),
                   tag("div", plots, class_="plots"))


def _scatter(name: str, points: List[Tuple[float, float]]) -> Markup:
    shown = [(m, p) for m, p in points if m > 0 and p > 0]
    left_out = len(points) - len(shown)
    stride = max(1, math.ceil(len(shown) / MAX_POINTS))
    shown = shown[::stride]
    if not shown:
        return tag("figure", tag("h3", name), tag("p", "no values above 0", class_="soft"))
    low = math.floor(math.log10(min(min(pair) for pair in shown)))
    high = max(low + 1, math.ceil(math.log10(max(max(pair) for pair in shown))))
    side, left, top = 220, 40, 8

    def at(value: float) -> float:
        return side * (math.log10(value) - low) / (high - low)

    parts = []
    for power in range(low, high + 1):
        where = side * (power - low) / (high - low)
        text = f"{10.0 ** power:g}"
        parts += [
            tag("path", d=f"M{left} {top + side - where:.1f}h{side}M{left + where:.1f} {top}v{side}", class_="rule"),
            tag("text", text, x=left - 4, y=f"{top + side - where + 3:.1f}", text_anchor="end"),
            tag("text", text, x=f"{left + where:.1f}", y=top + side + 13, text_anchor="middle"),
        ]
    parts.append(tag("path", d=f"M{left} {top + side}L{left + side} {top}", class_="diagonal"))
    dots = "".join(f"M{left + at(m):.1f} {top + side - at(p):.1f}h0" for m, p in shown)
    parts.append(tag("path", d=dots, class_="cloud"))
    parts += [tag("text", "measured, ms", x=left + side, y=top + side + 26, text_anchor="end"), tag("text", "predicted, ms", x=left + 4, y=top + 10)]
    said = f"{count(len(points))} values"
    if stride > 1:
        said += f", every {stride}th drawn"
    if left_out:
        said += f"; {count(left_out)} not above 0 left out"
    return tag("figure", tag("h3", name),
               tag("svg", parts, viewBox=f"0 0 {left + side + 14} {top + side + 30}", role="img", aria_label=f"{name}: predicted against measured"),
               tag("figcaption", said))


def _drift_section(model: ModelReport) -> Markup:
    if not model.drift:
        return section("Drift", tag("p", "Not compared with later measurements yet (neuroshard-pretrain drift)."))
    rows = [
        BarRow(printable(stage, 40), (), [f"{number(of['median_ratio'], 3)}", count(of["samples"]), f"{printable(of['until'], 24)}"],
               interval=(of["p10"], of["p90"]), marks=[("dot", of["median_ratio"])])
        for stage, of in list(model.drift.items())[:MAX_NETWORKS]
    ]
    chart = BarChart(what="stage", unit="", columns=["median", "samples", "until"], series=(), rows=rows, line=1.0,
                     legend=[tag("li", tag("b", class_="dot"), "median"), tag("li", tag("b", class_="interval"), "10th to 90th percentile"),
                             tag("li", tag("u"), "as predicted")])
    return section("Drift", tag("p", "Measured / predicted, of measurements made after the model was trained."), chart.render())
