"""TorchRec 1.4's estimates of time and memory of a shard, re-implemented from its documented behaviour.

Kernels `fused` and `dense` on a GPU, training without a pipeline, pooled outputs. Times are in ms,
sizes in bytes, bandwidths in bytes per ms. torchrec_planner_test.py holds this to the values of TorchRec's own tests.
"""

import dataclasses
import math

GIB = 1 << 30
KERNEL = {"data_parallel": "dense"}  # everything else is fused


@dataclasses.dataclass(frozen=True)
class Topology:
    world_size: int
    local_world_size: int
    hbm_bytes: int
    hbm_bw: float = 897 * GIB / 1000
    intra_host_bw: float = 600 * GIB / 1000
    inter_host_bw: float = 12.5 * GIB / 1000

    def link(self, world_size, local_world_size):
        """Of an all-to-all, reduce-scatter or all-gather."""
        return self.intra_host_bw if world_size <= local_world_size else self.inter_host_bw


@dataclasses.dataclass(frozen=True)
class Table:
    name: str
    rows: int
    cols: int
    pooling_factor: float = 1.0  # summed over the features
    features: int = 1
    element_bytes: int = 4
    optimizer_multiplier: float = 0.0  # state as a multiple of the weights
    min_partition: int = 128


def column_block(table):
    """The one block width that is tried: the first from min_partition that divides the columns and is a multiple of 4."""
    for width in range(min(table.min_partition, table.cols), table.cols):
        if table.cols % width == 0 and width % 4 == 0:
            return width
    return table.cols


def ceil_blocks(total, parts):
    """(offset, size) of each part; the last ones may be empty."""
    size = -(-total // parts)
    return [(min(total, i * size), max(0, min(size, total - i * size))) for i in range(parts)]


def shard_shapes(table, sharding_type, topology):
    """(row_offset, rows, col_offset, cols) of each shard, in TorchRec's order."""
    block = column_block(table)
    row_blocks, col_blocks = [(0, table.rows)], [(0, table.cols)]
    if sharding_type in ("column_wise", "table_column_wise", "grid_shard"):
        col_blocks = [(offset, block) for offset in range(0, table.cols, block)]
    if sharding_type == "row_wise":
        row_blocks = ceil_blocks(table.rows, topology.world_size)
    elif sharding_type in ("table_row_wise", "grid_shard"):
        row_blocks = ceil_blocks(table.rows, topology.local_world_size)
    elif sharding_type == "data_parallel":
        row_blocks *= topology.world_size
    return [row_block + col_block for col_block in col_blocks for row_block in row_blocks]


def shard_perf(table, sharding_type, rows, cols, batch_size, topology):
    """(fwd_compute, fwd_comms, bwd_compute, bwd_comms); batch_size is a rank's."""
    world, local = topology.world_size, topology.local_world_size
    e, ids, vectors = table.element_bytes, table.pooling_factor * batch_size, table.features * batch_size
    if sharding_type == "data_parallel":
        bw = 0.5 * topology.hbm_bw
        fwd = (math.ceil(ids * 8) + ids * cols * e + vectors * cols * e) / bw
        size = rows * cols * e
        hosts = min(world / local, 2)
        all_reduce = size * (2 * hosts - 1) / hosts / (topology.inter_host_bw * local)
        if world > 2 * local:
            all_reduce *= 2
        return fwd, 0.0, 2 * fwd, all_reduce + size * 9.22 / bw
    bw = topology.hbm_bw
    if sharding_type in ("table_wise", "column_wise", "table_column_wise"):
        out = vectors * world * cols * e
        penalty = 1 if cols >= 128 else 1.15 if cols >= 64 else 1.75
        fwd = (math.ceil(ids * world * 8) + ids * world * max(cols, 32) * e + out) * penalty / bw
        comms = out / topology.link(world, local)
        return fwd, comms, 2 * fwd, comms
    holders = world if sharding_type == "row_wise" else local
    ids /= holders
    out = vectors * world * cols * e
    fwd = (math.ceil(ids * world * 8) + ids * world * cols * e + out) / bw
    if sharding_type == "row_wise":
        comms = out / topology.link(world, local)
    else:
        comms = out / topology.link(local, local)
        if world > local:
            comms += vectors * (world / local) * cols * e / topology.link(world / local, 1)
    return fwd, comms, 2 * fwd, comms + out * 2.455 / bw


def shard_hbm(table, sharding_type, rows, cols, batch_size, topology):
    world = topology.world_size
    ids, vectors = table.pooling_factor * batch_size, table.features * batch_size
    if sharding_type != "data_parallel":
        ids *= world
        vectors *= world
        if sharding_type == "row_wise":
            ids /= world
        elif sharding_type in ("table_row_wise", "grid_shard"):
            ids /= topology.local_world_size
    if rows == 0:
        return 0
    weights = math.ceil(rows * cols * table.element_bytes)
    return (
        weights
        + math.ceil(weights * table.optimizer_multiplier)
        + math.ceil(ids * 8)
        + math.ceil(vectors * cols * table.element_bytes)
    )
