"""The report of a plan: what it costs and needs, rank by rank, where each table went and why.

The file has a bounded size: at most MAX_RANKS ranks and MAX_TABLES tables are listed one by one, the costliest and the largest,
the others are counted; names are cut at MAX_NAME characters. That is 12 MB at most, and 1 MB for 2,000 tables on 128 ranks.
"""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from neuroshard.report import comparison, measured
from neuroshard.report.answer import MEMORY_KINDS, Answer, Placement, by_type, costliest, fill, input_dist_is_exposed, placements, stage_ms, stages_of
from neuroshard.report.bars import MANY_ROWS, BarChart, BarRow
from neuroshard.report.markup import Markup, printable, tag
from neuroshard.report.page import details, facts, listing, notes, page, section
from neuroshard.report.units import UNKNOWN, change, count, decimals_for, number, number_ranges, percent, plural, size, whole_percent
from neuroshard.v1 import cost_pb2, report_pb2

MAX_RANKS = 1024
MAX_TABLES = 4000
MAX_NAME = 96
_MAX_RUNS = 40
_MAX_HOSTS = 32
_MAX_NAMED = 5

STAGE_STYLE = {
    "input_dist": ("green", "distribution of ids"), "compute": ("blue", "compute"), "forward_compute": ("sky", "forward compute"), "backward_compute": ("blue", "backward compute"),
    "forward_comm": ("orange", "forward communication"), "backward_comm": ("red", "backward communication"),
}
KIND_STYLE = {
    "weights": ("m1", "weights"), "optimizer": ("m2", "optimizer state"), "cache_state": ("m3", "cache state"), "input": ("m4", "ids"),
    "output": ("m5", "pooled vectors"), "reserve": ("free", "kept free"),
}
_TYPES = ("table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard", "data_parallel", "row_wise_subset")


def plan_page(answer: Answer, name: str, before: Optional[Tuple[str, Answer]] = None,
              validation: Optional[Mapping[str, Any]] = None) -> str:
    """`name`: of the plan's file, for the title; `before`: another plan to compare with, and its name."""
    body = [
        tag("h1", _subject(answer)),
        tag("p", printable(f"{answer.basis[:1].upper()}{answer.basis[1:]}.", 600)) if answer.basis else None,
        tag("p", _sentence(answer, before), class_="answer"),
        _particulars(answer, validation),
        _asked(answer),
        notes([f"{v.field}: {v.description}" for v in answer.violations], is_bad=True),
        notes(list(answer.warnings)),
        comparison.strategies(answer),
        comparison.summary(answer, before) if before else None,
        _cost_section(answer, before[1] if before else None) if answer.ranks else None,
        measured.section_of(validation) if validation else None,
        _memory_section(answer) if any(r.memory.total_bytes for r in answer.ranks) else None,
        _tables_section(answer) if answer.plan is not None else None,
        _why_section(answer) if answer.explanations else None,
        comparison.changed_tables(answer, before) if before else None,
        _migration_section(answer) if answer.migration is not None else None,
        section("How it was made", facts([("file", name), *answer.facts])),
    ]
    return page(f"{_subject(answer)} – {name}", [part for part in body if part])


def _subject(answer: Answer) -> str:
    tables = f"{plural(len(answer.plan.tables), 'embedding table')} on " if answer.plan is not None else ""
    return f"Sharding plan of {tables}{plural(answer.num_ranks, 'rank')}"


def _sentence(answer: Answer, before: Optional[Tuple[str, Answer]]) -> str:
    if answer.cost is None:
        if answer.violations:
            return f"The plan breaks {plural(len(answer.violations), 'rule')} and cannot be priced."
        return "A plan without costs; neuroshard evaluate prices it."
    cost = answer.cost.embedding_cost_ms
    text = f"{'By formulas, the' if answer.is_formula else 'The'} embeddings of one iteration take {ms(cost, answer)}"
    if before and before[1].cost is not None and before[1].cost.embedding_cost_ms > 0:
        ratio = cost / before[1].cost.embedding_cost_ms
        text += f", {percent(abs(ratio - 1))} {'less' if ratio < 1 else 'more'} than before" if ratio != 1 else ", as before"
    if answer.violations:
        text += f"; but the plan breaks {plural(len(answer.violations), 'rule')}"
    return text + "."


