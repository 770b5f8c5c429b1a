"""The tables of a module as TorchRec's enumerator sees them (torchrec/distributed/planner/enumerators.py)."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    Enumerator,
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    SharderDataMap,
    ShardEstimator,
    ShardingOption,
    Topology,
)
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.types import ModuleSharder, ShardingType
from torchrec.modules.embedding_configs import DataType, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollectionInterface

TableKey = Tuple[str, str]
"""(path of the module, name of the table): what identifies a table in a ShardingPlan."""

_WEIGHT_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", DataType.FP32: "fp32", DataType.FP16: "fp16", DataType.BF16: "bf16"}

_OPTIMIZERS = {
    "SGD": "sgd",
    "EXACT_SGD": "sgd",
    "Adagrad": "adagrad",
    "EXACT_ADAGRAD": "adagrad",
    "RowWiseAdagrad": "rowwise_adagrad",
    "EXACT_ROWWISE_ADAGRAD": "rowwise_adagrad",
    "Adam": "adam",
    "ADAM": "adam",
}


ROW_TYPES = {ShardingType.ROW_WISE.value, ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value}


class _EstimatesOfChosenOptions(ShardEstimator):
    """TorchRec's two estimators, asleep while it enumerates: the service prices plans, and estimates of every option take seconds."""

    def __init__(self, topology: Topology, constraints: Optional[Dict[str, ParameterConstraints]]) -> None:
        self.awake = False
        self._estimators = [EmbeddingPerfEstimator(topology, constraints), EmbeddingStorageEstimator(topology, constraints)]

    def estimate(self, sharding_options: List[ShardingOption], sharder_data_map: SharderDataMap) -> None:
        if self.awake:
            for estimator in self._estimators:
                estimator.estimate(sharding_options, sharder_data_map)


class TableEnumerator(EmbeddingEnumerator):
    """TorchRec's enumerator, which estimates only what it is asked to with `populate_estimates`."""

    def __init__(self, topology: Topology, batch_size: int, constraints: Optional[Dict[str, ParameterConstraints]]) -> None:
        self._chosen = _EstimatesOfChosenOptions(topology, constraints)
        super().__init__(topology, batch_size, constraints, estimator=self._chosen)

    def estimate_chosen(self, options: List[ShardingOption]) -> None:
        """Fills perf and storage of the shards of options that come from the last `enumerate`."""
        self._chosen.awake = True
        try:
            self.populate_estimates(options)
        finally:
            self._chosen.awake = False


@dataclass
class ModuleTable:
    """A table of a module and the ways of sharding it that sharders and constraints leave."""

    options: Dict[str, ShardingOption]  # by sharding type; the service's one kernel of that type
    runnable_types: List[str]  # sharding types that its sharded module can run; a sharder for cpu offers fewer
    constrained: bool  # whether constraints name its sharding types
    features: List[str]
    weight_dtype: str
    pooling_mode: str
    weighted: bool
    optimizer: Optional[str]  # the service's word; None: of a kind that it does not know
    optimizer_name: str

    @property
    def option(self) -> ShardingOption:
        return next(iter(self.options.values()))

    @property
    def key(self) -> TableKey:
        return self.option.path, self.option.name

    @property
    def label(self) -> str:
        return label(self.key)

    @property
    def rows(self) -> int:
        return int(self.option.tensor.shape[0])

    @property
    def cols(self) -> int:
        return int(self.option.tensor.shape[1])


def label(key: TableKey) -> str:
    """How messages name a table: as in a state_dict, without ".weight"."""
    return ".".join(part for part in key if part)


def service_kernel(sharding_type: str) -> str:
    """The one compute kernel that plans of the service have for a sharding type."""
    return (EmbeddingComputeKernel.DENSE if sharding_type == ShardingType.DATA_PARALLEL.value else EmbeddingComputeKernel.FUSED).value


def _can_be_planned(option: ShardingOption) -> bool:
    """TorchRec offers data_parallel for an EmbeddingCollection, and fails when it runs."""
    if option.sharding_type == ShardingType.DATA_PARALLEL.value and not option.is_pooled:
        return False
    return option.compute_kernel == service_kernel(option.sharding_type)


