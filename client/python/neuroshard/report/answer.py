"""What a report needs of a planner's answer, whichever message it came in."""

import math
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple, Union

from google.protobuf.message import Message

from neuroshard.v1 import cost_pb2, migration_pb2, plan_pb2, planner_pb2, report_pb2

# In the order in which they are stacked.
STAGES = ("input_dist", "compute", "forward_compute", "backward_compute", "forward_comm", "backward_comm")
MEMORY_KINDS = ("weights", "optimizer", "cache_state", "input", "output", "reserve")


@dataclass
class Answer:
    """A plan, what it costs, and what was said about it. Every part may be absent."""

    plan: Optional[plan_pb2.Plan] = None
    cost: Optional[cost_pb2.PlanCost] = None
    bound: Optional[report_pb2.LowerBound] = None
    migration: Optional[report_pb2.MigrationReport] = None
    explanations: Sequence[report_pb2.TableExplanation] = ()
    warnings: Sequence[str] = ()
    violations: Sequence[planner_pb2.PlanViolation] = ()
    basis: str = ""  # what the prices rest on; empty in answers of planners that do not say it
    model: str = ""  # cost model and version
    is_formula: bool = False  # nothing in the prices was measured
    batch: int = 0  # samples of all ranks together; 0 in answers of planners that do not say it
    strategy: str = ""
    search_ms: float = 0
    compared: Sequence[planner_pb2.ComparedPlan] = ()  # plans of other strategies for the same request
    # What it was made with: (name, value), for the end of the page.
    facts: List[Tuple[str, str]] = field(default_factory=list)

    @property
    def num_ranks(self) -> int:
        return len(self.ranks) or (self.plan.world_size if self.plan is not None else 0)

    @property
    def ranks(self) -> Sequence[cost_pb2.RankCost]:
        return self.cost.ranks if self.cost is not None else ()


def answer_of(message: Message) -> Answer:
    """Of a ShardPlanResponse, EvaluatePlanResponse or Plan. Raises TypeError for another message."""
    if isinstance(message, plan_pb2.Plan):
        return Answer(plan=message)
    if not isinstance(message, (planner_pb2.ShardPlanResponse, planner_pb2.EvaluatePlanResponse)):
        raise TypeError(f"must be a ShardPlanResponse, EvaluatePlanResponse or Plan, got {type(message).__name__}")
    answer = Answer(
        cost=message.cost if message.HasField("cost") else None,
        bound=message.lower_bound if message.HasField("lower_bound") else None,
        migration=message.migration if message.HasField("migration") else None,
        explanations=message.explanations,
        warnings=message.warnings,
        basis=message.price_basis.text,
        is_formula=message.price_basis.kind == "published",
        batch=message.global_batch_size,
    )
    if message.HasField("cost_model"):
        answer.model = f"{message.cost_model.name} version {message.cost_model.version}"
        answer.facts.append(("cost model", answer.model))
    if answer.cost is not None and not answer.basis:
        answer.facts.append(("measured with", _measured_with(answer.cost) or "nothing: formulas, or not stated"))
    if isinstance(message, planner_pb2.EvaluatePlanResponse):
        answer.violations = message.violations
        return answer
    answer.plan = message.plan if message.HasField("plan") else None
    search = message.search
    answer.strategy, answer.search_ms, answer.compared = search.strategy, search.search_ms, message.comparison
    answer.facts += [
        ("search", f"{search.strategy}, {search.search_ms:,.1f} ms, {search.plans_evaluated:,} plans priced"
                   + (", cut by its time limit" if search.time_limit_reached else "")),
        ("seed", str(message.seed)),
        ("request", message.request_fingerprint),
    ]
    return answer


def _measured_with(cost: cost_pb2.PlanCost) -> str:
    of = cost.measured_with
    parts = [f"{of.backend} kernels"] * bool(of.backend) + [f"{of.collective_backend} collectives"] * bool(of.collective_backend)
    return " on ".join(part for part in (" and ".join(parts), of.device) if part)


def stage_ms(rank: cost_pb2.RankCost, stage: str) -> float:
    return getattr(rank, f"{stage}_ms")


def stages_of(ranks: Sequence[cost_pb2.RankCost]) -> Tuple[str, ...]:
    """The stages that make up a total: the distribution of ids where it is part of it, compute in two parts where every rank has them."""
    split = all(r.HasField("forward_compute_ms") and r.HasField("backward_compute_ms") for r in ranks)
    stages = STAGES[2:] if split else ("compute", "forward_comm", "backward_comm")
    return ("input_dist", *stages) if input_dist_is_exposed(ranks) else stages


def input_dist_is_exposed(ranks: Sequence[cost_pb2.RankCost]) -> bool:
    """Whether the distribution of ids is part of the totals; otherwise it runs beside the batch before, or is not priced."""
    return any(r.total_ms - (r.compute_ms + r.forward_comm_ms + r.backward_comm_ms) > r.input_dist_ms / 2 > 0 for r in ranks)


def costliest(ranks: Sequence[cost_pb2.RankCost]) -> cost_pb2.RankCost:
    return max(ranks, key=lambda r: r.total_ms if math.isfinite(r.total_ms) else -1)


def fill(rank: cost_pb2.RankCost) -> float:
    """The used share of a rank's memory; NaN where its capacity is not stated."""
    memory = rank.memory
    return memory.total_bytes / memory.capacity_bytes if memory.capacity_bytes > 0 else math.nan


@dataclass
class Placement:
    """Where a table went."""

    name: str
    module: str
    sharding_type: str
    rows: int
    cols: int
    num_shards: int
    ranks: List[int]  # ascending
    host_kernel: str  # of a table in host memory or on SSD, with the load factor of its cache; otherwise empty

    @property
    def values(self) -> int:
        return self.rows * self.cols


def placements(plan: plan_pb2.Plan) -> List[Placement]:
    """Of all tables, in the plan's order."""
    return [
        Placement(
            name=table.name,
            module=table.module,
            sharding_type=table.sharding_type,
            rows=max((s.row_offset + s.rows for s in table.shards), default=0),
            cols=max((s.col_offset + s.cols for s in table.shards), default=0),
            num_shards=len(table.shards),
            ranks=sorted({s.rank for s in table.shards}),
            host_kernel=_host_kernel(table),
        )
        for table in plan.tables
    ]


def _host_kernel(table: plan_pb2.TablePlan) -> str:
    if table.compute_kernel in ("", "fused", "dense"):
        return ""
    return f"{table.compute_kernel} {table.cache_load_factor:.4g}" if table.HasField("cache_load_factor") else table.compute_kernel


def by_type(tables: Sequence[Placement]) -> Dict[str, List[Placement]]:
    """Tables of each sharding type, the type with most values first."""
    types: Dict[str, List[Placement]] = {}
    for table in tables:
        types.setdefault(table.sharding_type, []).append(table)
    return dict(sorted(types.items(), key=lambda item: -sum(t.values for t in item[1])))