def _particulars(answer: Answer, validation: Optional[Mapping[str, Any]]) -> Optional[Markup]:
    """What else is to be known of the cost, in a line."""
    parts = []
    if answer.cost is not None and answer.cost.HasField("interval"):
        interval = answer.cost.interval
        parts.append(f"{percent(answer.cost.interval_coverage, 0)} of measurements within {ms(interval.low_ms, answer)} to {ms(interval.high_ms, answer)}.")
    measured_ms = ((validation or {}).get("embedding_cost") or {}).get("measured_ms")
    if measured_ms and answer.cost is not None:
        parts.append(f"Measured {ms(measured_ms, answer)}: the prediction is off by {change(answer.cost.embedding_cost_ms / measured_ms)}.")
    if answer.bound is not None and answer.bound.HasField("gap_percent"):
        gap = answer.bound.gap_percent
        by = "by the same formulas" if answer.is_formula else "at the same prices"
        what = f"the least that any plan can cost {by}" if answer.bound.kind == "certified" else f"a perfectly even spread {by}"
        if abs(gap) < 0.1:
            parts.append(f"Within 0.1 % of {what}.")
        else:
            parts.append(f"{number(abs(gap), 1)} % {'above' if gap >= 0 else 'below'} {what}.")
    if answer.cost is not None and answer.cost.HasField("mean_of_max_ms"):
        parts.append(f"On average over the sampled batches {ms(answer.cost.mean_of_max_ms, answer)}.")
    slowest_ms = max((r.input_dist_ms for r in answer.ranks), default=0)
    if slowest_ms > 0 and not input_dist_is_exposed(answer.ranks):
        parts.append(f"The distribution of ids takes {ms(slowest_ms, answer)} at most, beside the batch before, and is not counted.")
    fullest = max(answer.ranks, key=lambda r: fill(r) if math.isfinite(fill(r)) else -1, default=None)
    if fullest is not None and math.isfinite(fill(fullest)):
        parts.append(f"The fullest device is {whole_percent(fill(fullest))} full.")
    return tag("p", " ".join(parts)) if parts else None


def _asked(answer: Answer) -> Optional[Markup]:
    """What was asked for and by whom it was priced, in a line."""
    parts = []
    if answer.batch > 0 and answer.num_ranks > 0:
        of_rank = answer.batch / answer.num_ranks
        parts.append(f"The batch is {answer.batch:,} in all, {number(of_rank, 0 if of_rank == int(of_rank) else 1)} a rank.")
    if answer.model:
        parts.append(f"Priced by cost model {printable(answer.model, 120)}.")
    hosted = [table for table in (placements(answer.plan) if answer.plan is not None else []) if table.host_kernel]
    if hosted:
        named = ", ".join(printable(table.name, MAX_NAME) for table in hosted[:_MAX_NAMED])
        parts.append(f"{plural(len(hosted), 'table')} in host memory or on SSD: {named}{', …' if len(hosted) > _MAX_NAMED else ''}.")
    return tag("p", " ".join(parts)) if parts else None


def ms(value: float, answer: Answer) -> str:
    """With as many decimals as the answer's costs have everywhere."""
    return f"{number(value, decimals_for([answer.cost.embedding_cost_ms]))} ms"


