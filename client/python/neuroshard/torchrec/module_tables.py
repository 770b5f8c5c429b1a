"""The tables of a module as TorchRec's enumerator sees them (torchrec/distributed/planner/enumerators.py)."""

from __future__ import annotations

import collections
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn
from torchrec.distributed.embedding_types import BaseQuantEmbeddingSharder, EmbeddingComputeKernel
from torchrec.distributed.fused_params import FUSED_PARAM_QUANT_STATE_DICT_SPLIT_SCALE_BIAS
from torchrec.distributed.memory_stashing import MemoryStashingManager
from torchrec.distributed.planner.constants import POOLING_FACTOR
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator, _extract_constraints_for_param, _get_tower_index, get_partition_by_type
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, Shard, ShardingOption, Topology
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import CacheParams, CommOp, KeyValueParams, ModuleSharder, ShardingType
from torchrec.modules.embedding_configs import DATA_TYPE_NUM_BITS, DataType, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollectionInterface
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.mc_modules import ManagedCollisionCollection, MCHManagedCollisionModule
from torchrec.quant.embedding_modules import MODULE_ATTR_QUANT_STATE_DICT_SPLIT_SCALE_BIAS
from torchrec.tensor_types import UInt2Tensor, UIntXTensor

from neuroshard import dynamic_tables
from neuroshard.similar_word import did_you_mean
from neuroshard.torchrec import unpriced
from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.module_kinds import runnable_types
from neuroshard.torchrec.row_positions import RowPositions

TableKey = Tuple[str, str]
"""(path of the module, name of the table): what identifies a table in a ShardingPlan."""

DATA_PARALLEL = ShardingType.DATA_PARALLEL.value
ROW_WISE = ShardingType.ROW_WISE.value
COLUMN_WISE = ShardingType.COLUMN_WISE.value
ROW_TYPES = {ShardingType.ROW_WISE.value, ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value}
HOST_TYPES = {ShardingType.TABLE_ROW_WISE.value, ShardingType.TABLE_COLUMN_WISE.value, ShardingType.GRID_SHARD.value}  # within hosts

DENSE = EmbeddingComputeKernel.DENSE.value
FUSED = EmbeddingComputeKernel.FUSED.value
FUSED_UVM_CACHING = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
HOST_KERNELS = (EmbeddingComputeKernel.FUSED_UVM.value, FUSED_UVM_CACHING)  # rows in the host's memory
KEY_VALUE = EmbeddingComputeKernel.KEY_VALUE.value  # rows on the host's SSDs
QUANT_UVM_CACHING = EmbeddingComputeKernel.QUANT_UVM_CACHING.value
KEY_VALUE_DTYPES = ("fp32", "fp16")  # FBGEMM's
CACHED_KERNELS = (FUSED_UVM_CACHING, QUANT_UVM_CACHING, KEY_VALUE, *dynamic_tables.KERNELS)  # some of the rows in device memory as well
CUSTOMIZED = EmbeddingComputeKernel.CUSTOMIZED_KERNEL.value
DYNAMIC = "dynamic"  # what stands for a customized_kernel that is DynamicEmb's: either of its modes
SCALE_AND_BIAS_BYTES = 4  # of a quantised row: two of fp16 (compute_storage_usage of torchrec/distributed/types.py)
MAX_LOAD_FACTOR = math.nextafter(1.0, 0.0)  # TorchRec's planner takes a plan whose caches hold less than all rows

# Kernels that the service has no word for, by the one that it prices and counts them as: rows in the same memory.
STAND_INS = {
    EmbeddingComputeKernel.QUANT.value: FUSED,
    EmbeddingComputeKernel.QUANT_UVM.value: EmbeddingComputeKernel.FUSED_UVM.value,
    QUANT_UVM_CACHING: FUSED_UVM_CACHING,
    EmbeddingComputeKernel.FUSED_TRITON.value: FUSED,
    EmbeddingComputeKernel.UNFUSED_TPU.value: FUSED,
    CUSTOMIZED: FUSED,
}
# The same of virtual tables (KV-ZCH), which are looked up by no other kernels.
VIRTUAL_STAND_INS = {
    EmbeddingComputeKernel.SSD_VIRTUAL_TABLE.value: KEY_VALUE,
    EmbeddingComputeKernel.DRAM_VIRTUAL_TABLE.value: FUSED_UVM_CACHING,
    EmbeddingComputeKernel.DRAM_SSD_VIRTUAL_TABLE.value: KEY_VALUE,
}
VIRTUAL_BYTES_PER_ROW = 16  # beside its values: id, time and count of use (VirtualTableEvictionPolicy.init_metaheader_config)
MAX_ROWS = 1 << 48  # the service's, of a table

# Of a shard's columns, what FBGEMM 1.9 takes (the service's common/domain/kernel_limits.h): a multiple of, but by its dense kernel on CPUs; at most, on CUDA.
COLUMN_MULTIPLE = 4
MAX_CUDA_COLUMNS = 2048

