"""A cache for each table of kernel fused_uvm_caching, where TorchRec's runtime would make one for many (table_groups)."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Dict, List, Sequence, Set, Tuple

from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import CacheParams

from neuroshard.torchrec.module_tables import FUSED_UVM_CACHING


def separate_caches(options: Sequence[ShardingOption]) -> None:
    """Gives each cached table a cache of its own, so that it runs with the plan's load factor and takes the memory that is counted.

    TorchRec groups by cache_params.reserved_memory among others, the bytes that FBGEMM leaves free beside a cache, and the plan carries it to every rank.
    So tables that would share a cache reserve another byte each. USE_ONE_TBE_PER_TABLE is a setting of the sharder and takes apart the tables without a
    cache, too, which costs a launch for each of them.
    """
    taken: Dict[Tuple[str, str], List[Tuple[Set[int], int]]] = defaultdict(list)  # (ranks, number) of the tables before, by module and sharding type
    for option in options:
        if option.compute_kernel != FUSED_UVM_CACHING:
            continue
        ranks = {shard.rank for shard in option.shards if shard.rank is not None}
        before = taken[(option.path, option.sharding_type)]
        others = {number for on, number in before if on & ranks}
        number = next(each for each in range(len(others) + 1) if each not in others)
        before.append((ranks, number))
        if number:
            params = option.cache_params or CacheParams()
            option.cache_params = dataclasses.replace(params, reserved_memory=(params.reserved_memory or 0.0) + number)
