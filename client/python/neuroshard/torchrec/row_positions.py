"""Blocks of rows of any size under TorchRec's training.

TorchRec 1.9.2 takes the blocks of a row_wise plan for weights, optimizer state and checkpoints. But its training sends an id to rank
id // ceil(rows / ranks), whatever the plan says, but for virtual tables in buckets (`RwSparseFeaturesDist` of distributed/sharding/rw_sharding.py); only
inference reads the blocks' positions. FBGEMM's bucketizing, which both call, takes positions.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch
from torch import nn
from torchrec.distributed.sharding.rw_sharding import BaseRwEmbeddingSharding


class RowPositions:
    """Goes before a sharder's own class, whose row_wise tables then train in whatever blocks of rows the plan has.

    class Sharder(RowPositions, EmbeddingBagCollectionSharder): pass

    For EmbeddingBagCollectionSharder and EmbeddingCollectionSharder of TorchRec 1.9 and their subclasses.
    """

    def shard(self, *args: Any, **kwargs: Any) -> nn.Module:
        sharded: nn.Module = super().shard(*args, **kwargs)  # type: ignore[misc]
        for sharding in _shardings(sharded):
            if isinstance(sharding, BaseRwEmbeddingSharding):
                sharding.create_input_dist = _with_positions(sharding, sharding.create_input_dist)  # type: ignore[method-assign]
        return sharded


def _shardings(sharded: nn.Module) -> List[Any]:
    """Of a sharded collection of either kind, by the attribute that its input distributions are made from."""
    by_type = getattr(sharded, "_sharding_type_to_sharding", None)
    found = list(by_type.values()) if by_type is not None else getattr(sharded, "_embedding_shardings", None)
    if found is None:
        raise TypeError(f"RowPositions: {type(sharded).__name__} is no sharded collection of TorchRec 1.9")
    return list(found)


def _with_positions(sharding: Any, create: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def create_input_dist(*args: Any, **kwargs: Any) -> nn.Module:
        input_dist = create(*args, **kwargs)
        positions = _positions(sharding)
        if positions is not None:
            input_dist.zch_bucketize_row_pos = positions  # type: ignore[assignment]
        return input_dist

    return create_input_dist


def _positions(sharding: Any) -> Optional[List[torch.Tensor]]:
    """By feature, in the order in which the input distribution has them: where each rank's rows begin, and the end. None: as TorchRec has it anyway."""
    found: List[torch.Tensor] = []
    ordinary = True
    for group in sharding._grouped_embedding_configs:
        for table in group.embedding_tables:
            if table.use_virtual_table:
                return None
            shards = table.global_metadata.shards_metadata
            rows = sum(shard.shard_sizes[0] for shard in shards)
            block = -(-rows // len(shards))
            starts = [shard.shard_offsets[0] for shard in shards]
            ordinary = ordinary and starts == [min(rows, block * rank) for rank in range(len(shards))]
            found += [torch.tensor([*starts, rows])] * table.num_features()
    return None if ordinary else found
