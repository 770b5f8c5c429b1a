"""2D parallelism: TorchRec's DMPCollection with the group size that `neuroshard plan --what-if` found fastest."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Union

from neuroshard import v1
from neuroshard.mapping import as_message


def dmp_collection_arguments(answer: Union[v1.WhatIfAnswer, Mapping[str, Any]], name: Optional[str] = None) -> Dict[str, Any]:
    """Arguments of `torchrec.distributed.model_parallel.DMPCollection` for a row of a what-if answer.

    answer  what `neuroshard plan REQUEST --what-if FILE --format json` writes, loaded, or the message.
    name    of the row. None: the row that is fastest of its topology; ValueError where several topologies have one.

    The plan is one group's: planned on `Topology(world_size=sharding_group_size, local_world_size=node_group_size, ...)` with the batch size of one
    rank as ever. sync() is to be called after every `sync_interval_batches` of the row, which TorchRec's pipelines take as
    `dmp_collection_sync_interval_batches`. ValueError where the row has one group: that is DistributedModelParallel, without DMPCollection.
    """
    rows = [row for row in as_message(v1.WhatIfAnswer, answer).rows if row.HasField("two_dimensional") and not row.failure]
    chosen = [row for row in rows if (row.two_dimensional.fastest if name is None else row.name == name)]
    if len(chosen) != 1:
        known = ", ".join(repr(row.name) for row in (chosen or rows)) or "none"
        raise ValueError(f"{len(chosen)} rows of the answer {'are fastest' if name is None else f'are called {name!r}'}; plans in groups: {known}")
    groups = chosen[0].two_dimensional
    if groups.replicas == 1:
        raise ValueError(f"{chosen[0].name!r} is one group of all ranks: use DistributedModelParallel")
    return {
        "world_size": groups.sharding_group_size * groups.replicas,
        "sharding_group_size": groups.sharding_group_size,
        "node_group_size": groups.node_group_size or None,
        "use_inter_host_allreduce": groups.use_inter_host_allreduce,
    }
