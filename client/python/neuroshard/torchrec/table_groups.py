"""The groups of tables that TorchRec's runtime makes of a plan: each is one FBGEMM lookup, with one cache for all its tables of kernel fused_uvm_caching.

Written for TorchRec 1.9.2 (`group_tables`) and FBGEMM 1.9, whose cache has the mean load factor of a group's tables and the width of the widest, so that
tables that share one run with another load factor than the plan's and may take more memory than is counted table by table.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from torchrec.distributed.embedding_sharding import USE_ONE_TBE_PER_TABLE
from torchrec.distributed.types import ParameterSharding, ShardingPlan, ShardingType
from torchrec.distributed.utils import add_params_from_parameter_sharding, merge_fused_params, optimizer_type_to_emb_opt_type

from neuroshard.torchrec.layout import ShardRect, from_sharding_plan
from neuroshard.torchrec.module_tables import DATA_PARALLEL, FUSED, FUSED_UVM_CACHING, HOST_KERNELS, KEY_VALUE, ModuleTable, service_dtype

CACHE_WAYS = 32  # FBGEMM's caches are sets of so many rows on CUDA devices
DEFAULT_LOAD_FACTOR = 0.2
LEAST_BYTES_SAID, LEAST_SHARE_SAID = 1 << 20, 0.01  # beyond what is counted; caches are rounded to whole sets


@dataclass(frozen=True)
class TableGroup:
    """Tables of one rank that are one lookup kernel."""

    rank: int
    module: str  # path
    sharding_type: str
    kernel: str  # "fused" for rows in host memory, too
    tables: Tuple[str, ...]  # a name for each shard, in the module's order
    load_factor: float  # that the cache has; 0 where there is none
    cache_bytes: int  # that FBGEMM allocates
    counted_cache_bytes: int  # sum over tables of load factor x rows x own columns, as TorchRec's planner counts them


@dataclass(frozen=True)
class _Member:
    name: str
    shard: ShardRect
    table_rows: int
    kernel: str
    load_factor: Optional[float]
    element_bytes: int  # of a number in the cache


def _fused_params(table: ModuleTable, sharding: ParameterSharding) -> Dict[str, Any]:
    """The settings with which TorchRec's runtime builds the table's lookup."""
    of_tensor = copy.copy((getattr(table.tensor, "_optimizer_kwargs", None) or [{}])[0])
    classes = getattr(table.tensor, "_optimizer_classes", None)
    if classes and "optimizer" not in of_tensor:
        of_tensor["optimizer"] = optimizer_type_to_emb_opt_type(classes[0]) if table.optimizer else classes  # it raises for others
    merged = merge_fused_params(table.fused_params, of_tensor)
    if sharding.sharding_type == DATA_PARALLEL:  # else TorchRec logs a warning for each
        sharding = dataclasses.replace(sharding, sharding_type=ShardingType.TABLE_WISE.value, compute_kernel=FUSED)
    return add_params_from_parameter_sharding(merged, sharding)


def _kind(kernel: str) -> str:
    """Kernel of a group: rows on the device and in host memory are one lookup."""
    return FUSED if kernel in HOST_KERNELS else kernel


def _group_key(table: ModuleTable, kernel: str, params: Mapping[str, Any], cols: int) -> Tuple[Any, ...]:
    prefetched = kernel == KEY_VALUE or (kernel == FUSED_UVM_CACHING and bool(params.get("prefetch_pipeline")))
    settings = tuple(sorted((name, repr(value)) for name, value in params.items() if name != "cache_load_factor"))
    alone = table.name if params.get(USE_ONE_TBE_PER_TABLE) else ""
    return table.weight_dtype, table.pooling_mode, table.stashed, table.writable, settings, alone, _kind(kernel), prefetched, cols if prefetched else 0


def _counted_factor(member: _Member) -> float:
    return DEFAULT_LOAD_FACTOR if member.load_factor is None else member.load_factor


def _group(rank: int, path: str, sharding_type: str, members: Sequence[_Member]) -> TableGroup:
    cached = [member for member in members if member.kernel == FUSED_UVM_CACHING]
    factor, allocated = 0.0, 0
    if cached:
        stated = [(member.load_factor, member.table_rows) for member in cached if member.load_factor is not None]
        factor = sum(each * rows for each, rows in stated) / sum(rows for _, rows in stated) if stated else DEFAULT_LOAD_FACTOR
        rows = int(sum(member.shard.rows for member in cached) * factor)
        sets = max(1, -(-rows // CACHE_WAYS))
        allocated = sets * CACHE_WAYS * max(member.shard.cols for member in cached) * cached[0].element_bytes
    counted = sum(int(_counted_factor(member) * member.shard.rows * member.shard.cols * member.element_bytes) for member in cached)
    return TableGroup(rank, path, sharding_type, _kind(members[0].kernel), tuple(member.name for member in members), factor, allocated, counted)


def table_groups(plan: ShardingPlan, tables: Sequence[ModuleTable]) -> List[TableGroup]:
    """The groups of `plan` by rank, of those of `tables` that it has. ValueError names a table whose settings TorchRec cannot merge."""
    layout = from_sharding_plan(plan)
    groups: Dict[Tuple[int, str, str], Dict[Tuple[Any, ...], List[_Member]]] = defaultdict(dict)
    for table in tables:
        if table.key not in layout:
            continue
        found, sharding = layout[table.key], plan.plan[table.path][table.name]  # type: ignore[index]
        try:
            params = _fused_params(table, sharding)
        except Exception as fault:  # TorchRec raises, and asserts, what it will
            raise ValueError(f"{table.label}: {fault}") from fault
        factor = params.get("cache_load_factor")
        precision = service_dtype(params.get("cache_precision")) or table.weight_dtype
        for shard in found.shards or [ShardRect(0, table.rows, 0, table.cols, rank) for rank in range(found.copies)]:
            key = _group_key(table, found.compute_kernel, params, shard.cols)
            member = _Member(table.name, shard, table.rows, found.compute_kernel, factor, 2 if precision == "fp16" else 4)
            groups[(shard.rank, table.path, found.sharding_type)].setdefault(key, []).append(member)
    made = []
    for (rank, path, sharding_type), by_key in sorted(groups.items(), key=lambda item: item[0][0]):
        for members in by_key.values():
            made.append(_group(rank, path, sharding_type, members))
    return made


def cache_faults(groups: Sequence[TableGroup]) -> List[str]:
    """A line for each rank whose caches take over a hundredth more than was counted: nobody has kept that memory free."""
    lines = []
    for rank in sorted({group.rank for group in groups}):
        mine = [group for group in groups if group.rank == rank]
        allocated, counted = sum(group.cache_bytes for group in mine), sum(group.counted_cache_bytes for group in mine)
        if allocated - counted > max(LEAST_BYTES_SAID, counted * LEAST_SHARE_SAID):
            wide = max(mine, key=lambda group: group.cache_bytes - group.counted_cache_bytes)
            lines.append(
                f"rank {rank}: FBGEMM allocates {allocated} bytes of cache where {counted} are counted, most beyond them for {', '.join(dict.fromkeys(wide.tables))}"
                f" of {wide.module}, {wide.sharding_type}, which share a cache as wide as the widest"
            )
    return lines