_DTYPES = {  # the service's words by the names of TorchRec's DataType, FBGEMM's SparseType and torch's dtypes
    "FP32": "fp32",
    "FP16": "fp16",
    "BF16": "bf16",
    "INT8": "int8",
    "UINT8": "int8",
    "INT4": "int4",
    "INT2": "int2",
    "FP8": "fp8",
    "NFP8": "fp8",
    "torch.float32": "fp32",
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
}

NARROW = ("int4", "int2")  # of several values a byte: rows that are served and vectors, not rows that are trained

_OPTIMIZERS = {
    "SGD": "sgd",
    "EXACT_SGD": "sgd",
    "LarsSGD": "lars_sgd",
    "LARS_SGD": "lars_sgd",
    "Adagrad": "adagrad",
    "EXACT_ADAGRAD": "adagrad",
    "RowWiseAdagrad": "rowwise_adagrad",
    "EXACT_ROWWISE_ADAGRAD": "rowwise_adagrad",
    "Adam": "adam",
    "ADAM": "adam",
    "PartialRowWiseAdam": "partial_rowwise_adam",
    "PARTIAL_ROWWISE_ADAM": "partial_rowwise_adam",
    "LAMB": "lamb",
    # With the state of another one.
    "NONE": "sgd",
    "ROWWISE_ADAGRAD": "rowwise_adagrad",
    "EXACT_ROWWISE_WEIGHTED_ADAGRAD": "rowwise_adagrad",
    "PartialRowWiseLAMB": "partial_rowwise_adam",
    "PARTIAL_ROWWISE_LAMB": "partial_rowwise_adam",
}
OPTIMIZERS = tuple(dict.fromkeys(_OPTIMIZERS.values()))


def service_dtype(given: Any) -> str:
    """The service's word for a DataType, SparseType or torch.dtype; empty where it has none."""
    return _DTYPES.get(str(getattr(given, "name", given)), "")


def covering_dtype(given: Any, trains: bool = False) -> str:
    """The service's word, else that of a type with at least as many bits; empty where it has none, or nothing is given. What trains has a byte a value."""
    if not given or (service_dtype(given) and not (trains and service_dtype(given) in NARROW)):
        return service_dtype(given)
    try:
        bits = DATA_TYPE_NUM_BITS[given] if isinstance(given, DataType) else 8 * torch.empty(0, dtype=given).element_size()
    except (KeyError, TypeError):
        return ""
    return next((word for least, word in ((8, "int8"), (16, "fp16"), (32, "fp32")) if bits <= least), "")


def _counted_wider(of: str, given: Any, trains: bool = False) -> List[str]:
    word = covering_dtype(given, trains)
    return [f"{of} of {getattr(given, 'name', given)} counted as {word}"] if word != service_dtype(given) else []


