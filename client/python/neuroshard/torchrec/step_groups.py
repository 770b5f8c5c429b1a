"""Which group of a plan takes which part of a step, beside what a planner forecasts of it."""

from __future__ import annotations

import statistics
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from neuroshard import v1
from neuroshard.torchrec.step_record import EXCHANGE_STAGES, LOOKUP_STAGES, Group, StepRecord

Price = Callable[[v1.ShardPlanRequest, v1.Plan], v1.PlanCost]
_COLUMNS = {  # in the order of a step: the field of RankCost that forecasts it
    "input_dist": "input_dist_ms",
    "lookup_forward": "forward_compute_ms",
    "exchange_forward": "forward_comm_ms",
    "exchange_backward": "backward_comm_ms",
    "lookup_backward": "backward_compute_ms",
}


def _times(group: Group) -> Dict[str, float]:
    """By _COLUMNS."""
    return {**{stage: group[stage] for stage in EXCHANGE_STAGES}, **{stage: sum(lookup[stage] for lookup in group["lookups"]) for stage in LOOKUP_STAGES}}


def _lookups_ms(times: Mapping[str, float]) -> float:
    return sum(times[stage] for stage in LOOKUP_STAGES)


def _price_alone(record: StepRecord, group: Group, price: Price) -> Optional[v1.PlanCost]:
    """Of a plan of the group's tables alone; None where the record's plan does not have them by this name."""
    plan = v1.Plan()
    plan.CopyFrom(record.plan)
    del plan.tables[:]
    plan.tables.extend(table for table in record.plan.tables if (table.module, table.sharding_type) == (group["module"], group["sharding_type"]))
    if not plan.tables:
        return None
    request, names = v1.ShardPlanRequest(), {table.name for table in plan.tables}
    request.CopyFrom(record.request)
    for field in ("tables", "constraints", "migration"):  # rules may name the others
        request.ClearField(field)
    request.tables.extend(table for table in record.request.tables if table.module == group["module"] and table.name in names)
    return price(request, plan)


def group_table(record: StepRecord, price: Optional[Price] = None) -> str:
    """Of the rank with the longest lookups, for which the others wait. ValueError where the record has no groups."""
    if not record.groups:
        raise ValueError("the record has no groups; recorders of this version write them")
    rank = max(range(len(record.ranks)), key=lambda each: _lookups_ms(record.ranks[each]))
    whole, columns = record.ranks[rank], [column for column in _COLUMNS if column != "input_dist" or not record.pipelined]
    step_ms = whole["forward"] + whole["backward"] + (0.0 if record.pipelined else whole["input_dist"])

    def cells(name: str, times: Mapping[str, float], cost: Optional[v1.PlanCost]) -> List[str]:
        def cell(column: str) -> str:
            # Models that do not tell the passes apart forecast no part of compute.
            told = cost is not None and (column.startswith("exchange") or cost.ranks[rank].HasField(_COLUMNS[column]))
            forecast = f" / {getattr(cost.ranks[rank], _COLUMNS[column]):.3f}" if told else " / -" if price is not None else ""
            return f"{times[column]:.3f}{forecast}"

        return [name, *map(cell, columns), f"{sum(times[column] for column in columns) / step_ms:.0%}"]

    rows, left = [["group", *(column.replace("_", " ") for column in columns), "of the step"]], step_ms
    for group in record.groups[rank]:
        tables = "; ".join(", ".join(lookup["tables"]) for lookup in group["lookups"]) or "no table of this rank"
        times = _times(group)
        rows.append(cells(f"{group['module']} {group['sharding_type']}: {tables}", times, _price_alone(record, group, price) if price is not None else None))
        left -= sum(times[column] for column in columns)
        if len(group["lookups"]) > 1:
            rows += [[f"  lookup of {', '.join(lookup['tables'])}", *(f"{lookup[column]:.3f}" if column in LOOKUP_STAGES else "" for column in columns),
                      f"{_lookups_ms(lookup) / step_ms:.0%}"] for lookup in group["lookups"]]
    rows.append(["between groups", *[""] * len(columns), f"{max(0.0, left) / step_ms:.0%}"])
    widths = [max(map(len, column)) for column in zip(*rows)]
    head = f"rank {rank} of {len(record.ranks)}, ms{' measured / forecast of the group alone' if price is not None else ''}; step {step_ms:.3f} ms"
    return "\n".join([head, *("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows)])


def ratios_of_groups(record: StepRecord, price: Price) -> List[Tuple[str, Optional[float], Optional[float]]]:
    """Of each group with a price: its sharding type, and measured / forecast of lookups on all ranks and of the exchange on the rank that waits the least."""
    found = []
    for number, group in enumerate(record.groups[0] if record.groups else []):
        cost = _price_alone(record, group, price)
        if cost is None:
            continue
        ranks = [_times(groups[number]) for groups in record.groups]
        lookups, forecast = sum(map(_lookups_ms, ranks)), sum(rank.compute_ms for rank in cost.ranks)
        exchange = min(times["exchange_forward"] + times["exchange_backward"] for times in ranks)
        comm = min(rank.forward_comm_ms + rank.backward_comm_ms for rank in cost.ranks)
        found.append((group["sharding_type"], lookups / forecast if forecast > 0 else None, exchange / comm if comm > 0 and exchange > 0 else None))
    return found


def lines_by_type(found: Sequence[Tuple[str, Optional[float], Optional[float]]]) -> List[str]:
    """Medians by sharding type."""
    def median(ratios: Sequence[Optional[float]]) -> str:
        known = [ratio for ratio in ratios if ratio is not None]
        return f"{statistics.median(known):.3f}" if known else "-"

    by_type: Dict[str, List[Tuple[Optional[float], Optional[float]]]] = {}
    for sharding_type, *ratios in found:
        by_type.setdefault(sharding_type, []).append(tuple(ratios))
    return [f"{sharding_type}: measured / predicted {median([each for each, _ in ratios])} of lookups, {median([each for _, each in ratios])} of exchanges, "
            f"{len(ratios)} groups" for sharding_type, ratios in sorted(by_type.items())]