def _table_configs(module: nn.Module) -> Iterator[Any]:
    """Configurations of all tables in `module`, those of the collections that it wraps included; each once."""
    seen = set()
    for part in module.modules():
        for accessor in ("embedding_bag_configs", "embedding_configs"):
            configs = getattr(part, accessor, None)
            if callable(configs):
                for config in configs():
                    if id(config) not in seen:
                        seen.add(id(config))
                        yield config


def _optimizer_of(option: ShardingOption, sharder: ModuleSharder[nn.Module]) -> str:
    """Name of the class or FBGEMM's EmbOptimType with which the table will be trained; FBGEMM's default is EXACT_SGD."""
    classes = getattr(option.tensor, "_optimizer_classes", None)
    if classes:
        return "+".join(each.__name__ for each in classes)
    module = option.module[1]
    if callable(getattr(module, "optimizer_type", None)):  # fused collections bring their own
        return str(module.optimizer_type().__name__)
    chosen = (getattr(sharder, "fused_params", None) or {}).get("optimizer", "EXACT_SGD")
    return str(getattr(chosen, "name", chosen))


def _weight_type(option: ShardingOption, config: Any) -> Any:
    """What sharded weights are of: the configuration's type; an unsharded collection has fp16 where that is neither fp32 nor fp16."""
    return getattr(config, "data_type", option.tensor.dtype)


def _refuse_what_has_no_place(option: ShardingOption, config: Any, constraint: Optional[ParameterConstraints], topology: Topology) -> List[str]:
    """Faults of a table that the service cannot plan."""
    faults = []
    if option.tensor.dim() != 2:
        faults.append(f"has shape {list(option.tensor.shape)}; a table has rows and columns")
    if _weight_type(option, config) not in _WEIGHT_DTYPES:
        faults.append(f"has weights of {_weight_type(option, config)}; the service plans fp32, fp16 and bf16")
    if getattr(config, "use_virtual_table", False) or (constraint is not None and constraint.use_virtual_table):
        faults.append("is a virtual table (use_virtual_table), which the service does not plan")
    if option.sharding_type == ShardingType.ROW_WISE.value and topology._custom_topology_data is None:
        sizes = [shard.size[0] for shard in option.shards]
        if sizes != row_blocks(int(option.tensor.shape[0]), topology.world_size):
            faults.append(f"has rows in buckets ({sizes} on the ranks), which the service does not plan")
    return faults


def _runnable(offered: Iterable[str], on_gpus: Sequence[str], is_pooled: bool) -> List[str]:
    return [each for each in dict.fromkeys([*offered, *on_gpus]) if is_pooled or each != ShardingType.DATA_PARALLEL.value]


def row_blocks(rows: int, parts: int) -> List[int]:
    """TorchRec's blocks: ceil(rows / parts) until none are left."""
    block = -(-rows // parts)
    return [max(0, min(block, rows - block * part)) for part in range(parts)]


def _enumerate(enumerator: Enumerator, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]) -> List[ShardingOption]:
    try:
        return enumerator.enumerate(module=module, sharders=list(sharders))
    except (RuntimeError, ValueError, AssertionError) as fault:
        raise PlannerError(f"TorchRec finds no way of sharding the module: {fault}", PlannerErrorType.STRICT_CONSTRAINTS) from fault


def _skipped(module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]) -> Tuple[List[TableKey], List[str]]:
    """(tables that some sharder takes, paths of embedding collections that none does)."""
    by_type = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    tables: List[TableKey] = []
    without: List[str] = []
    stack = [("", module)]
    while stack:
        path, part = stack.pop()
        sharder = by_type.get(sharder_name(type(part)))
        if sharder:
            tables.extend((path, name) for name in sharder.shardable_parameters(part))
            continue
        if callable(getattr(part, "embedding_bag_configs", None)) or callable(getattr(part, "embedding_configs", None)):
            without.append(path or type(part).__name__)
        stack.extend((f"{path}.{name}" if path else name, child) for name, child in part.named_children())
    return tables, without


