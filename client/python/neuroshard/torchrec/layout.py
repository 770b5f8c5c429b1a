"""Where the tables of a plan lie, between the service's Plan, TorchRec's ShardingPlan and its serialised form; and the rules of TorchRec's runtime."""

from __future__ import annotations

import collections
import dataclasses
from dataclasses import dataclass
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType, Shard, ShardingOption, Topology
from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardingPlan, ShardingType

from neuroshard import dynamic_tables, v1
from neuroshard.torchrec.module_tables import (
    CACHED_KERNELS,
    CUSTOMIZED,
    DATA_PARALLEL,
    KEY_VALUE,
    MAX_CUDA_COLUMNS,
    ROW_TYPES,
    VIRTUAL_STAND_INS,
    ModuleTable,
    TableKey,
    kernels_of,
    label,
    ranks_of_host,
    row_blocks,
)
from neuroshard.torchrec.separate_caches import separate_caches


class ShardRect(NamedTuple):
    """A rectangle of a table on one rank."""

    row_offset: int
    rows: int
    col_offset: int
    cols: int
    rank: int


@dataclass
class TableLayout:
    """The shards of a table; of a data_parallel one, which is whole on every rank, the number of copies instead."""

    sharding_type: str
    compute_kernel: str
    shards: List[ShardRect]
    copies: int = 0
    cache_load_factor: Optional[float] = None  # of a kernel with a cache; None: not stated, which is TorchRec's default of 0.2


Layout = Dict[TableKey, TableLayout]


def make_table(sharding_type: str, compute_kernel: str, shards: List[ShardRect], ranks: int, cache_load_factor: Optional[float] = None) -> TableLayout:
    """`ranks`: on how many ranks the table has something."""
    if sharding_type == DATA_PARALLEL:
        return TableLayout(sharding_type, compute_kernel, [], ranks, cache_load_factor)
    return TableLayout(sharding_type, compute_kernel, shards, 0, cache_load_factor)


def from_message(plan: v1.Plan) -> Layout:
    layout: Layout = {}
    for table in plan.tables:
        key = (table.module, table.name)
        if key in layout:
            raise PlannerError(f"the plan has {label(key)} twice", PlannerErrorType.OTHER)
        shards = [ShardRect(shard.row_offset, shard.rows, shard.col_offset, shard.cols, shard.rank) for shard in table.shards]
        load_factor = table.cache_load_factor if table.HasField("cache_load_factor") else None
        layout[key] = make_table(table.sharding_type, table.compute_kernel, shards, len(shards), load_factor)
    return layout


def _in_order(shards: Sequence[ShardRect]) -> List[ShardRect]:
    """As the service lists them and TorchRec has to have them, which takes the n-th block of rows for the n-th rank's."""
    return sorted(shards, key=lambda each: (each.col_offset, each.row_offset, each.rank))


def to_message(layout: Layout, shapes: Mapping[TableKey, Tuple[int, int]]) -> v1.Plan:
    """A data_parallel table without a shape (rows, columns) in `shapes` is left out: its layout does not say how large it is."""
    plan = v1.Plan(world_size=world_size_of(layout))
    for key, table in layout.items():
        shards = table.shards
        if table.sharding_type == DATA_PARALLEL:
            if key not in shapes:
                continue
            shards = [ShardRect(0, shapes[key][0], 0, shapes[key][1], rank) for rank in range(table.copies)]
        message = plan.tables.add(
            module=key[0],
            name=key[1],
            sharding_type=table.sharding_type,
            compute_kernel=table.compute_kernel,
            cache_load_factor=table.cache_load_factor,
        )
        for shard in _in_order(shards):
            message.shards.add(**shard._asdict())
    return plan


def load_factor_of(parameter: ParameterSharding) -> Optional[float]:
    """Of its cache, where the kernel has one: TorchRec keeps the cache_params of constraints with every kernel."""
    kernels = {*CACHED_KERNELS, *VIRTUAL_STAND_INS, CUSTOMIZED}
    cached = parameter.compute_kernel in kernels and parameter.cache_params is not None
    return parameter.cache_params.load_factor if cached else None  # type: ignore[union-attr]


