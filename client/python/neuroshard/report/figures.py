"""The same charts as PNG files, drawn by matplotlib (extra [report])."""

import io
import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from neuroshard.report.answer import MEMORY_KINDS, Answer, stage_ms, stages_of
from neuroshard.report.input_files import InputError
from neuroshard.report.markup import printable
from neuroshard.report.measured import STAGES, stage_of
from neuroshard.report.model_directory import ModelReport, as_number
from neuroshard.report.model_page import main_networks
from neuroshard.report.plan_page import KIND_STYLE, MAX_RANKS, STAGE_STYLE

_COLOURS = {"blue": "#0072b2", "sky": "#56b4e9", "orange": "#e69f00", "red": "#d55e00", "green": "#009e73", "grey": "#9a9da5",
            "m1": "#41246f", "m2": "#7a55b3", "m3": "#a98ad6", "m4": "#cdb8ea", "m5": "#e6dbf5", "free": "#d9dbe0"}
_GIB = 1 << 30


def of_plan(answer: Answer, before: Optional[Tuple[str, Answer]], validation: Optional[Mapping[str, Any]]) -> Dict[str, bytes]:
    """By file name: cost.png, memory.png, and measured.png with a validation; those that the answer has the figures for."""
    drawn = {}
    ranks = list(answer.ranks)[:MAX_RANKS]
    if ranks:
        drawn["cost.png"] = _png(len(ranks), lambda axes: _draw_cost(axes, answer, ranks, before))
    if any(r.memory.total_bytes for r in ranks):
        drawn["memory.png"] = _png(len(ranks), lambda axes: _draw_memory(axes, ranks))
    measured = ((validation or {}).get("ranks") or [])[:MAX_RANKS]
    if measured:
        drawn["measured.png"] = _png(len(measured) * len(STAGES), lambda axes: _draw_measured(axes, measured))
    return drawn


def of_model(model: ModelReport) -> Dict[str, bytes]:
    """error.png, and error_by_size.png, learning_curve.png and drift.png where the model has the figures."""
    rows = main_networks(model)
    drawn = {"error.png": _png(len(rows), lambda axes: _draw_errors(axes, model, rows))}
    if model.error_by_size:
        drawn["error_by_size.png"] = _png(14, lambda axes: _draw_curves(axes, model.error_by_size, "measured, ms (middle of a fifth of the samples)",
                                                                        lambda text: _middle(text), 3))
    if model.learning_curve:
        drawn["learning_curve.png"] = _png(14, lambda axes: _draw_curves(axes, model.learning_curve, "training samples", as_number, 2))
    if model.drift:
        drawn["drift.png"] = _png(len(model.drift), lambda axes: _draw_drift(axes, model.drift))
    return drawn


