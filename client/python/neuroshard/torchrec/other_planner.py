"""Other planners beside NeuroShardPlanner (guard, fallback, the one that is compared): whether they plan for the same job, and what they are told of it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence

from torchrec.distributed.planner.constants import POOLING_FACTOR
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingPlannerBase
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import ShardingPlanner

from neuroshard.torchrec.module_tables import ModuleTable

logger: logging.Logger = logging.getLogger(__name__)


def check_other_planner(argument: str, planner: Any, topology: Topology, batch_size: int) -> None:
    """TypeError for what is no planner, ValueError for one of other ranks. Another batch is a warning: a planner may be meant to plan for its own."""
    if not isinstance(planner, ShardingPlanner):
        raise TypeError(f"{argument}: must be a planner such as torchrec's EmbeddingShardingPlanner(...), got {type(planner).__name__}")
    if not isinstance(planner, EmbeddingPlannerBase):
        return
    for name in ("world_size", "local_world_size", "compute_device"):
        theirs, ours = getattr(planner._topology, name), getattr(topology, name)
        if theirs != ours:
            raise ValueError(f"{argument}: its topology's {name} is {theirs!r} and this planner's {ours!r}: one plan cannot stand for the other")
    if planner._batch_size != batch_size:
        logger.warning("%s: plans for a batch of %d a rank, this planner for %d", argument, planner._batch_size, batch_size)


def with_pooling_factors(given: Optional[Mapping[str, ParameterConstraints]], tables: Sequence[ModuleTable]) -> Optional[Dict[str, ParameterConstraints]]:
    """`given`, with the tables' pooling factors where it has TorchRec's default. None: there is nothing to say."""
    found = dict(given or {})
    for table in tables:
        constraint = found.get(table.name) or ParameterConstraints()
        if list(constraint.pooling_factors) == [POOLING_FACTOR] and table.pooling_factors != [POOLING_FACTOR]:
            found[table.name] = dataclasses.replace(constraint, pooling_factors=list(table.pooling_factors))
    return found or None


@contextlib.contextmanager
def told_pooling_factors(planner: ShardingPlanner, tables: Sequence[ModuleTable]) -> Iterator[None]:
    """Within it `planner` plans with the tables' pooling factors (those of statistics) where its own constraints say none; it would take them for 1.

    A planner whose constraints cannot be found is left as it is, with a warning.
    """
    enumerator = getattr(planner, "_enumerator", None)
    if not isinstance(planner, EmbeddingPlannerBase) or not isinstance(enumerator, EmbeddingEnumerator):
        if any(table.pooling_factors_of_statistics for table in tables):
            logger.warning("%s: plans with pooling factors of its own; those of statistics= cannot be handed to it", type(planner).__name__)
        yield
        return
    own = planner._constraints, enumerator._constraints
    planner._constraints, enumerator._constraints = (with_pooling_factors(each, tables) for each in own)
    try:
        yield
    finally:
        planner._constraints, enumerator._constraints = own
