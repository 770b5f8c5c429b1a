"""Before and after: two plans side by side."""

import math
from typing import List, Optional, Tuple

from neuroshard.report.answer import Answer, Placement, by_type, fill, placements
from neuroshard.report.markup import Markup, printable, tag
from neuroshard.report.page import listing, notes, section
from neuroshard.report.units import UNKNOWN, change, decimals_for, number, number_ranges, percent, plural

_MAX_CHANGED = 1000
_MAX_NAME = 96
_MAX_STRATEGIES = 50


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


def strategies(answer: Answer) -> Optional[Markup]:
    """The plans of other strategies for the same request (`neuroshard plan --compare`), priced by the same model."""
    if not answer.compared or answer.cost is None:
        return None
    compared = answer.compared[:_MAX_STRATEGIES]
    decimals = decimals_for([answer.cost.embedding_cost_ms])
    with_mean = any(c.HasField("mean_of_max_ms") for c in compared)
    own = tag("tr", tag("th", f"{printable(answer.strategy, 40)} (this plan)", scope="row"),
              _cells(number(answer.cost.embedding_cost_ms, decimals),
                     [number(answer.cost.mean_of_max_ms, decimals) if answer.cost.HasField("mean_of_max_ms") else UNKNOWN] if with_mean else [],
                     "", number(answer.search_ms, 1), ""), class_="hot")
    rows = []
    for other in compared:
        planned = not other.failure
        notes_of = ["illegal"] * (planned and not other.legal) + ["constraints ignored"] * other.without_constraints + ["no plan"] * (not planned)
        rows.append(tag("tr", tag("th", printable(other.strategy, 40), scope="row"),
                        _cells(number(other.embedding_cost_ms, decimals) if planned else UNKNOWN,
                               [number(other.mean_of_max_ms, decimals) if other.HasField("mean_of_max_ms") else UNKNOWN] if with_mean else [],
                               change(other.cost_ratio) if other.HasField("cost_ratio") else UNKNOWN,
                               number(other.search_ms, 1) if planned else UNKNOWN, ", ".join(notes_of))))
    heads = ["cost, ms", *(["mean over batches, ms"] if with_mean else []), "against this plan", "search, ms"]
    head = tag("tr", tag("th", "strategy", scope="col"), [tag("th", text, scope="col", class_="number") for text in heads], tag("th", "", scope="col"))
    why = [f"{c.strategy}: no plan: {c.failure}" for c in compared if c.failure]
    why += [f"{c.strategy}: breaks {plural(len(c.violations), 'rule')}: " + "; ".join(f"{v.field}: {v.description}" for v in c.violations[:3])
            for c in compared if c.violations]
    return section("Other strategies", tag("p", "What their plans for the same request cost, by the same prices."),
                   listing(head, [own, *rows], "strategy", "labelled"), notes(why))


def _cells(cost: str, mean: List[str], ratio: str, search: str, remark: str) -> List[Markup]:
    labelled = [("cost, ms", cost), *(("mean, ms", text) for text in mean), ("against this plan", ratio), ("search, ms", search)]
    return [*(tag("td", text, class_="number", data_of=of) for of, text in labelled), tag("td", remark, data_of="")]


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
        tag("tr", tag("th", printable((new or prior).name, _MAX_NAME), scope="row"), tag("td", _place(prior), data_of="before"),
            tag("td", _place(new), data_of="after"))
        for prior, new in changed[:_MAX_CHANGED]
    ]
    head = tag("tr", [tag("th", text, scope="col") for text in ("table", "before", "after")])
    left = len(changed) - len(rows)
    lead = f"{plural(len(changed), 'table')} of {len(names | was.keys()):,} have another type or other ranks; new types first, then the largest."
    return section("What changed", tag("p", lead),
                   listing(head, rows, "table", "labelled"),
                   tag("p", f"{left:,} more tables changed.", class_="soft") if left else None)


def _differs(prior: Optional[Placement], new: Placement) -> bool:
    return prior is None or (prior.sharding_type, prior.num_shards, prior.ranks) != (new.sharding_type, new.num_shards, new.ranks)


def _place(table: Optional[Placement]) -> str:
    if table is None:
        return "not there"
    return f"{printable(table.sharding_type, 32)}, ranks {number_ranges(table.ranks)}"