def _png(rows: int, draw) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--png", "needs matplotlib: pip install neuroshard[report]") from None
    figure = Figure(figsize=(9, min(40, 1.6 + 0.3 * min(rows, 24) + 0.12 * max(0, rows - 24))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    draw(axes)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def _rows(axes, labels: Sequence[str], what: str) -> None:
    axes.grid(axis="x", color="#d9dbe0")
    # At most 40 labels; text of files is no formula.
    step = max(1, math.ceil(len(labels) / 40))
    axes.set_yticks(range(0, len(labels), step), [_plain(label) for label in labels[::step]])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_ylabel(what)


def _plain(text: str) -> str:
    return printable(text, 60).replace("$", r"\$")


def _stack(axes, series: List[Tuple[str, str, List[float]]]) -> None:
    left = [0.0] * len(series[0][2]) if series else []
    for css, name, values in series:
        drawn = [_drawable(v) for v in values]
        axes.barh(range(len(drawn)), drawn, left=left, height=0.8, color=_COLOURS[css], label=name)
        left = [a + b for a, b in zip(left, drawn)]


def _drawable(value: Optional[float]) -> float:
    """0 for what has no place on an axis."""
    return value if value is not None and abs(value) < 1e200 else 0.0  # NaN is not


def _draw_interval(axes, row: int, low: float, high: float) -> None:
    axes.plot([_drawable(low), _drawable(high)], [row, row], color="black", marker="|", linewidth=1.2)


def _legend(axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False, fontsize=9)


def _draw_cost(axes, answer: Answer, ranks, before: Optional[Tuple[str, Answer]]) -> None:
    _stack(axes, [(STAGE_STYLE[s][0], STAGE_STYLE[s][1], [stage_ms(r, s) for r in ranks]) for s in stages_of(ranks)])
    for i, rank in enumerate(ranks):
        if rank.HasField("total_interval"):
            _draw_interval(axes, i, rank.total_interval.low_ms, rank.total_interval.high_ms)
    if before:
        others = {r.rank: r.total_ms for r in before[1].ranks}
        known = [(_drawable(others[r.rank]), i) for i, r in enumerate(ranks) if r.rank in others]
        axes.scatter([v for v, _ in known], [i for _, i in known], marker="|", s=220, linewidths=2.5, color="black", label="before")
    if answer.bound is not None:
        axes.axvline(_drawable(answer.bound.cost_ms), color="black", linestyle="--", label="lower bound" if answer.bound.kind == "certified" else "even spread")
    _rows(axes, [str(r.rank) for r in ranks], "rank")
    axes.set_xlabel("ms an iteration")
    _legend(axes)


def _draw_memory(axes, ranks) -> None:
    kinds = [k for k in MEMORY_KINDS if any(getattr(r.memory, f"{k}_bytes") for r in ranks)]
    _stack(axes, [(KIND_STYLE[k][0], KIND_STYLE[k][1], [getattr(r.memory, f"{k}_bytes") / _GIB for r in ranks]) for k in kinds])
    axes.scatter([r.memory.capacity_bytes / _GIB for r in ranks], range(len(ranks)), marker="|", s=220, linewidths=2.5, color="black", label="capacity")
    _rows(axes, [str(r.rank) for r in ranks], "rank")
    axes.set_xlabel("GiB")
    _legend(axes)


def _draw_measured(axes, ranks) -> None:
    rows = [(f"{rank.get('rank')} {stage}", stage_of(rank, stage)) for stage, _ in STAGES for rank in ranks]
    axes.barh(range(len(rows)), [_drawable(of.get("predicted_ms")) for _, of in rows], height=0.8, color=_COLOURS["grey"], label="predicted")
    for i, (_, of) in enumerate(rows):
        interval = of.get("interval") or {}
        if interval.get("low_ms") is not None and interval.get("high_ms") is not None:
            _draw_interval(axes, i, interval["low_ms"], interval["high_ms"])
    got = [(_drawable(of["measured_ms"]), i) for i, (_, of) in enumerate(rows) if of.get("measured_ms") is not None]
    axes.scatter([v for v, _ in got], [i for _, i in got], color="black", zorder=3, label="measured")
    _rows(axes, [label for label, _ in rows], "rank and stage")
    axes.set_xlabel("ms")
    _legend(axes)


def _draw_errors(axes, model: ModelReport, rows: List[List[str]]) -> None:
    _stack(axes, [("blue", "error", [as_number(row[4]) for row in rows])])
    _rows(axes, [row[0] for row in rows], "")
    axes.set_xlabel("MAPE on held-out samples, %")
    axes.set_title(_plain(f"{model.name} version {model.version}"), loc="left")


def _draw_curves(axes, rows: List[List[str]], what: str, x_of, percents: int) -> None:
    from cycler import cycler  # comes with matplotlib

    names = list(dict.fromkeys(row[0] for row in rows))[:12]
    axes.set_prop_cycle(cycler(marker=["o", "s"]) * cycler(color=list(_COLOURS.values())))
    for name in names:
        points = [(x_of(row[1]), as_number(row[percents])) for row in rows if row[0] == name]
        axes.plot([x for x, _ in points], [y for _, y in points], label=_plain(name))
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.grid(color="#d9dbe0")
    axes.set_xlabel(what)
    axes.set_ylabel("MAPE on held-out samples, %")
    axes.legend(frameon=False, fontsize=9)


def _middle(text: str) -> float:
    """Of "0.1 to 0.4", on a logarithmic axis."""
    ends = [as_number(end) for end in text.split(" to ")]
    return math.sqrt(ends[0] * ends[1]) if len(ends) == 2 and min(ends) > 0 else math.nan


def _draw_drift(axes, drift: Dict[str, Dict[str, Any]]) -> None:
    for i, of in enumerate(drift.values()):
        _draw_interval(axes, i, of["p10"], of["p90"])
        axes.scatter([_drawable(of["median_ratio"])], [i], color=_COLOURS["red"], zorder=3)
    axes.axvline(1, color="black", linestyle="--")
    _rows(axes, list(drift), "")
    axes.set_xlabel("measured / predicted: median, 10th to 90th percentile")