def read_tables(
    module: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]],
    enumerator: Enumerator,
    topology: Topology,
    constraints: Optional[Dict[str, ParameterConstraints]],
) -> List[ModuleTable]:
    """All tables of `module` that `sharders` shard, in the enumerator's order.

    PlannerError names every table that cannot be planned and every constraint without a table: nothing is left out silently.
    """
    options = _enumerate(enumerator, module, sharders)
    expected, without_sharder = _skipped(module, sharders)
    if not expected:
        raise PlannerError(
            "the module has no tables that the sharders shard"
            + (f"; without a sharder: {', '.join(without_sharder)}" if without_sharder else "")
            + f" (sharders for: {', '.join(sharder.module_type.__name__ for sharder in sharders) or 'nothing'})",
            PlannerErrorType.INPUT_VALIDATION,
        )
    by_table: Dict[TableKey, List[ShardingOption]] = {}
    for option in options:
        by_table.setdefault((option.path, option.name), []).append(option)

    faults = [
        f"{label(key)}: its device_group is {(constraints or {})[key[1]].device_group!r} and the topology's device {topology.compute_device!r}"
        for key in expected
        if key not in by_table
    ]
    unknown = sorted(set(constraints or {}) - {name for _, name in expected})
    if unknown:
        faults.append(f"constraints for {', '.join(unknown)}: the module has no such table that the sharders shard")

    by_sharder = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    configs: Dict[str, Dict[str, Any]] = {}
    tables = []
    for key, choices in by_table.items():
        path, name = key
        owner = choices[0].module[1]
        if path not in configs:
            configs[path] = {}
            for config in _table_configs(owner):
                if config.name in configs[path]:
                    faults.append(f"{label((path, config.name))}: two tables of the module have this name")
                configs[path][config.name] = config
        config, constraint = configs[path].get(name), (constraints or {}).get(name)
        for option in choices:
            found = _refuse_what_has_no_place(option, config, constraint, topology)
            faults += [f"{label(key)}: {fault}" for fault in found if f"{label(key)}: {fault}" not in faults]
        usable = {option.sharding_type: option for option in choices if _can_be_planned(option)}
        if not usable:
            offered = sorted({f"{option.sharding_type} with {option.compute_kernel}" for option in choices})
            faults.append(
                f"{label(key)}: its sharder and constraints leave {', '.join(offered)}; the service plans the kernel fused,"
                " and dense for data_parallel, which unpooled tables cannot be"
            )
            continue
        sharder = by_sharder[sharder_name(type(owner))]
        optimizer_name = _optimizer_of(choices[0], sharder)
        tables.append(
            ModuleTable(
                options=usable,
                runnable_types=_runnable(usable, sharder.sharding_types("cuda"), choices[0].is_pooled),
                constrained=bool(constraint and constraint.sharding_types),
                features=list((constraint and constraint.feature_names) or getattr(config, "feature_names", [])),
                weight_dtype=_WEIGHT_DTYPES.get(_weight_type(choices[0], config), ""),
                pooling_mode="mean" if _pools_by_mean(config, owner) else "sum",
                weighted=_is_weighted(owner) or bool(constraint and constraint.is_weighted),
                optimizer=_OPTIMIZERS.get(optimizer_name),
                optimizer_name=optimizer_name,
            )
        )
    if faults:
        raise PlannerError("; ".join(faults), PlannerErrorType.INPUT_VALIDATION)
    _keep_means_whole(tables)
    return tables


def _keep_means_whole(tables: Sequence[ModuleTable]) -> None:
    """Takes the types that cut rows from mean-pooled tables whose constraints do not ask for them, unless they are alone in their module.

    TorchRec divides by the number of ids after rows were added up, and 1.9 then divides the values of the module's other tables as well.
    """
    sizes = collections.Counter(table.key[0] for table in tables)
    for table in tables:
        whole = {kind: option for kind, option in table.options.items() if kind not in ROW_TYPES}
        if table.pooling_mode == "mean" and sizes[table.key[0]] > 1 and not table.constrained and whole:
            table.options = whole


def _is_weighted(owner: nn.Module) -> bool:
    """Whether ids have weights, also within the modules that wrap a collection."""
    return any(part.is_weighted() for part in owner.modules() if isinstance(part, EmbeddingBagCollectionInterface))


def _pools_by_mean(config: Any, owner: nn.Module) -> bool:
    if config is None:  # a bare nn.EmbeddingBag
        return getattr(owner, "mode", None) == "mean"
    return getattr(config, "pooling", None) == PoolingType.MEAN