def _cost_section(answer: Answer, before: Optional[Answer]) -> Markup:
    ranks, stages = answer.ranks, stages_of(answer.ranks)
    shown = _listed(ranks, lambda r: r.total_ms)
    decimals = decimals_for([r.total_ms for r in ranks])
    hot = costliest(ranks)
    mean = sum(r.total_ms for r in ranks) / len(ranks)
    whole = sum(stage_ms(r, s) for r in ranks for s in stages) or math.nan
    intervals = any(r.HasField("total_interval") for r in ranks)
    others = {r.rank: r.total_ms for r in before.ranks} if before else {}

    chart = BarChart(
        what="rank",
        columns=["total, ms", f"{percent(answer.cost.interval_coverage, 0)} within"] if intervals else ["total, ms"],
        series=[(STAGE_STYLE[s][0], f"{STAGE_STYLE[s][1]}, {whole_percent(sum(stage_ms(r, s) for r in ranks) / whole)}") for s in stages],
        line=answer.bound.cost_ms if answer.bound is not None else None,
        rows=[
            BarRow(
                label=str(r.rank),
                parts=[stage_ms(r, s) for s in stages],
                numbers=[number(r.total_ms, decimals)] + ([_interval(r, "total", decimals)] if intervals else []),
                interval=(r.total_interval.low_ms, r.total_interval.high_ms) if r.HasField("total_interval") else None,
                marks=[("tick", others[r.rank])] if r.rank in others else (),
                is_hot=r.rank == hot.rank,
            )
            for r in shown
        ],
        legend=[
            *([tag("li", tag("b", class_="interval"), f"holds {percent(answer.cost.interval_coverage, 0)} of measurements")] if intervals else []),
            *([tag("li", tag("b", class_="tick"), "before")] if others else []),
            *([tag("li", tag("u"), "lower bound" if answer.bound.kind == "certified" else "even spread")] if answer.bound is not None else []),
        ],
    )
    of_hot = percent(mean / hot.total_ms if hot.total_ms > 0 else math.nan)
    lead = f"Rank {hot.rank} is the costliest and decides; the mean rank takes {of_hot} of its time. Percentages below are of all ranks together."
    return section("Cost of each rank", tag("p", lead, " ", _bound_text(answer)), chart.render(), _left_out(ranks, shown),
                   _stage_numbers(answer, shown, stages, decimals))


def _bound_text(answer: Answer) -> str:
    if answer.bound is None:
        return "The cost model allows no lower bound."
    kind = "Lower bound" if answer.bound.kind == "certified" else "Even spread"
    text = f"{kind}: {ms(answer.bound.cost_ms, answer)} ({printable(answer.bound.kind, 40)}: {printable(answer.bound.scope, 300)})."
    return f"{text} {_limit_text(answer.bound.limit, answer)}" if answer.bound.HasField("limit") else text


def _limit_text(limit: report_pb2.CostLimit, answer: Answer) -> str:
    """What keeps the bound as high as it is, and what it would be without."""
    text = "What holds it: all tables together"
    if limit.table:
        text = f"What holds it: a shard of {printable(limit.table, MAX_NAME)} costs {ms(limit.shard_ms, answer)} at least"
        if limit.every_rank_tables > 0:
            text += f", beside {ms(limit.every_rank_ms, answer)} that every rank has of {plural(limit.every_rank_tables, 'other table')}"
        if limit.HasField("rank"):
            text += f"; it is on rank {limit.rank}"
    if not limit.rules:
        return f"{text}. It cannot be cut further."
    rules = " and ".join(f"{printable(rule.path, MAX_NAME)} ({printable(rule.text, 120)})" for rule in limit.rules[:_MAX_NAMED])
    rest = f" and {len(limit.rules) - _MAX_NAMED} more" if len(limit.rules) > _MAX_NAMED else ""
    text += f". Without {rules}{rest} the bound is {ms(limit.bound_without_ms, answer)}"
    return text + (f", and a plan costs {ms(limit.cost_without_ms, answer)}." if limit.HasField("cost_without_ms") else ".")


def _interval(rank: cost_pb2.RankCost, stage: str, decimals: int) -> str:
    field = f"{stage}_interval"
    if not rank.HasField(field):
        return UNKNOWN
    interval = getattr(rank, field)
    return f"{number(interval.low_ms, decimals)} to {number(interval.high_ms, decimals)}"


def _stage_numbers(answer: Answer, ranks: Sequence[cost_pb2.RankCost], stages: Sequence[str], decimals: int) -> Markup:
    """Every stage with its interval, the offset and the columns; the distribution of ids too where it is not part of the total."""
    if "input_dist" not in stages and any(r.HasField("input_dist_ms") for r in ranks):
        stages = ("input_dist", *stages)
    with_interval = {s: any(r.HasField(f"{s}_interval") for r in ranks) for s in stages}
    heads = [tag("th", "rank", scope="col")]
    for stage in stages:
        heads.append(tag("th", tag("i", class_=f"swatch {STAGE_STYLE[stage][0]}"), f"{stage}, ms", scope="col", class_="number"))
        if with_interval[stage]:
            heads.append(tag("th", f"{percent(answer.cost.interval_coverage, 0)} within", scope="col", class_="number roomy"))
    heads += [tag("th", name, scope="col", class_="number") for name in ("start offset, ms", "columns")]
    rows = []
    for rank in ranks:
        cells = [tag("th", rank.rank, scope="row")]
        for stage in stages:
            cells.append(tag("td", number(stage_ms(rank, stage), decimals), class_="number", data_of=stage))
            if with_interval[stage]:
                cells.append(tag("td", _interval(rank, stage, decimals), class_="number soft roomy", data_of="within"))
        cells += [tag("td", number(rank.start_offset_ms, decimals), class_="number", data_of="start offset"),
                  tag("td", count(rank.dim_sum), class_="number", data_of="columns")]
        rows.append(tag("tr", cells))
    return _numbers("Every stage in numbers", heads, rows)