@dataclass
class ModuleTable:
    """A table of a module and the ways of sharding it that sharders and constraints leave."""

    path: str
    name: str
    module: nn.Module  # at `path`
    tensor: torch.Tensor
    fused_params: Dict[str, Any]  # its sharder's
    stashed: bool  # whether its weights leave the device during the dense part (memory stashing)
    writable: bool  # whether the trainer writes rows between steps (enable_embedding_update), which TorchRec does without pooling alone
    types: List[str]  # sharding types that it may have with a kernel that the service plans, in the sharder's order
    kernels: List[str]  # kernels that it may have, with any of `types` but data_parallel, whose one kernel is dense
    own_kernels: Dict[str, str]  # what TorchRec calls those of `kernels` that stand for others (STAND_INS)
    runnable_types: List[str]  # those that its sharded module can run: a sharder for cpu offers fewer, and constraints allow fewer
    constrained: bool  # whether constraints name its sharding types
    constraints: Optional[Dict[str, ParameterConstraints]]
    features: List[str]
    pooling_factors: List[float]  # mean ids of a sample by feature: the constraints', else those of statistics, else 1
    pooling_factors_of_statistics: bool
    is_pooled: bool
    weight_dtype: str
    output_dtype: str  # empty: not stated
    wire_dtypes: Tuple[str, str]  # of pooled vectors and of their gradients; empty: as the lookup gives them
    pooling_mode: str
    weighted: bool
    cache_load_factor: Optional[float]  # where constraints or fused_params give one and it may be cached
    key_value_params: KeyValueParams  # empty where constraints give none, or it may not be on SSD
    prefetched: bool  # whether it may be cached, and its rows are then fetched ahead of time
    optimizer: Optional[str]  # the service's word; None: of a kind that it does not know
    optimizer_name: str
    dependency: Optional[str]  # tables with the same one stay on a host
    row_positions: bool  # whether it trains in any blocks of rows (RowPositions)
    extra_bytes_per_row: int  # of what finds the rows of managed collisions
    scale_bytes_per_row: int  # and bias, of a quantised row, which of NARROW the memory rule torchrec alone lacks; 0: weight_dtype has them
    buckets: int  # that rows are in and no cut divides; 0: none, or as many on every rank
    held_rows: int  # of a virtual table, at most; 0: all of the tensor's
    unpriced: List[str]  # what its sharder and constraints set and no request can say

    @property
    def key(self) -> TableKey:
        return self.path, self.name

    @property
    def label(self) -> str:
        return label(self.key)

    @property
    def rows(self) -> int:
        """As the service has them: of a virtual table those that take memory, as many of each bucket."""
        return self.held_rows or int(self.tensor.shape[0])

    @property
    def tensor_rows(self) -> int:
        """As a plan of TorchRec has them."""
        return int(self.tensor.shape[0])

    @property
    def cols(self) -> int:
        return int(self.tensor.shape[1])

    def _weights(self) -> torch.Tensor:
        """What estimators take the type of weights from: unsharded collections hold int8 and fp8 as fp16, those that train do not."""
        if self.weight_dtype not in ("int8", "fp8") or self.tensor.element_size() == 1:
            return self.tensor
        weights = torch.empty(self.tensor.shape, dtype=torch.uint8, device="meta")
        if hasattr(self.tensor, "_optimizer_classes"):
            weights._optimizer_classes = self.tensor._optimizer_classes  # type: ignore[attr-defined]
        return weights

    def option(self, sharding_type: str, compute_kernel: str, cache_load_factor: Optional[float], shards: List[Shard], batch_size: int) -> ShardingOption:
        """As the enumerator makes it: what no plan decides is the constraints'."""
        (_, _, cache_params, enforce_hbm, stochastic_rounding, bounds_check_mode, feature_names, output_dtype, _, key_value_params) = (
            _extract_constraints_for_param(self.constraints, self.name)
        )
        if cache_load_factor is None and compute_kernel in CACHED_KERNELS:
            cache_load_factor = cache_params and cache_params.load_factor
        if cache_load_factor is not None:
            most = 1.0 if compute_kernel in dynamic_tables.KERNELS else MAX_LOAD_FACTOR
            cache_params = dataclasses.replace(cache_params or CacheParams(), load_factor=min(cache_load_factor, most))
        return ShardingOption(
            name=self.name,
            tensor=self._weights(),
            module=(self.path, self.module),
            input_lengths=self.pooling_factors,
            batch_size=batch_size,
            compute_kernel=self.own_kernels.get(compute_kernel, compute_kernel),
            sharding_type=sharding_type,
            partition_by=get_partition_by_type(sharding_type),
            shards=shards,
            cache_params=cache_params,
            enforce_hbm=enforce_hbm,
            stochastic_rounding=stochastic_rounding,
            bounds_check_mode=bounds_check_mode,
            dependency=self.dependency,
            is_pooled=self.is_pooled,
            feature_names=feature_names,
            output_dtype=output_dtype,
            key_value_params=key_value_params,
        )


def label(key: TableKey) -> str:
    """A table's full name in messages and in the service's constraints."""
    return ".".join(part for part in key if part)


def kernels_of(sharding_type: str) -> Tuple[str, ...]:
    """The compute kernels that plans of the service have for a sharding type."""
    return (DENSE,) if sharding_type == DATA_PARALLEL else (FUSED, *HOST_KERNELS, KEY_VALUE, *dynamic_tables.KERNELS)


def ranks_of_host(topology: Topology) -> int:
    """Of TorchRec's intra groups, which may be said to be larger than the job. The last host has fewer where they do not come out even."""
    return min(topology.intra_group_size, topology.world_size)


