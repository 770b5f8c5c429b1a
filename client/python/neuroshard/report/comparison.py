"""Before and after: two plans side by side."""

import math
from typing import List, Optional, Tuple

from neuroshard.report.answer import Answer, Placement, by_type, fill, placements
from neuroshard.report.bars import MANY_ROWS
from neuroshard.report.markup import Markup, printable, tag
from neuroshard.report.page import section
from neuroshard.report.units import UNKNOWN, change, decimals_for, number, number_ranges, percent, plural

_MAX_CHANGED = 1000
_MAX_NAME = 96


def summary(after: Answer, before: Tuple[str, Answer]) -> Markup:
    """The figures of both plans in one table."""
    name, old = before
    decimals = decimals_for([a.cost.embedding_cost_ms for a in (old, after) if a.cost is not None])

    def row(what: str, values: List[Optional[float]], shown, as_change: bool = True) -> Markup:
        known = all(v is not None and math.isfinite(v) for v in values)
        ratio = change(values[1] / values[0]) if known and as_change and values[0] > 0 else ""
        cells = [shown(v) if v is not None and math.isfinite(v) else UNKNOWN for v in values]
        return tag("tr", tag("th", what, scope="row"), [tag("td", text, class_="number") for text in (*cells, ratio)])

    both = (old, after)
    rows = [
        row("cost, ms", [a.cost.embedding_cost_ms if a.cost is not None else None for a in both], lambda v: number(v, decimals)),
        row("mean rank, ms", [_mean([r.total_ms for r in a.ranks]) for a in both], lambda v: number(v, decimals)),
        row("cheapest rank, ms", [min((r.total_ms for r in a.ranks), default=None) for a in both], lambda v: number(v, decimals)),
        row("fullest device", [max((fill(r) for r in a.ranks), default=None) for a in both], percent, as_change=False),
        row("ranks", [len(a.ranks) or None for a in both], lambda v: f"{v:,.0f}", as_change=False),
    ]
    if old.plan is not None and after.plan is not None:
        types = [by_type(placements(a.plan)) for a in both]
        rows.append(row("shards", [sum(len(t.shards) for t in a.plan.tables) for a in both], lambda v: f"{v:,.0f}", as_change=False))
        for kind in list(dict.fromkeys([*types[0], *types[1]]))[:12]:
            amounts = [len(t.get(kind, ())) for t in types]
            if amounts[0] != amounts[1]:
                rows.append(row(f"tables {printable(kind, 32)}", amounts, lambda v: f"{v:,.0f}", as_change=False))
    head = tag("tr", [tag("th", text, scope="col", class_="number" if text else None) for text in ("", "before", "after", "change")])
    return section("Before and after", tag("p", f"Before: {printable(name, 200)}"),
                   tag("table", tag("thead", head), tag("tbody", rows), class_="grid"))


def _mean(values: List[float]) -> Optional[float]:
    return sum(values) / len(values) if values else None


def changed_tables(after: Answer, before: Tuple[str, Answer]) -> Optional[Markup]:
    """Tables that have another type or other ranks; None where a file has no plan."""
    old = before[1]
    if old.plan is None or after.plan is None:
        return None
    was = {(t.module, t.name): t for t in placements(old.plan)}
    now = placements(after.plan)
    names = {(t.module, t.name) for t in now}
    changed = [(was.get((t.module, t.name)), t) for t in now if _differs(was.get((t.module, t.name)), t)]
    changed += [(t, None) for key, t in was.items() if key not in names]
    changed.sort(key=lambda pair: (None not in pair and pair[0].sharding_type == pair[1].sharding_type, -max(t.values for t in pair if t)))
    if not changed:
        return section("What changed", tag("p", "Every table has the same type on the same ranks."))
    rows = [
        tag("tr", tag("th", printable((new or prior).name, _MAX_NAME), scope="row"), tag("td", _place(prior)), tag("td", _place(new)))
        for prior, new in changed[:_MAX_CHANGED]
    ]
    head = tag("tr", [tag("th", text, scope="col") for text in ("table", "before", "after")])
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="grid")
    left = len(changed) - len(rows)
    lead = f"{plural(len(changed), 'table')} of {len(names | was.keys()):,} have another type or other ranks; new types first, then the largest."
    return section("What changed", tag("p", lead),
                   tag("div", table, class_="scroll", tabindex="0") if len(rows) > MANY_ROWS else table,
                   tag("p", f"{left:,} more tables changed.", class_="soft") if left else None)


def _differs(prior: Optional[Placement], new: Placement) -> bool:
    return prior is None or (prior.sharding_type, prior.num_shards, prior.ranks) != (new.sharding_type, new.num_shards, new.ranks)


def _place(table: Optional[Placement]) -> str:
    if table is None:
        return "not there"
    return f"{printable(table.sharding_type, 32)}, ranks {number_ranges(table.ranks)}"
