"""Predicted against measured, from `neuroshard validate --format json`."""

import math
from typing import Any, List, Mapping

from neuroshard.report.bars import BarChart, BarRow
from neuroshard.report.markup import Markup, printable, tag
from neuroshard.report.page import notes, section
from neuroshard.report.units import UNKNOWN, change, decimals_for, number

STAGES = (("total", "Total"), ("compute", "Compute"), ("forward_comm", "Forward communication"), ("backward_comm", "Backward communication"),
          ("input_dist", "Distribution of ids"))  # that one only where it was measured
_MAX_RANKS = 1024


def section_of(validation: Mapping[str, Any]) -> Markup:
    """A chart for each stage: the prediction as a bar, its interval, the measurement as a dot."""
    ranks = (validation["ranks"] or [])[:_MAX_RANKS]
    decimals = decimals_for([stage_of(r, "total").get(key) or 0 for r in ranks for key in ("measured_ms", "predicted_ms")])
    problems = [f"rank {r.get('rank')}: {r['problem']}" for r in ranks if r.get("problem")]
    charts = [[tag("h3", title), _chart(ranks, stage, decimals).render()] for stage, title in STAGES
              if stage != "input_dist" or any(stage_of(r, stage) for r in ranks)]
    has_interval = any(stage_of(r, stage).get("interval") for r in ranks for stage, _ in STAGES)
    keys = [tag("li", tag("i", class_="plain"), "predicted")]
    if has_interval:
        keys += [tag("li", tag("b", class_="interval"), "its interval"), tag("li", tag("b", class_="dot in"), "measured, inside"),
                 tag("li", tag("b", class_="dot"), "measured, outside")]
    else:
        keys.append(tag("li", tag("b", class_="dot in"), "measured"))
    return section("Predicted and measured", tag("p", _lead(validation, ranks)), notes(problems, is_bad=True),
                   notes([str(n) for n in validation["notes"] or []]),
                   tag("ul", keys, class_="legend"), charts)


def _lead(validation: Mapping[str, Any], ranks: List[Mapping[str, Any]]) -> str:
    with_ = validation["measured_with"] or {}
    text = f"Run on {printable(with_.get('device') or 'devices not stated', 80)} with {printable(with_.get('backend') or 'unstated', 80)} kernels"
    if with_.get("collective_backend"):
        text += f" and {printable(with_['collective_backend'], 80)} collectives"
    inside = [c["inside"] for r in ranks for c in (stage_of(r, s) for s, _ in STAGES) if c.get("inside") is not None]
    return text + (f". Inside the model's interval: {sum(inside)} of {len(inside)}." if inside else ".")


def stage_of(rank: Mapping[str, Any], stage: str) -> Mapping[str, Any]:
    return (rank.get("stages") or {}).get(stage) or {}


def _chart(ranks: List[Mapping[str, Any]], stage: str, decimals: int) -> BarChart:
    rows = []
    for rank in ranks:
        of = stage_of(rank, stage)
        predicted, got, interval = of.get("predicted_ms"), of.get("measured_ms"), of.get("interval") or {}
        error = change(predicted / got) if predicted is not None and got else UNKNOWN
        rows.append(BarRow(
            label=str(rank.get("rank")),
            parts=[predicted if predicted is not None else math.nan],
            numbers=[error, *(UNKNOWN if v is None else number(v, decimals) for v in (predicted, got))],
            interval=(interval["low_ms"], interval["high_ms"]) if interval.get("low_ms") is not None and interval.get("high_ms") is not None else None,
            marks=[("dot in" if of.get("inside") is not False else "dot", got)] if got is not None else (),
        ))
    return BarChart(what="rank", columns=["error", "predicted, ms", "measured, ms"], series=[("plain", "")], rows=rows)