def row_blocks(rows: int, parts: int, buckets: int = 0) -> List[int]:
    """TorchRec's blocks: ceil(rows / parts) until none are left; as many whole `buckets` each, the first ones one more where they do not come out even."""
    if buckets:
        return [rows // buckets * (buckets // parts + (part < buckets % parts)) for part in range(parts)]
    block = -(-rows // parts)
    return [max(0, min(block, rows - block * part)) for part in range(parts)]


class _Owner:
    """What the tables of a sharded module share."""

    def __init__(self, path: str, module: nn.Module, sharder: ModuleSharder[nn.Module]) -> None:
        self.path, self.module, self.sharder = path, module, sharder
        self.parameters = sharder.shardable_parameters(module)
        self.is_pooled = ShardingOption.module_pooled(module, path)
        collections_in_it = list(module.modules())
        self.trains = unpriced.trains(sharder)
        self.fused_params: Dict[str, Any] = getattr(self.trains, "fused_params", None) or {}
        self.is_weighted = any(part.is_weighted() for part in collections_in_it if isinstance(part, EmbeddingBagCollectionInterface))
        self.configs: Dict[str, Any] = {}
        self.doubles: List[str] = []  # names of several tables, of which TorchRec knows one
        for part in collections_in_it:
            for config in configs_of(part):
                if config.name in self.configs and config is not self.configs[config.name]:
                    self.doubles.append(config.name)
                self.configs[config.name] = config

    def runs(self, name: str, tensor: torch.Tensor, sharding_type: str, compute_device: str) -> bool:
        """Whether TorchRec runs one of the module's tables so, as far as kinds of modules like this one were tried."""
        if self.why_uncut(name, tensor, sharding_type):
            return False
        if tensor.shape[-1] % COLUMN_MULTIPLE and (sharding_type != DATA_PARALLEL or compute_device != "cpu"):
            return False
        types = runnable_types(self.module, compute_device)
        return sharding_type in types if types is not None else self.is_pooled or sharding_type != DATA_PARALLEL

    def why_uncut(self, name: str, tensor: torch.Tensor, sharding_type: str) -> str:
        """Why a quantised table is not cut so (torchrec/distributed/quant_embeddingbag.py, quant_state.py); empty where TorchRec serves it, and of others."""
        if tensor.dtype != torch.uint8 or sharding_type not in (ROW_WISE, COLUMN_WISE):
            return ""
        of_module = getattr(self.module, MODULE_ATTR_QUANT_STATE_DICT_SPLIT_SCALE_BIAS, False)
        if not self.fused_params.get(FUSED_PARAM_QUANT_STATE_DICT_SPLIT_SCALE_BIAS, of_module):
            return f"it is {sharding_type} where its sharder's fused_params have {FUSED_PARAM_QUANT_STATE_DICT_SPLIT_SCALE_BIAS!r} alone"
        if tensor.shape[-1] != getattr(self.configs.get(name), "embedding_dim", None):
            return (
                f"it is {sharding_type} where its columns are numbers, not bytes with scale and bias, alone:"
                " quant_prep_enable_quant_state_dict_split_scale_bias_for_types, before it is quantised to integers"
            )
        if sharding_type == COLUMN_WISE and isinstance(tensor, UInt2Tensor):
            return "FBGEMM takes INT2 in multiples of 8 columns, and blocks are of 4"
        return "TorchRec adds up the means of row blocks" if sharding_type == ROW_WISE and self.pools_by_mean(name) else ""

    def optimizer_name(self, tensor: torch.Tensor) -> str:
        """Name of the class or FBGEMM's EmbOptimType with which a table will be trained; FBGEMM's default is EXACT_SGD."""
        classes = getattr(tensor, "_optimizer_classes", None)
        if classes:
            return "+".join(each.__name__ for each in classes)
        if callable(getattr(self.module, "optimizer_type", None)):  # fused collections bring their own
            return str(self.module.optimizer_type().__name__)  # type: ignore[operator, union-attr]
        chosen = self.fused_params.get("optimizer", "EXACT_SGD")
        return str(getattr(chosen, "name", chosen))

    def dependency(self, name: str) -> Optional[str]:
        if isinstance(self.module, EmbeddingTower):
            return self.path
        if isinstance(self.module, EmbeddingTowerCollection):
            return f"{self.path}.tower_{_get_tower_index(name, self.module)}"
        return None

    def pools_by_mean(self, name: str) -> bool:
        if name not in self.configs:  # a bare nn.EmbeddingBag
            return getattr(self.module, "mode", None) == "mean"
        return getattr(self.configs[name], "pooling", None) == PoolingType.MEAN

    def bytes_beside_row(self, name: str, tensor: torch.Tensor) -> int:
        """Of managed collisions and virtual tables: raw ids, where each is, and what decides which one goes."""
        if self.is_virtual(name):
            return VIRTUAL_BYTES_PER_ROW
        beside = 0
        for part in self.module.modules():
            if isinstance(part, ManagedCollisionCollection) and name in part._managed_collision_modules:
                beside += sum(each.numel() * each.element_size() for each in part._managed_collision_modules[name].buffers())
        return -(-beside // max(1, int(tensor.shape[0])))

    def is_virtual(self, name: str) -> bool:
        return bool(getattr(self.configs.get(name), "use_virtual_table", False))

    def held_rows(self, name: str, ranks: int, given: Optional[int]) -> int:
        """Of a virtual table: what the caller says, else what its policy lets every rank have before it evicts, else all; in whole buckets."""
        config = self.configs.get(name)
        buckets, rows = getattr(config, "total_num_buckets", None), getattr(config, "num_embeddings", 0)
        if not self.is_virtual(name) or not buckets:
            return 0
        of_policy = ranks * (getattr(getattr(config, "virtual_table_eviction_policy", None), "training_id_eviction_trigger_count", 0) or 0)
        held = min(given or of_policy or rows, rows)
        return int(-(-held // buckets) * buckets)

    def buckets(self, name: str, ranks: int) -> int:
        """Of a virtual table, and of a hash table of managed collisions where ranks do not have as many each. MCHManagedCollisionModule, rebuilt for its
        rank, takes any rows."""
        if self.is_virtual(name):
            return int(getattr(self.configs.get(name), "total_num_buckets", None) or 0)
        for part in self.module.modules():
            if isinstance(part, ManagedCollisionCollection) and name in part._managed_collision_modules:
                table = part._managed_collision_modules[name]
                return 0 if isinstance(table, MCHManagedCollisionModule) or table.buckets() % ranks == 0 else int(table.buckets())
        return 0

    def wire_types(self) -> Dict[str, Tuple[Any, Any]]:
        """Types on the wire, forward and backward, by collective; empty without codecs (as build_sharder_data reads them)."""
        pooled = (CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL, CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER)
        registry = self.trains.qcomm_codecs_registry or {}
        used = [each.name for each in (pooled if self.is_pooled else (CommOp.SEQUENCE_EMBEDDINGS_ALL_TO_ALL,)) if each.name in registry]
        return {name: (_wire_type(registry[name].forward), _wire_type(registry[name].backward)) for name in used}

    def weight_type(self, name: str, tensor: torch.Tensor) -> Any:
        """Of sharded weights: the configuration's; unsharded collections have fp16 for all that is neither fp32 nor fp16, quantised ones bytes, which
        their columns are of, but of INT4 and INT2."""
        bytes_ = tensor.dtype == torch.uint8 and not isinstance(tensor, UIntXTensor)
        return DataType.INT8 if bytes_ else getattr(self.configs.get(name), "data_type", tensor.dtype)


def _wire_type(codec: Any) -> Any:
    return getattr(codec, "_comm_precision", codec.quantized_dtype)  # FBGEMM's has uint8 for all types of a byte and less


_WIRE_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8}


def _wire_word(kind: Any) -> str:
    return service_dtype(kind) or ("fp8" if getattr(kind, "name", "") == "MX4" else "fp32")  # in a reduce-scatter both are 16 bits


def _one_wire(types: Dict[str, Tuple[Any, Any]]) -> Tuple[Tuple[str, str], List[str]]:
    """(forward, backward) in the service's words, and what that does not say: of several collectives the widest, but the all-to-all's where a
    reduce-scatter has the wider types that stand for fp8 there."""
    words = {name: tuple(map(_wire_word, pair)) for name, pair in types.items()}
    chosen = list(next(iter(words.values()), ("", "")))
    for pair in words.values():
        for at, word in enumerate(pair):
            if _WIRE_BITS[word] > _WIRE_BITS[chosen[at]] and (chosen[at], word) not in (("fp8", "fp16"), ("fp8", "bf16")):
                chosen[at] = word
    said = {name: [service_dtype(kind) or str(getattr(kind, "value", kind)) for kind in pair] for name, pair in types.items()}
    notes = [f"{name} is in {'/'.join(pair)} and priced in {'/'.join(chosen)}" for name, pair in said.items() if pair != chosen]
    return (chosen[0], chosen[1]), notes


def configs_of(module: nn.Module) -> List[Any]:
    for accessor in ("embedding_bag_configs", "embedding_configs"):
        if callable(getattr(module, accessor, None)):
            return list(getattr(module, accessor)())
    return []


def _common(lists: Sequence[List[str]]) -> List[str]:
    """What all of them have, in the order of the first: the service takes any kernel of a table with any of its sharding types."""
    return [each for each in lists[0] if all(each in other for other in lists)] if lists else []


class TableEnumerator(EmbeddingEnumerator):
    """TorchRec's enumerator, which here walks and filters without making, estimating and copying the shards of every option: seconds for hundreds of tables.

    statistics    whose pooling factors tables have where constraints say none
    stand_ins     STAND_INS and VIRTUAL_STAND_INS, or others
    held_rows     of virtual tables by name
    warnings      of the last `tables`
    """

    statistics: Optional[FeatureStatistics] = None
    stand_ins: Mapping[str, str] = {**STAND_INS, **VIRTUAL_STAND_INS}
    held_rows: Mapping[str, int] = {}
    warnings: Sequence[str] = ()

    def tables(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]], topology: Topology) -> List[ModuleTable]:
        """All tables of `module` that `sharders` shard, in the enumerator's order, but those of another device group than the topology's.

        PlannerError names every table that cannot be planned; what is left out, `warnings` say.
        """
        self._sharder_map = {sharder_name(sharder.module_type): sharder for sharder in sharders}
        self._sharder_data_map = build_sharder_data_map(self._sharder_map)
        owners, without_sharder = self._owners(module)
        warnings: List[str] = []
        if not any(owner.parameters for owner in owners):
            warnings.append(
                "the module has no tables that the sharders shard"
                + (f"; without a sharder: {', '.join(without_sharder)}" if without_sharder else "")
                + f" (sharders for: {', '.join(sharder.module_type.__name__ for sharder in sharders) or 'nothing'}): the plan is empty"
            )
        words, more_words = self._unknown_words()
        if words:  # before TorchRec speaks of them, table by table
            raise PlannerError("; ".join(words), PlannerErrorType.INPUT_VALIDATION)
        warnings += [*self._unknown_tables(owners), *more_words]
        faults: List[str] = []
        strict: Dict[str, List[str]] = {}  # tables by what is left to them
        others: List[str] = []  # of another device group
        tables = []
        for owner in owners:
            if runnable_types(owner.module, self._compute_device) is None:
                warnings.append(f"{owner.path}: modules of type {type(owner.module).__name__} were not tried; TorchRec may not run them as they are planned")
            faults += [f"{label((owner.path, name))}: two tables of the module have this name" for name in owner.doubles]
            for name, tensor in owner.parameters.items():
                constraint = (self._constraints or {}).get(name)
                if constraint and constraint.device_group and constraint.device_group != self._compute_device:
                    others.append(label((owner.path, name)))
                    continue
                table = self._table(owner, name, tensor)
                faults += [f"{table.label}: {fault}" for fault in self._faults(owner, table)]
                if not table.types:
                    strict.setdefault(self._offers(owner, name), []).append(table.label)
                tables.append(table)
        if others:
            warnings.append(f"of another device_group than the topology's {self._compute_device}, and not in the plan: {', '.join(others)}")
        if faults or strict:
            texts = faults + [f"{', '.join(labels)}: {text}" for text, labels in strict.items()]
            raise PlannerError("; ".join(texts), PlannerErrorType.INPUT_VALIDATION if faults else PlannerErrorType.STRICT_CONSTRAINTS)
        _leave_out(tables, HOST_TYPES, lambda table: topology.world_size % ranks_of_host(topology) != 0)
        _keep_means_whole(tables)
        self.warnings = warnings
        return tables

    def _unknown_tables(self, owners: Sequence[_Owner]) -> Iterator[str]:
        """Of constraints, those of tables that are not there."""
        names = {name: owner for owner in owners for name in owner.parameters}
        for given in sorted(set(self._constraints or {}) - set(names)):
            of_feature = [name for name, owner in names.items() if given in getattr(owner.configs.get(name), "feature_names", [])]
            of_label = [name for name, owner in names.items() if given == label((owner.path, name))]
            if of_feature:
                hint = f"; it is a feature of {' and '.join(of_feature)}"
            elif of_label:
                hint = f"; constraints go by the table's own name, {of_label[0]}"
            else:
                hint = did_you_mean(given, list(names))
            yield f"constraints for {given}: the module has no such table that the sharders shard{hint}"

    def _unknown_words(self) -> Tuple[List[str], List[str]]:
        """Of constraints, those that TorchRec has not and passes over: (where they leave nothing, where others are beside them)."""
        alone, beside = [], []
        for name, constraint in (self._constraints or {}).items():
            for field, words in (("sharding_types", ShardingType), ("compute_kernels", EmbeddingComputeKernel)):
                known = [each.value for each in words]
                given = getattr(constraint, field) or ()
                found = alone if not set(given) & set(known) else beside
                found += [
                    f"constraints for {name}: {field} has {str(word)!r}, which TorchRec does not have{did_you_mean(str(word), known)}"
                    for word in given
                    if word not in known
                ]
        return alone, beside

    def _owners(self, module: nn.Module) -> Tuple[List[_Owner], List[str]]:
        """(modules with a sharder, paths of embedding collections without one)."""
        owners, without = [], []
        stack = [("", module)]
        while stack:
            path, part = stack.pop()
            sharder = self._sharder_map.get(sharder_name(type(part)))
            if sharder:
                owners.append(_Owner(path, part, sharder))
                continue
            if configs_of(part):
                without.append(path or type(part).__name__)
            stack.extend((f"{path}.{name}" if path else name, child) for name, child in part.named_children())
        return owners, without

    def _kernels(self, owner: _Owner, name: str) -> Iterator[Tuple[str, str]]:
        """(sharding type, compute kernel) of the options that TorchRec would make, and DynamicEmb of its tables."""
        key, device = sharder_name(type(owner.module)), self._compute_device
        if getattr((self._constraints or {}).get(name), "use_dynamicemb", False):
            yield ROW_WISE, CUSTOMIZED
            return
        for kind in self._filter_sharding_types(name, owner.sharder.sharding_types(device), key):
            for kernel in self._filter_compute_kernels(name, owner.sharder.compute_kernels(kind, device), kind):
                yield kind, kernel

    def _words(self, owner: _Owner, name: str, dynamic: bool) -> Iterator[Tuple[str, str, str]]:
        """(sharding type, compute kernel, a word of the service for it) of the options that TorchRec runs with the table as it is."""
        virtual = owner.is_virtual(name)
        for kind, kernel in self._kernels(owner, name):
            if virtual != (kernel in VIRTUAL_STAND_INS) or (virtual and kind != ROW_WISE):
                continue
            word = kernel if kernel in kernels_of(kind) else self.stand_ins.get(kernel, "")
            if dynamic and word not in dynamic_tables.KERNELS:
                word = DYNAMIC
            for each in dynamic_tables.KERNELS if word == DYNAMIC else (word,):
                if each not in dynamic_tables.KERNELS or kind == ROW_WISE:
                    yield kind, kernel, each

    def _table(self, owner: _Owner, name: str, tensor: torch.Tensor) -> ModuleTable:
        constraint = (self._constraints or {}).get(name)
        offers: Dict[str, List[str]] = {}
        own_kernels: Dict[str, str] = {}
        dynamic = bool(getattr(constraint, "use_dynamicemb", False))
        for kind, kernel, word in self._words(owner, name, dynamic):
            if word == KEY_VALUE and covering_dtype(owner.weight_type(name, tensor)) not in KEY_VALUE_DTYPES:
                continue
            if word in kernels_of(kind) and owner.runs(name, tensor, kind, self._compute_device):
                if word not in offers.setdefault(kind, []):
                    offers[kind].append(word)
                if own_kernels.get(word) != word:
                    own_kernels[word] = kernel
        own_kernels = {word: kernel for word, kernel in own_kernels.items() if word != kernel}
        kernels = _common([each for kind, each in offers.items() if kind != DATA_PARALLEL])
        runnable = dict.fromkeys([*offers, *owner.sharder.sharding_types(self._compute_device), *owner.sharder.sharding_types("cuda")])
        cached = any(each in kernels for each in CACHED_KERNELS)
        cache = (constraint and constraint.cache_params) or CacheParams()
        prefetched = cached and bool(cache.prefetch_pipeline or owner.fused_params.get("prefetch_pipeline"))
        optimizer = owner.optimizer_name(tensor)
        # FBGEMM trains int8 with 8 bytes of scale and bias, which is the service's int8; a cache holds them with the row.
        quantised = isinstance(owner.sharder, BaseQuantEmbeddingSharder)
        in_bytes, trains = quantised and not cached, not quantised
        weight_type, output_type = owner.weight_type(name, tensor), self._output_type(owner, name)
        wire, wire_notes = _one_wire(owner.wire_types())
        features = list((constraint and constraint.feature_names) or getattr(owner.configs.get(name), "feature_names", []))
        factors = list(constraint.pooling_factors) if constraint else [POOLING_FACTOR]
        # TorchRec's default, whatever the number of features, unless num_poolings and the like have another one. Features that the statistics lack are
        # refused where the request is made.
        beside = (constraint and (constraint.num_poolings or constraint.batch_sizes)) or features or [name]
        default = factors == [POOLING_FACTOR] and len(beside) == len(features or [name])
        known = default and self.statistics is not None and bool(features) and set(features) <= set(self.statistics.features)
        if default:
            factors = [self.statistics.pooling_factor(feature) if known and self.statistics else POOLING_FACTOR for feature in features or [name]]
        return ModuleTable(
            path=owner.path,
            name=name,
            module=owner.module,
            tensor=tensor,
            fused_params=owner.fused_params,
            stashed=MemoryStashingManager.resolve_stash_weights(name, owner.configs.get(name)),
            writable=not owner.is_pooled and bool(getattr(owner.configs.get(name), "enable_embedding_update", False)),
            types=[kind for kind in offers if kind == DATA_PARALLEL or kernels],
            kernels=kernels,
            own_kernels=own_kernels,
            runnable_types=[kind for kind in runnable if owner.runs(name, tensor, kind, self._compute_device)],
            constrained=bool(constraint and constraint.sharding_types),
            constraints=self._constraints,
            features=features,
            pooling_factors=factors,
            pooling_factors_of_statistics=known,
            is_pooled=owner.is_pooled,
            weight_dtype="fp8" if in_bytes and service_dtype(weight_type) not in NARROW else covering_dtype(weight_type, trains),
            output_dtype=covering_dtype(output_type),
            wire_dtypes=wire,
            pooling_mode="mean" if owner.pools_by_mean(name) else "sum",
            weighted=owner.is_pooled and (owner.is_weighted or bool(constraint and constraint.is_weighted)),
            cache_load_factor=self._load_factor(owner, name, tensor, cache) if cached else None,
            key_value_params=(constraint and constraint.key_value_params if KEY_VALUE in kernels else None) or KeyValueParams(),
            prefetched=prefetched,
            optimizer=_OPTIMIZERS.get(optimizer),
            optimizer_name=optimizer,
            dependency=owner.dependency(name),
            row_positions=isinstance(owner.sharder, RowPositions),
            extra_bytes_per_row=owner.bytes_beside_row(name, tensor),
            scale_bytes_per_row=SCALE_AND_BIAS_BYTES if in_bytes else 0,
            buckets=owner.buckets(name, self._world_size),
            held_rows=owner.held_rows(name, self._world_size, self.held_rows.get(name)),
            unpriced=unpriced.of_sharder(owner.trains, owner.is_pooled)
            + unpriced.of_constraint(constraint, owner.is_pooled)
            + (unpriced.of_host_memory(constraint) if any(each in kernels for each in HOST_KERNELS) else [])
            + unpriced.of_config(owner.configs.get(name))
            + (unpriced.of_prefetching(cache, owner.fused_params) if prefetched else [])
            + _counted_wider("weights", weight_type, trains)
            + _counted_wider("output_dtype", output_type)
            + [f"kernel {kernel} is priced and counted as {word}" for word, kernel in own_kernels.items() if word in kernels]
            + wire_notes,
        )

    def _load_factor(self, owner: _Owner, name: str, tensor: torch.Tensor, cache: CacheParams) -> Optional[float]:
        """Of a virtual table in host memory what its cache on each device is limited to, which FBGEMM makes for all rows of its ids' range."""
        constraint = (self._constraints or {}).get(name)
        most = constraint and constraint.key_value_params and constraint.key_value_params.max_l1_cache_size
        if owner.is_virtual(name) and most:
            held = owner.held_rows(name, self._world_size, self.held_rows.get(name))
            return min(1.0, most * (1 << 20) * self._world_size / max(1, held * int(tensor.shape[-1]) * tensor.element_size()))
        return min(1.0, cache.load_factor or owner.fused_params.get("cache_load_factor") or 0.0) or None

    def _output_type(self, owner: _Owner, name: str) -> Any:
        """Of the vectors that lookups give, as TorchRec's runtime takes it; empty where nothing says."""
        constraint = (self._constraints or {}).get(name)
        return (constraint and constraint.output_dtype) or owner.fused_params.get("output_dtype") or ""

    def _faults(self, owner: _Owner, table: ModuleTable) -> Iterator[str]:
        constraint = (self._constraints or {}).get(table.name)
        if table.tensor.dim() != 2:
            yield f"has shape {list(table.tensor.shape)}; a table has rows and columns"
        if not table.weight_dtype:
            yield f"has weights of {owner.weight_type(table.name, table.tensor)}; the service plans types of at most 32 bits"
        if self._output_type(owner, table.name) and not table.output_dtype:
            yield f"its output_dtype is {self._output_type(owner, table.name)}; the service plans types of at most 32 bits"
        if not owner.is_virtual(table.name) and (constraint and constraint.use_virtual_table):
            yield "constraints say use_virtual_table, and its configuration does not"
        elif owner.is_virtual(table.name) and not table.buckets:
            yield "is a virtual table (use_virtual_table) without total_num_buckets, which TorchRec does not train"
        elif table.buckets and (table.buckets < self._world_size or table.tensor_rows % table.buckets):
            yield f"has {table.tensor_rows} rows in {table.buckets} buckets, which TorchRec does not spread over {self._world_size} ranks"

    def _offers(self, owner: _Owner, name: str) -> str:
        columns = owner.parameters[name].shape[-1]
        if columns % COLUMN_MULTIPLE and not (self._compute_device == "cpu" and owner.is_pooled):  # where data_parallel may have any
            padded = -(-columns // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
            return f"FBGEMM takes columns in multiples of {COLUMN_MULTIPLE}: pad its embedding_dim from {columns} to {padded}"
        kernels = ((self._constraints or {}).get(name) or ParameterConstraints()).compute_kernels
        offers = [f"{kind} with {kernel}" for kind, kernel in self._kernels(owner, name)]
        types = runnable_types(owner.module, self._compute_device)
        runs = "" if types is None else f"; TorchRec runs {', '.join(types) or 'no sharding type'} of {type(owner.module).__name__} there"
        if kernels and not offers:
            runs = f", where compute_kernels may only be {' or '.join(kernels)}{runs}"
        uncut = dict.fromkeys(owner.why_uncut(name, owner.parameters[name], kind) for kind, _ in self._kernels(owner, name))
        runs += "".join(f"; {why}" for why in uncut if why)
        if owner.is_virtual(name) or set(kernels or ()) & set(VIRTUAL_STAND_INS):
            runs += f"; virtual tables (use_virtual_table), and no others, are row_wise with {' or '.join(VIRTUAL_STAND_INS)}"
        if columns % COLUMN_MULTIPLE:
            runs += f"; FBGEMM takes columns in multiples of {COLUMN_MULTIPLE}, but of data_parallel"
        return (
            f"{type(owner.sharder).__name__} and constraints leave {', '.join(offers) or 'nothing'} on {self._compute_device}{runs};"
            f" the service plans the kernels {', '.join(kernels_of(''))}, and dense for data_parallel{'' if owner.is_pooled else ', which unpooled tables cannot be'}"
        )


def _leave_out(tables: Sequence[ModuleTable], types: Collection[str], where: Callable[[ModuleTable], bool]) -> None:
    """Takes `types` from tables that may have others as well."""
    for table in tables:
        left = [kind for kind in table.types if kind not in types]
        if left and where(table):
            table.types = left


def _keep_means_whole(tables: Sequence[ModuleTable]) -> None:
    """Takes the types that cut rows from mean-pooled tables, unless they are alone in their module; where that leaves none, the others from its other tables.

    TorchRec divides by the number of ids after rows were added up, and 1.9 then divides the values of the module's other tables as well.
    """
    sizes = collections.Counter(table.path for table in tables)
    _leave_out(tables, ROW_TYPES, lambda table: table.pooling_mode == "mean" and sizes[table.path] > 1)
    cut = {table.path for table in tables if table.pooling_mode == "mean" and set(table.types) <= ROW_TYPES}
    _leave_out(tables, {kind.value for kind in ShardingType} - ROW_TYPES, lambda table: table.path in cut)