def _numbers(summary: str, heads: Sequence[Markup], rows: Sequence[Markup]) -> Markup:
    """Open in print where it is short."""
    table = tag("table", tag("thead", tag("tr", list(heads))), tag("tbody", list(rows)), class_="grid labelled")
    return details(summary, tag("div", table, class_="sideways", tabindex="0"), printed=len(rows) <= MANY_ROWS)


def _memory_section(answer: Answer) -> Markup:
    ranks = answer.ranks
    shown = _listed(ranks, lambda r: r.memory.total_bytes)
    kinds = [k for k in MEMORY_KINDS if any(getattr(r.memory, f"{k}_bytes") for r in ranks)]
    whole = sum(r.memory.total_bytes for r in ranks) or math.nan
    unit, divisor = next(((u, d) for u, d in (("GiB", 1 << 30), ("MiB", 1 << 20)) if max(r.memory.total_bytes for r in ranks) >= d),
                         ("KiB", 1 << 10))
    fullest = max(ranks, key=lambda r: fill(r) if math.isfinite(fill(r)) else r.memory.total_bytes)
    # Devices that are nearly empty are shown in full instead of against their capacity.
    against_capacity = math.isfinite(fill(fullest)) and fill(fullest) >= 0.05
    chart = BarChart(
        what="rank",
        unit=unit,
        columns=["used", "in all"],
        series=[(KIND_STYLE[k][0], f"{KIND_STYLE[k][1]}, {whole_percent(sum(getattr(r.memory, f'{k}_bytes') for r in ranks) / whole)}") for k in kinds],
        rows=[
            BarRow(
                label=str(r.rank),
                parts=[getattr(r.memory, f"{k}_bytes") / divisor for k in kinds],
                numbers=[percent(fill(r)), size(r.memory.total_bytes)],
                capacity=r.memory.capacity_bytes / divisor if against_capacity else math.nan,
                is_hot=r.rank == fullest.rank,
            )
            for r in shown
        ],
        legend=[tag("li", tag("b", class_="tick"), "capacity")] if against_capacity else [],
    )
    lead = f"Rank {fullest.rank} is the fullest with {size(fullest.memory.total_bytes)}"
    if fullest.memory.capacity_bytes > 0:
        lead += f" of {size(fullest.memory.capacity_bytes)}, {percent(fill(fullest))}"
    return section("Memory of each rank", tag("p", lead + f". All ranks together use {size(whole)}."), chart.render(), _left_out(ranks, shown),
                   _kind_numbers(shown, kinds), _on_hosts("in host memory", answer.cost.host_memory), _on_hosts("on SSD", answer.cost.ssd))


def _on_hosts(where: str, hosts: Sequence[cost_pb2.HostMemoryUse]) -> Optional[Markup]:
    if not hosts:
        return None
    of_hosts = [f"host {h.host} {size(h.total_bytes)} of {size(h.capacity_bytes)}" for h in hosts[:_MAX_HOSTS]]
    left = len(hosts) - len(of_hosts)
    return tag("p", f"Tables {where}: {', '.join(of_hosts)}{f' and {left:,} more' if left else ''}.")