def kernel_of(parameter: ParameterSharding) -> str:
    """The service's word where the plan says which mode of DynamicEmb a table has, as this package's plans and DynamicEmb's do; else TorchRec's."""
    options = getattr(parameter, "dynamicemb_options", None)
    if options is None or parameter.compute_kernel != CUSTOMIZED:
        return parameter.compute_kernel
    caching = options["caching"] if isinstance(options, dict) else options.caching
    return dynamic_tables.CACHING if caching else dynamic_tables.HYBRID


def from_sharding_plan(plan: ShardingPlan) -> Layout:
    layout: Layout = {}
    for path, module_plan in plan.plan.items():
        for name, parameter in module_plan.items():  # type: ignore[attr-defined]
            shards = []
            if isinstance(parameter.sharding_spec, EnumerableShardingSpec):
                for shard in parameter.sharding_spec.shards:
                    rows, cols = shard.shard_sizes
                    shards.append(ShardRect(shard.shard_offsets[0], rows, shard.shard_offsets[1], cols, shard.placement.rank()))
            layout[(path, name)] = make_table(parameter.sharding_type, kernel_of(parameter), shards, len(parameter.ranks or []), load_factor_of(parameter))
    return layout


def with_modules(layout: Layout, tables: Sequence[ModuleTable]) -> Layout:
    """As the service has it: tables without a module, as a request that names none gives them, are those of the same name, where one module has it;
    kernels that the service has no word for are those that stand for them, and virtual tables have the rows that they hold."""
    known = {table.key: table for table in tables}
    words = {table.key: {own: word for word, own in table.own_kernels.items()} for table in tables}
    names = collections.Counter(table.name for table in tables)
    paths = {table.name: table.path for table in tables if names[table.name] == 1}
    found: Layout = {}
    for (path, name), each in layout.items():
        key = (paths.get(name, "") if not path and (path, name) not in words else path, name)
        kernel = words.get(key, {}).get(each.compute_kernel, each.compute_kernel)
        factor = each.cache_load_factor if kernel == each.compute_kernel or kernel in CACHED_KERNELS else None
        shards = each.shards
        if key in known and known[key].held_rows:
            shards = _scaled(shards, known[key].tensor_rows, known[key].rows)
        found[key] = dataclasses.replace(each, compute_kernel=kernel, cache_load_factor=factor, shards=shards)
    return found


