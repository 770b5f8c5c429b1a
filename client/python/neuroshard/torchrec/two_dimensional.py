"""2D parallelism: TorchRec's DMPCollection with the group size that `neuroshard plan --what-if` found fastest."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

from torch import nn
from torchrec import EmbeddingCollection
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import DMPCollectionConfig, ModuleSharder, ShardingPlan

from neuroshard import v1
from neuroshard.mapping import as_message
from neuroshard.torchrec.arguments import check_constraints, check_type
from neuroshard.torchrec.layout import from_message
from neuroshard.torchrec.module_tables import ModuleTable
from neuroshard.torchrec.plan_file import sharding_plan_of


def dmp_collection_arguments(
    answer: Union[v1.WhatIfAnswer, Mapping[str, Any]],
    name: Optional[str] = None,
    module: Optional[nn.Module] = None,
    sharders: Optional[Sequence[ModuleSharder[nn.Module]]] = None,
    constraints: Optional[Dict[str, ParameterConstraints]] = None,
) -> Dict[str, Any]:
    """Arguments of `torchrec.distributed.model_parallel.DMPCollection` for a row of a what-if answer.

    answer  what `neuroshard plan REQUEST --what-if FILE --format json` writes, loaded, or the message.
    name    of the row. None: the row that is fastest of its topology; ValueError where several topologies have one.
    module  whose tables the request has: the row's plans of it are then `plan` and `submodule_configs`, for DMPCollection as they are. Only a fastest row
            has plans. A row whose EmbeddingCollections are in groups of their own needs it: both plans share the memory of every rank, and others may not.
            ValueError there where a module of unpooled tables is of another class, such as ManagedCollisionEmbeddingCollection: DMPCollection cannot
            have it in groups of its own, and the command line does not know classes.
    sharders, constraints
            as in `load_plan`.

    Without `module`, the plan is one group's to make: on `Topology(world_size=sharding_group_size, local_world_size=node_group_size, ...)` with the batch
    size of one rank as ever. sync() is to be called after every `sync_interval_batches` of the row, which TorchRec's pipelines take as
    `dmp_collection_sync_interval_batches`. ValueError where the row has one group: that is DistributedModelParallel, without DMPCollection.
    """
    check_type("module", module, nn.Module, "a module")
    check_constraints(constraints)
    rows = [row for row in as_message(v1.WhatIfAnswer, answer).rows if row.HasField("two_dimensional") and not row.failure]
    chosen = [row for row in rows if (row.two_dimensional.fastest if name is None else row.name == name)]
    if len(chosen) != 1:
        known = ", ".join(repr(row.name) for row in (chosen or rows)) or "none"
        raise ValueError(f"{len(chosen)} rows of the answer {'are fastest' if name is None else f'are called {name!r}'}; plans in groups: {known}")
    row, groups = chosen[0].name, chosen[0].two_dimensional
    if groups.replicas == 1 and not groups.submodule_configs:
        raise ValueError(f"{row!r} is one group of all ranks: use DistributedModelParallel")
    arguments = {
        "world_size": groups.sharding_group_size * groups.replicas,
        "sharding_group_size": groups.sharding_group_size,
        "node_group_size": groups.node_group_size or None,
        "use_inter_host_allreduce": groups.use_inter_host_allreduce,
    }
    if module is None:
        if groups.submodule_configs:
            raise ValueError(f"{row!r} has groups of their own for EmbeddingCollections: say the module, for which the arguments then have its plans")
        return arguments
    if not groups.HasField("plan"):
        raise ValueError(f"{row!r} has no plan: an answer has that of the fastest row alone")

    def plan_of(plan: v1.Plan, size: int, local_size: int, is_planned: Callable[[ModuleTable], bool]) -> ShardingPlan:
        topology = Topology(world_size=size, compute_device="cuda", local_world_size=local_size or size)
        return sharding_plan_of(from_message(plan), f"{row!r}: the plan", module, topology, sharders, constraints, is_planned)

    def is_of_submodule(table: ModuleTable) -> bool:
        if not table.is_pooled and type(table.module) is not EmbeddingCollection:
            found = type(table.module).__name__
            raise ValueError(f"{row!r} has groups of their own for EmbeddingCollections alone, {table.path} is a {found}: take another row's groups")
        return not table.is_pooled

    by_class = bool(groups.submodule_configs)
    arguments["plan"] = plan_of(groups.plan, groups.sharding_group_size, groups.node_group_size, lambda table: table.is_pooled or not by_class)
    if by_class:
        arguments["submodule_configs"] = []
    for submodule in groups.submodule_configs:
        size = submodule.sharding_group_size
        plan = plan_of(submodule.plan, size, size, is_of_submodule)
        config = DMPCollectionConfig(EmbeddingCollection, plan, size, use_inter_host_allreduce=submodule.use_inter_host_allreduce)
        arguments["submodule_configs"].append(config)
    return arguments
