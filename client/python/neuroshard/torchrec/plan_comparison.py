"""Plans of one module side by side: what NeuroShardPlanner.evaluate and .compare answer."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from neuroshard import v1


class PlanCosts(NamedTuple):
    """What one plan costs, by the service and by TorchRec's estimators."""

    name: str
    cost_ms: Optional[float]
    """PlanCost.embedding_cost_ms by `PlanComparison.cost_model`; None: the plan cannot be priced."""
    estimate_ms: Optional[float]
    """The costliest rank by TorchRec's estimators; None: they cannot price it."""
    memory_share: Optional[float]
    """Of the fullest rank's device memory, reserve included."""
    violations: Sequence[str]
    """Rules of the request that the plan breaks, each with its place."""
    interval_ms: Optional[Tuple[float, float]] = None
    """Where `PlanCost.interval_coverage` of its measurements are expected; None: the model has no intervals."""

    def is_told_from(self, cost_ms: Optional[float]) -> bool:
        """Whether the model can tell this plan from one of this cost: they are 10 % apart, measured plans of which came in their order
        (bench/README.md, "In the predicted order?"), or further than its interval says; True of the same cost, and without an interval."""
        if cost_ms in (None, self.cost_ms) or self.interval_ms is None:
            return True
        return max(cost_ms, self.cost_ms) >= 1.1 * min(cost_ms, self.cost_ms) or not self.interval_ms[0] <= cost_ms <= self.interval_ms[1]


class PlanComparison(NamedTuple):
    """`print` gives a table."""

    plans: List[PlanCosts]
    cost_model: str
    """"name/version" that priced all of them."""
    price_basis: str
    """What its prices rest on, a line."""
    moved_bytes: Optional[int] = None
    """Of weights, from the second plan's ranks to the first's; None: there is one plan."""

    def __str__(self) -> str:
        def number(value: Optional[float], form: str) -> str:
            return "-" if value is None else format(value, form)

        rows = [("plan", f"ms by {self.cost_model}", "ms by TorchRec", "fullest device", "")]
        for plan in self.plans:
            legal = "" if not plan.violations else f"breaks {len(plan.violations)} rules, first: {plan.violations[0]}"
            rows.append((plan.name, number(plan.cost_ms, ".4g"), number(plan.estimate_ms, ".4g"), number(plan.memory_share, ".0%"), legal))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [self.price_basis]
        for row in rows:
            cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:4], widths[1:])]
            lines.append("  ".join([*cells, row[4]]).rstrip())
        if not all(self.plans[0].is_told_from(other.cost_ms) for other in self.plans[1:]):
            lines.append("the costs differ by less than the model can tell: measured, either plan may be the faster one")
        if self.moved_bytes is not None:
            lines.append(f"{self.moved_bytes / 2**30:.3g} GiB of weights move on the way from {self.plans[1].name} to {self.plans[0].name}")
        return "\n".join(lines)


def costs_of(name: str, response: v1.EvaluatePlanResponse, estimate_ms: Optional[float]) -> PlanCosts:
    cost_ms = response.cost.embedding_cost_ms if response.HasField("cost") else None
    shares = [rank.memory.total_bytes / rank.memory.capacity_bytes for rank in response.cost.ranks if rank.memory.capacity_bytes > 0]
    interval = response.cost.interval
    return PlanCosts(name, cost_ms, estimate_ms, max(shares, default=None), [f"{each.field}: {each.description}" for each in response.violations],
                     (interval.low_ms, interval.high_ms) if response.cost.HasField("interval") else None)