def _scaled(shards: Sequence[ShardRect], rows: int, then: int) -> List[ShardRect]:
    """Of a table of so many rows in whole buckets, with another number in each of them; others as they are."""
    if sum(shard.rows for shard in shards) != rows:
        return list(shards)
    return [shard._replace(row_offset=shard.row_offset * then // rows, rows=shard.rows * then // rows) for shard in shards]


def world_size_of(layout: Layout) -> int:
    """Least number of ranks that the layout can be for."""
    return max((max([table.copies, *(shard.rank + 1 for shard in table.shards)]) for table in layout.values()), default=0)


def _columns(shards: Sequence[ShardRect]) -> List[List[ShardRect]]:
    """Shards by column block, each in the order of rows."""
    blocks: Dict[Tuple[int, int], List[ShardRect]] = {}
    for shard in sorted(shards, key=lambda each: (each.col_offset, each.cols, each.row_offset, each.rows)):
        blocks.setdefault((shard.col_offset, shard.cols), []).append(shard)
    return list(blocks.values())


def _tiling_fault(shards: Sequence[ShardRect], rows: int, cols: int) -> str:
    """Empty where the shards tile rows x cols, each column block cut into rows by itself."""
    at = 0
    for block in _columns(shards):
        if block[0].col_offset != at or block[0].cols < 1:
            return f"columns {block[0].col_offset} to {block[0].col_offset + block[0].cols} follow column {at}"
        at += block[0].cols
        row = 0
        for shard in block:
            if shard.rows < 0 or shard.row_offset != row:
                return f"rows {shard.row_offset} to {shard.row_offset + shard.rows} of rank {shard.rank} follow row {row}"
            row += shard.rows
        if row != rows:
            return f"its blocks of rows end at {row} of {rows}"
    return "" if at == cols else f"its blocks of columns end at {at} of {cols}"


def table_faults(table: TableLayout, rows: int, cols: int, world_size: int, local_world_size: int, row_positions: bool = False, buckets: int = 0) -> List[str]:
    """What TorchRec's runtime could not run, or would run wrongly without a word. `row_positions`: it is told the blocks of row_wise (RowPositions);
    `buckets`: of its rows."""
    kind, shards = table.sharding_type, table.shards
    kernels, factor = kernels_of(kind), table.cache_load_factor
    faults = [] if table.compute_kernel in kernels else [f"its compute kernel is {table.compute_kernel!r} and has to be {' or '.join(map(repr, kernels))}"]
    if factor is not None and table.compute_kernel not in CACHED_KERNELS:
        faults.append(f"its compute kernel is {table.compute_kernel!r}, which has no cache, and its cache_load_factor {factor}")
    elif factor is not None and not 0 < factor <= 1:
        faults.append(f"its cache_load_factor is {factor}, outside (0, 1]")
    if kind not in {each.value for each in ShardingType}:
        return faults + [f"TorchRec has no sharding type {kind!r}"]
    if kind == DATA_PARALLEL:
        return faults if table.copies == world_size else faults + [f"data_parallel has a copy on each of {world_size} ranks, not on {table.copies}"]
    outside = sorted({shard.rank for shard in shards if not 0 <= shard.rank < world_size})
    if outside:
        return faults + [f"rank {outside[0]} is not one of {world_size}"]
    fault = _tiling_fault(shards, rows, cols)
    if fault:
        return faults + [f"its shards do not tile {rows} x {cols}: {fault}"]

    if table.compute_kernel == KEY_VALUE and len({shard.rank for shard in shards}) < len(shards):
        faults.append("key_value has one shard of a table on a rank: TorchRec keeps one parameter there")
    blocks = _columns(shards)
    hosts = [{shard.rank // local_world_size for shard in block} for block in blocks]
    ranks = [[shard.rank for shard in block] for block in blocks]
    if kind == "table_wise" and len(shards) != 1:
        faults.append(f"table_wise has 1 shard, not {len(shards)}")
    if kind in ("column_wise", "table_column_wise") and any(len(block) != 1 for block in blocks):
        faults.append(f"{kind} does not cut rows")
    if kind == "table_column_wise" and len(set().union(*hosts)) != 1:
        faults.append("table_column_wise stays on one host")
    if kind == "row_wise" and ranks != [list(range(world_size))]:
        faults.append(f"row_wise has a block of rows on every rank in order, not on {ranks}")
    elif kind == "row_wise" and not row_positions and [shard.rows for shard in blocks[0]] != row_blocks(rows, world_size, buckets):
        faults.append(f"{_other_blocks(kind, row_blocks(rows, world_size, buckets), blocks[0])}; its sharder takes others with neuroshard.torchrec.RowPositions")
    if kind in ("table_row_wise", "grid_shard"):
        for block, on in zip(blocks, ranks):
            first = on[0] - on[0] % local_world_size
            if on != list(range(first, first + local_world_size)):
                faults.append(f"{kind} has a block of rows on every rank of a host in order, not on {on}")
            elif [shard.rows for shard in block] != row_blocks(rows, local_world_size):
                faults.append(_other_blocks(kind, row_blocks(rows, local_world_size), block))
    if kind == "table_row_wise" and len(blocks) != 1:
        faults.append("table_row_wise does not cut columns")
    return faults


def _table_faults(found: TableLayout, table: ModuleTable, topology: Topology) -> List[str]:
    faults = table_faults(found, table.rows, table.cols, topology.world_size, ranks_of_host(topology), table.row_positions, table.buckets)
    widest = max((shard.cols for shard in found.shards), default=table.cols)
    if topology.compute_device == "cuda" and widest > MAX_CUDA_COLUMNS:
        faults.append(f"a shard has {widest} columns, and FBGEMM takes at most {MAX_CUDA_COLUMNS} on CUDA devices")
    return faults


def _other_blocks(kind: str, wanted: List[int], block: Sequence[ShardRect]) -> str:
    got = [shard.rows for shard in block]
    return f"{kind} has rows in blocks of {wanted}, not {got}"


def _mean_faults(layout: Layout, tables: Sequence[ModuleTable]) -> List[str]:
    """Mean-pooled tables with rows cut, in modules with tables that are not: TorchRec 1.9 divides the values of the others, too."""
    faults = []
    for table in tables:
        if table.pooling_mode == "mean" and layout[table.key].sharding_type in ROW_TYPES:
            others = [each for each in tables if each.key[0] == table.key[0] and layout[each.key].sharding_type not in ROW_TYPES]
            if others:
                faults.append(
                    f"{table.label}: is pooled by mean and {layout[table.key].sharding_type}, with which TorchRec computes wrong values for"
                    f" {others[0].label}, which is {layout[others[0].key].sharding_type}"
                )
    return faults


def _unpooled_faults(layout: Layout, tables: Sequence[ModuleTable]) -> List[str]:
    """Of the column_wise tables of an EmbeddingCollection that have one dimension, TorchRec runs only blocks of one width (as the service has it)."""
    faults = []
    widths: Dict[Tuple[str, int], Tuple[str, int]] = {}
    for table in tables:
        if not table.is_pooled and layout[table.key].sharding_type == "column_wise":
            for shard in layout[table.key].shards:
                first, width = widths.setdefault((table.path, table.cols), (table.label, shard.cols))
                if shard.cols != width:
                    faults.append(f"{table.label}: has a block of {shard.cols} columns beside one of {width} of {first}, which is unpooled, too")
                    break
    return faults


def check_layout(layout: Layout, tables: Sequence[ModuleTable], topology: Topology, whose: str, constrained: bool = True) -> None:
    """PlannerError unless the layout has exactly `tables`, sharded as TorchRec can run it, and if `constrained` as sharders and constraints allow."""
    layout = with_modules(layout, tables)
    known = {table.key for table in tables}
    missing = [table.label for table in tables if table.key not in layout]
    unknown = [label(key) for key in layout if key not in known]
    if missing or unknown:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has {', '.join(unknown)}, which the module does not have"] if unknown else []
        raise PlannerError(f"{whose} {' and '.join(parts)}", PlannerErrorType.MISSING_MODULE_IN_PLAN if missing else PlannerErrorType.OTHER)
    faults = []
    for table in tables:
        found = layout[table.key]
        faults += [f"{table.label}: {fault}" for fault in _table_faults(found, table, topology)]
        allowed = table.types if constrained else table.runnable_types
        why = "sharder and constraints allow" if constrained else "TorchRec can run for it"
        if found.sharding_type not in allowed:
            faults.append(f"{table.label}: {found.sharding_type} is not one of {', '.join(allowed)}, which {why}")
        if constrained and found.sharding_type != DATA_PARALLEL and found.compute_kernel not in table.kernels:
            faults.append(f"{table.label}: {found.compute_kernel} is not one of {', '.join(table.kernels)}, which {why}")
    faults += _mean_faults(layout, tables) + _unpooled_faults(layout, tables)
    if faults:
        raise PlannerError(f"{whose} cannot be run: {'; '.join(faults)}", PlannerErrorType.INVALID_RANK_ASSIGNMENT)


def chosen_options(layout: Layout, tables: Sequence[ModuleTable], topology: Topology, batch_size: int) -> List[ShardingOption]:
    """TorchRec's options with the shards of a checked layout: what its `to_sharding_plan` takes."""
    chosen = []
    for table in tables:
        found = layout[table.key]
        shards = found.shards or [ShardRect(0, table.rows, 0, table.cols, rank) for rank in range(topology.world_size)]
        shards = _scaled(shards, table.rows, table.tensor_rows)
        parts = [Shard(size=[each.rows, each.cols], offset=[each.row_offset, each.col_offset], rank=each.rank) for each in _in_order(shards)]
        chosen.append(table.option(found.sharding_type, found.compute_kernel, found.cache_load_factor, parts, batch_size))
    separate_caches(chosen)
    return chosen


def tell_dynamicemb(plan: ShardingPlan, layout: Layout, tables: Sequence[ModuleTable]) -> ShardingPlan:
    """Gives each dynamic table of the plan what DynamicEmbTableOptions is told of it, as `dynamicemb_options`."""
    for table in tables:
        found = layout[table.key]
        if found.compute_kernel in dynamic_tables.KERNELS:
            value = dynamic_tables.value_bytes(table.cols, table.weight_dtype, table.optimizer or "adam")
            rows = max(shard.rows for shard in found.shards)
            options = dynamic_tables.table_options(found.compute_kernel, found.cache_load_factor or 0.0, rows, len(found.shards), value)
            plan.plan[table.path][table.name].dynamicemb_options = options  # type: ignore[index]
    return plan