def _kind_numbers(ranks: Sequence[cost_pb2.RankCost], kinds: Sequence[str]) -> Markup:
    heads = [tag("th", "rank", scope="col"),
             *(tag("th", tag("i", class_=f"swatch {KIND_STYLE[k][0]}"), KIND_STYLE[k][1], scope="col", class_="number") for k in kinds),
             *(tag("th", name, scope="col", class_="number") for name in ("in all", "capacity"))]
    rows = [
        tag("tr", tag("th", r.rank, scope="row"),
            [tag("td", size(value), class_="number", data_of=of)
             for of, value in (*((KIND_STYLE[k][1], getattr(r.memory, f"{k}_bytes")) for k in kinds), ("in all", r.memory.total_bytes),
                               ("capacity", r.memory.capacity_bytes))])
        for r in ranks
    ]
    return _numbers("Every kind in numbers", heads, rows)


def _listed(ranks: Sequence[cost_pb2.RankCost], key) -> List[cost_pb2.RankCost]:
    """In the plan's order; the greatest where there are too many."""
    if len(ranks) <= MAX_RANKS:
        return list(ranks)
    kept = sorted(range(len(ranks)), key=lambda i: -key(ranks[i]))[:MAX_RANKS]
    return [ranks[i] for i in sorted(kept)]


def _left_out(ranks: Sequence[Any], shown: Sequence[Any]) -> Optional[Markup]:
    left = len(ranks) - len(shown)
    return tag("p", f"The {len(shown):,} greatest; {left:,} more ranks are not listed.", class_="soft") if left else None


def _tables_section(answer: Answer) -> Markup:
    tables = placements(answer.plan)
    types = by_type(tables)
    all_values = sum(t.values for t in tables) or 1
    world = max(answer.plan.world_size, 1)
    chart = BarChart(
        what="type",
        unit="%",
        columns=["tables", "shards"],
        series=[("plain", "")],
        rows=[
            BarRow(printable(kind, 32), [100 * sum(t.values for t in of) / all_values], [f"{len(of):,}", f"{sum(t.num_shards for t in of):,}"])
            for kind, of in list(types.items())[:12]
        ],
    )
    shown = sorted(range(len(tables)), key=lambda i: -tables[i].values)[:MAX_TABLES]
    alternatives = _cheapest_alternatives(answer)
    kernels = any(t.host_kernel for t in tables)
    heads = ["table", "type", *(["kernel"] if kernels else []), "rows × columns", "share", "shards", "ranks"] + (["cheapest other type"] if alternatives else [])
    right = {"rows × columns", "share", "shards"}
    rows = []
    for i in shown:
        table = tables[i]
        cells = [
            tag("th", printable(table.name, MAX_NAME), tag("span", printable(table.module, MAX_NAME), class_="module") if table.module else None, scope="row"),
            tag("td", printable(table.sharding_type, 32), class_="type"),
            tag("td", table.host_kernel) if kernels else None,
            tag("td", f"{count(table.rows)} × {count(table.cols)}", class_="number"),
            tag("td", percent(table.values / all_values), class_="number wide"),
            tag("td", f"{table.num_shards:,}", class_="number wide"),
            tag("td", tag("div", _runs(table, world), tag("span", number_ranges(table.ranks)), class_="places"), class_="full"),
        ]
        if alternatives:
            cells.append(tag("td", alternatives.get(table.name, ""), class_="wide roomy"))
        rows.append(tag("tr", cells))
    head = tag("tr", [tag("th", h, scope="col", class_="number" if h in right else "roomy" if h.startswith("cheapest") else None) for h in heads])
    left = len(tables) - len(shown)
    lead = (f"{plural(len(tables), 'table')} in {plural(sum(t.num_shards for t in tables), 'shard')}, the largest first; shares are of all rows × columns. "
            f"The strip shows which of the {plural(world, 'rank')} hold a part.")
    return section("Where the tables went", tag("p", lead), chart.render() if len(types) > 1 else None,
                   listing(head, rows, "table", "stack"),
                   tag("p", f"{left:,} smaller tables are not listed.", class_="soft") if left else None)


def _runs(table: Placement, world: int) -> Optional[Markup]:
    """Which ranks hold a part of the table, as a strip."""
    if world < 2:
        return None
    runs: List[List[int]] = []
    for rank in table.ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    least = world / 90  # a single rank stays visible
    path = "".join(f"M{first:g} 0h{max(last + 1 - first, least):.4g}v1H{first:g}z" for first, last in runs[:_MAX_RUNS])
    return tag("svg", tag("path", d=path), class_="runs",
               viewBox=f"0 0 {world} 1", preserveAspectRatio="none", aria_hidden="true")


