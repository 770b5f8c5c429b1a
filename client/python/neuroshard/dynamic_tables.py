"""Tables that grow (NVIDIA's DynamicEmb): what a request says of them, and what DynamicEmb is told of a plan. Needs neither DynamicEmb nor PyTorch.

A dynamic table is a hash table of at most `num_embeddings` rows, each with its optimizer state. Its rule lists kernels by DynamicEmb's modes: under HYBRID
(dynamic_hybrid) a share of the rows is in device memory, the others in host memory; under CACHING (dynamic_caching) all are in host memory, and a share of them
on the device as well. `cache_load_factor` is the share. Keys are on the device. Bytes are those of TorchEasyRec's planner.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, Mapping, Optional, Union

from neuroshard import v1
from neuroshard.mapping import as_message

HYBRID, CACHING = "dynamic_hybrid", "dynamic_caching"
KERNELS = (HYBRID, CACHING)

_ALIGNMENT = 16  # of a value's bytes, and of a rank's rows
_BYTES = {"": 4, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int4": 0.5, "int2": 0.25}
_STATES = {"": 0.0, "none": 0.0, "sgd": 0.0, "adam": 2.0}  # in multiples of the weights, as TorchRec counts them; of optimizers that are not here 1


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


def value_bytes(embedding_dim: int, weight_dtype: str = "", optimizer: str = "") -> int:
    """Of a row with its optimizer state; words are those of a request."""
    state = 1 / embedding_dim if optimizer == "rowwise_adagrad" else _STATES.get(optimizer, 1.0)
    return _aligned(math.ceil(embedding_dim * (1 + state) * _BYTES[weight_dtype]))


def rule(tables: Iterable[str], modes: Iterable[str] = KERNELS, cache_load_factor: Optional[float] = None) -> Dict[str, Any]:
    """For `constraints.tables` of a request: the tables grow, with rows on every rank, as DynamicEmb has them.

    modes              HYBRID, CACHING or both, of which the search then chooses by table
    cache_load_factor  the share on the device. None: the search chooses, in tenths
    """
    found: Dict[str, Any] = {"tables": list(tables), "sharding_types": ["row_wise"], "compute_kernels": list(modes)}
    unknown = [mode for mode in found["compute_kernels"] if mode not in KERNELS]
    if unknown or not found["compute_kernels"]:
        raise ValueError(f"modes: must be of {' and '.join(KERNELS)}, got {unknown or 'none'}")
    if cache_load_factor is not None:
        found["cache_load_factor"] = cache_load_factor
    return found


def table_options(kernel: str, cache_load_factor: float, rows: int, ranks: int, value: int) -> Dict[str, Any]:
    """DynamicEmbTableOptions of a table: `rows` of the largest shard, `value` bytes of a row."""
    local = math.ceil(_aligned(rows) * (value * cache_load_factor))
    return {"caching": kernel == CACHING, "max_capacity": rows, "local_hbm_for_values": local, "global_hbm_for_values": local * ranks}


def options(request: Union[v1.ShardPlanRequest, Mapping[str, Any]], plan: v1.Plan) -> Dict[str, Dict[str, Any]]:
    """By full name (module.name) what DynamicEmbTableOptions is told of each dynamic table of `plan`, an answer's to `request`.

    `global_hbm_for_values` is what a user sets: DynamicEmb gives each rank as much of it. `local_hbm_for_values` and `max_capacity` are a rank's, for
    launchers that make the options of a rank themselves, as TorchEasyRec does.
    """
    message = as_message(v1.ShardPlanRequest, request)
    tables = {(table.module, table.name): table for table in message.tables}
    found = {}
    for planned in plan.tables:
        if planned.compute_kernel not in KERNELS:
            continue
        table = tables[planned.module, planned.name]
        value = value_bytes(table.embedding_dim, table.weight_dtype, table.optimizer or message.optimizer)
        rows = max(shard.rows for shard in planned.shards)
        name = ".".join(part for part in (planned.module, planned.name) if part)
        found[name] = table_options(planned.compute_kernel, planned.cache_load_factor, rows, len(planned.shards), value)
    return found