def _cheapest_alternatives(answer: Answer) -> Dict[str, str]:
    """By table: what the plan would cost at least if the table had another type."""
    cost = answer.cost.embedding_cost_ms if answer.cost is not None else 0
    found = {}
    for explanation in answer.explanations:
        possible = [a for a in explanation.alternatives if a.HasField("embedding_cost_ms")]
        if possible and cost > 0:
            best = min(possible, key=lambda a: a.embedding_cost_ms)
            found[explanation.table] = f"{printable(best.sharding_type, 32)} {change(best.embedding_cost_ms / cost)}"
    return found


def _why_section(answer: Answer) -> Markup:
    """A row for each explained table, a column for each type."""
    cost = answer.cost.embedding_cost_ms if answer.cost is not None else math.nan
    explanations = answer.explanations[:256]
    used = {e.sharding_type for e in explanations} | {a.sharding_type for e in explanations for a in e.alternatives}
    known = [t for t in _TYPES if t in used] + sorted(used - set(_TYPES))
    possible = {e.sharding_type for e in explanations} | {a.sharding_type for e in explanations for a in e.alternatives if a.HasField("embedding_cost_ms")}
    types = [t for t in known if t in possible][:12]
    never: Dict[str, List[str]] = {}  # by reason
    for kind, reason in {a.sharding_type: a.reason for e in explanations for a in e.alternatives if a.sharding_type not in possible}.items():
        never.setdefault(reason, []).append(kind)
    reasons: Dict[str, int] = {}
    rows = []
    for explanation in explanations:
        others = {a.sharding_type: a for a in explanation.alternatives}
        cells = [tag("th", printable(explanation.table, MAX_NAME), scope="row")]
        for kind in types:
            other = others.get(kind)
            if kind == explanation.sharding_type:
                cells.append(tag("td", tag("strong", "chosen"), class_="number", data_of=printable(kind, 32)))
            elif other is None:
                cells.append(tag("td", "", class_="number"))
            elif other.HasField("embedding_cost_ms"):
                cells.append(tag("td", change(other.embedding_cost_ms / cost) if cost > 0 else UNKNOWN, class_="number", data_of=printable(kind, 32)))
            else:
                note = reasons.setdefault(other.reason, len(reasons) + 1)
                cells.append(tag("td", "no", tag("sup", f" {note}"), class_="number soft", data_of=printable(kind, 32)))
        rows.append(tag("tr", cells))
    heads = [tag("th", "table", scope="col"), [tag("th", printable(kind, 32), scope="col", class_="number") for kind in types]]
    footnotes = [tag("p", tag("sup", f"{n} "), printable(reason, 400) or "not possible", class_="soft") for reason, n in list(reasons.items())[:50]]
    footnotes += [tag("p", f"No table can be {', '.join(printable(kind, 32) for kind in kinds[:12])}: {printable(reason, 400)}.", class_="soft")
                  for reason, kinds in list(never.items())[:12]]
    lead = ("What the whole plan would cost more with this one table laid out otherwise, at the best place found for it while everything else stays. "
            + (f"{len(explanations)} of {len(answer.plan.tables)} tables: the largest, and those on the costliest ranks."
               if answer.plan is not None and len(explanations) < len(answer.plan.tables) else f"{plural(len(explanations), 'table')}."))
    table = tag("div", listing(tag("tr", heads), rows, "table", "labelled"), class_="sideways", tabindex="0")
    return section("Why these types", tag("p", lead), table, footnotes)


def _migration_section(answer: Answer) -> Markup:
    moved = sorted(answer.migration.tables, key=lambda t: -t.bytes)
    if not moved:
        return section("What moves", tag("p", "Nothing moves from the plan in place."))
    rows = [tag("tr", tag("th", printable(t.table, MAX_NAME), scope="row"), tag("td", size(t.bytes), class_="number")) for t in moved[:200]]
    left = len(moved) - len(rows)
    lead = f"{size(answer.migration.moved_bytes)} of weights of {plural(len(moved), 'table')} move from the plan in place."
    return section("What moves", tag("p", lead), tag("table", tag("tbody", rows), class_="grid"),
                   tag("p", f"{left:,} more tables.", class_="soft") if left else None)
