"""The service's request for the tables of a module: TorchRec's Topology, ParameterConstraints and storage reservation in the service's words."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from google.protobuf import json_format
from torchrec.distributed.planner.constants import (
    BWD_COMPUTE_MULTIPLIER,
    CROSS_NODE_BANDWIDTH,
    DDR_CAP,
    DDR_MEM_BW,
    HBM_CAP,
    HBM_MEM_BW,
    INTRA_NODE_BANDWIDTH,
    POOLING_FACTOR,
    WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER,
)
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import BasicCommsBandwidths, CollectiveType, ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.types import PipelineType

from neuroshard import dynamic_tables, v1
from neuroshard.similar_word import did_you_mean
from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.hardware_perf_config import DeviceFigures, device_figures
from neuroshard.torchrec.layout import Layout, to_message
from neuroshard.torchrec.miss_ratio_curve import zipf_fit
from neuroshard.torchrec.module_tables import DATA_PARALLEL, DENSE, FUSED, HOST_KERNELS, KEY_VALUE, MAX_ROWS, NARROW, ROW_WISE, ModuleTable, ranks_of_host
from neuroshard.torchrec.unpriced import by_text

MILLISECONDS = 1000.0  # in a second: TorchRec's bandwidths are bytes per millisecond, the service's per second
COMPUTE_DEVICES = ("cpu", "cuda")
PIPELINES = (PipelineType.TRAIN_SPARSE_DIST, PipelineType.TRAIN_PREFETCH_SPARSE_DIST)
LEAST_BANDWIDTH = 1000.0  # bytes per millisecond, as the service has it
MIB, GIB = 1 << 20, 1 << 30  # of KeyValueParams' sizes of caches
_BYTES = {"fp32": 4, "fp16": 2}  # of a value on SSD

Constraints = Mapping[str, ParameterConstraints]


def _refuse(message: str) -> PlannerError:
    return PlannerError(message, PlannerErrorType.INPUT_VALIDATION)


def check_base(base: v1.ShardPlanRequest) -> None:
    """A caller's request says what TorchRec has no word for; what is read from the module must not be in it as well."""
    given = [field.name for field, _ in base.ListFields() if field.name in ("tables", "topology", "global_batch_size")]
    if given:
        raise _refuse(f"request: {', '.join(given)} must be absent: they are read from the module, the topology and batch_size")


def _memory(topology: Topology) -> List[int]:
    """Bytes of each device's own memory."""
    return [device.storage.ddr if topology.compute_device == "cpu" else device.storage.hbm for device in topology.devices]


def _host(reserved: Topology, ranks: range, host_memory: bool, ssd: bool) -> v1.HostGroup:
    """The host's memory and SSDs for tables. TorchRec has a ddr_cap and an ssd_cap a rank, the service one for all ranks of a host: the least."""

    def caps(memory: str) -> Tuple[int, int]:
        found = [getattr(reserved.devices[rank].storage, memory) for rank in ranks]
        return sum(found), max(min(found), 1 if sum(found) else 0)  # 0 would be no limit

    host = v1.HostGroup()
    if host_memory:
        host.host_memory_bytes, host.max_host_memory_bytes_per_device = caps("ddr")
    if ssd:
        host.ssd_bytes, host.max_ssd_bytes_per_device = caps("ssd")
    return host


def _links(topology: Topology) -> Tuple[float, float, List[str]]:
    """(within a host, between hosts) in bytes per millisecond, and what these two do not say of a GeneralizedCommsBandwidth."""
    bandwidths = topology.comms_bandwidths
    if isinstance(bandwidths, BasicCommsBandwidths):
        return topology.intra_host_bw, topology.inter_host_bw, []
    slowest = []
    for ranks in (topology.local_world_size, topology.world_size):
        found = [
            bandwidths.get_bw(world_size=ranks, local_world_size=topology.local_world_size, collective_type=kind)
            for kind in CollectiveType
            if kind != CollectiveType.ALL_REDUCE
        ]
        slowest.append(min(found))
    within, between = slowest[0], slowest[1] if topology.world_size > topology.local_world_size else topology.inter_host_bw
    said = f"generalized_comms_bandwidths: exchanges are priced at {within:.6g} bytes per millisecond in a host and {between:.6g} between hosts"
    return within, between, [f"{said}, those of the slowest collective over all ranks; an all-reduce goes at that of all ranks of a host"]


def _caps_told(reserved: Topology, memories: Sequence[str]) -> List[str]:
    local = ranks_of_host(reserved)
    return [
        f"{memory}_cap of ranks of a host differs: the least is taken for each of them"
        for memory in memories
        if any(len({getattr(device.storage, memory) for device in reserved.devices[at : at + local]}) > 1 for at in range(0, reserved.world_size, local))
    ]


def _bandwidth_faults(topology: Topology, figures: DeviceFigures, links: Tuple[float, float], ssd: bool) -> List[str]:
    own_memory = "ddr_mem_bw" if topology.compute_device == "cpu" else "hbm_mem_bw"
    named = {own_memory: figures.memory_bw, "intra_host_bw": links[0], "inter_host_bw": links[1]}
    if ssd:
        named["ssd_mem_bw"] = topology.ssd_mem_bw
    return [
        f"{name} is {value:.6g} bytes per millisecond, TorchRec's unit; {LEAST_BANDWIDTH:.6g} are the least (450 GB/s are 450e6)"
        for name, value in named.items()
        if not value >= LEAST_BANDWIDTH
    ]


def topology_message(
    topology: Topology, reserved: Topology, figures: DeviceFigures, host_memory: bool, ssd: bool, device: str
) -> Tuple[v1.Topology, int, List[str]]:
    """(the service's topology, bytes that are kept free on every device, what that does not say).

    `reserved` is what TorchRec's StorageReservation left of `topology`. Hosts are TorchRec's intra groups (pod_size hosts, where it is given):
    the ranks that table_row_wise and its like stay within. `figures`: of the devices. `host_memory`, `ssd`: whether tables may be there. `device`:
    of all hosts, empty where it is not known.
    """
    local = ranks_of_host(topology)
    own = (
        ("bwd_compute_multiplier", figures.bwd_compute_multiplier, BWD_COMPUTE_MULTIPLIER),
        ("weighted_feature_bwd_compute_multiplier", figures.weighted_feature_bwd_compute_multiplier, WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER),
        ("uneven_sharding_perf_multiplier", topology.uneven_sharding_perf_multiplier, 1.0),
    )
    within, between, warnings = _links(topology)
    warnings += figures.unsaid + [
        f"{name} is {value}, and priced as {default}, TorchRec's default: cost models have their own"
        + ", but for one that write_cost_model wrote of it" * name.endswith("compute_multiplier")
        for name, value, default in own
        if value != default
    ]
    warnings += _caps_told(reserved, ["ddr"] * host_memory + ["ssd"] * ssd)
    if topology.compute_device not in COMPUTE_DEVICES:
        warnings.append(f"compute_device {topology.compute_device!r} is priced as 'cuda' with the topology's figures")
    faults = _bandwidth_faults(topology, figures, (within, between), ssd)
    if faults:
        raise _refuse("topology: " + "; ".join(faults))

    full, left = _memory(topology), _memory(reserved)
    most = max(range(len(left)), key=lambda rank: left[rank])
    if left[most] <= 0:
        raise PlannerError(
            f"rank {most}: the storage reservation leaves {left[most]} of {full[most]} bytes for tables, and others no more",
            PlannerErrorType.INSUFFICIENT_STORAGE,
        )
    reserve = max(0, min(before - after for before, after in zip(full, left)))
    message = v1.Topology(compute_device=topology.compute_device if topology.compute_device in COMPUTE_DEVICES else "cuda")
    last = v1.HostGroup()
    for first in range(0, topology.world_size, local):
        sizes = [max(1, after + reserve) for after in left[first : first + local]]
        host = _host(reserved, range(first, first + len(sizes)), host_memory, ssd)
        host.num_devices, host.device = len(sizes), device
        if len(set(sizes)) > 1:
            host.device_memory_bytes.extend(sizes)
        else:
            host.memory_bytes = sizes[0]
        if host.memory_bytes and host == last:
            message.hosts[-1].count += 1
        else:
            message.hosts.append(host)
            if host.memory_bytes:
                message.hosts[-1].count = 1
        last = host
    message.bandwidths.device_memory_bytes_per_s = figures.memory_bw * MILLISECONDS
    # TorchRec's estimators send everything between the hosts of a pod as between pods.
    within = within if topology.intra_group_size == topology.local_world_size else between
    message.bandwidths.intra_host_bytes_per_s = within * MILLISECONDS
    message.bandwidths.inter_host_bytes_per_s = between * MILLISECONDS
    if host_memory:
        message.bandwidths.host_to_device_bytes_per_s = figures.host_to_device_bw * MILLISECONDS
    if ssd:
        message.bandwidths.ssd_bytes_per_s = topology.ssd_mem_bw * MILLISECONDS
    return message, reserve, warnings


def _l2_cache_bytes(table: ModuleTable) -> int:
    """TorchRec's size is of the cache of all tables that FBGEMM looks up together; no table needs more than it has itself."""
    return min((table.key_value_params.l2_cache_size or 0) * GIB, table.rows * table.cols * _BYTES.get(table.weight_dtype, 0))


def _filled(values: Sequence[Any], count: int) -> List[Any]:
    """At least `count` values; those that are missing are as large as the largest."""
    return [*values, *[max(values)] * (count - len(values))] if values else []


def _table_message(
    table: ModuleTable,
    constraint: Optional[ParameterConstraints],
    statistics: Optional[FeatureStatistics],
    hot_row_blocks: bool,
    world_size: int,
    host_memory: bool,
    memory_rule: str,
) -> v1.Table:
    unknown = [feature for feature in table.features if statistics is not None and feature not in statistics.features]
    if unknown:
        raise _refuse(f"{table.label}: the statistics have no feature {', '.join(unknown)}")
    factors = table.pooling_factors
    poolings: Sequence[float] = (constraint and constraint.num_poolings) or []
    batches: Sequence[int] = (constraint and constraint.batch_sizes) or []
    # TorchRec does not compare their number with the table's features.
    features = list(dict.fromkeys(table.features)) or [table.key[1]]
    features += [f"{table.key[1]}[{index}]" for index in range(len(features), len(factors))]
    for name, given in (("pooling_factors", factors), ("num_poolings", poolings), ("batch_sizes", batches)):
        if given and len(given) != len(factors):
            raise _refuse(f"{table.label}: {len(given)} {name} for {len(factors)} pooling_factors")
        if not all(math.isfinite(each) and each >= 0 for each in given):
            raise _refuse(f"{table.label}: {name} {list(given)} must be finite and not negative")
    most = table.key_value_params.max_l1_cache_size
    has_scales = table.weight_dtype in NARROW and memory_rule != "torchrec"
    if table.rows > MAX_ROWS:
        raise _refuse(
            f"{table.label}: may hold {table.rows} rows, and the service plans at most {MAX_ROWS}:"
            f" held_rows={{{table.name!r}: ...}} says how many it holds, or an eviction policy with training_id_eviction_trigger_count"
        )
    return v1.Table(
        name=table.key[1],
        module=table.key[0],
        kind="embedding_bag" if table.is_pooled else "embedding",
        num_embeddings=table.rows,
        embedding_dim=table.cols,
        features=features,
        pooling_factors=_filled(factors, len(features)),
        num_poolings=_filled(poolings, len(features)),
        feature_batch_sizes=_filled([each * world_size for each in batches], len(features)),
        reuse_histogram=statistics.reuse_histogram(table.features) if statistics is not None and table.features else [],
        weight_dtype=table.weight_dtype,
        output_dtype=table.output_dtype,
        pooling_mode=table.pooling_mode if table.is_pooled else "",
        weighted=table.weighted or (table.is_pooled and statistics is not None and statistics.has_weights),
        hot_row_blocks=hot_row_blocks,
        max_l1_cache_bytes=None if most is None else most * MIB,
        l2_cache_bytes=_l2_cache_bytes(table) if host_memory else 0,
        extra_bytes_per_row=table.extra_bytes_per_row + (0 if has_scales else table.scale_bytes_per_row),
        stash_weights=table.stashed,
    )


def _exchanged(table: ModuleTable) -> float:
    """Values of a sample on the wire."""
    return table.cols * (len(table.features or [""]) if table.is_pooled else sum(table.pooling_factors))


def _dominant(tables: Sequence[ModuleTable], of: Callable[[ModuleTable], Any], weight: Callable[[ModuleTable], float]) -> Any:
    """What the tables have the most of by weight; of equal ones the first."""
    weights: Dict[Any, float] = {}
    for table in tables:
        weights[of(table)] = weights.get(of(table), 0.0) + weight(table)
    return max(weights, key=lambda each: weights[each])


def _estimator(enumerator: EmbeddingEnumerator) -> Optional[EmbeddingStorageEstimator]:
    return next((each for each in enumerator._estimators if isinstance(each, EmbeddingStorageEstimator)), None)


def _pipeline(enumerator: EmbeddingEnumerator, tables: Sequence[ModuleTable]) -> str:
    """What the enumerator's storage estimator counts for: `none` for TrainPipelineBase, which distributes ids before each lookup. Where it counts for none,
    prefetched caches say which it is; empty: nobody said."""
    estimator = _estimator(enumerator)
    if estimator is not None and estimator._pipeline_type in PIPELINES:
        return str(estimator._pipeline_type.value)
    if estimator is not None and estimator._pipeline_type == PipelineType.TRAIN_BASE:
        return "none"
    return PipelineType.TRAIN_PREFETCH_SPARSE_DIST.value if any(table.prefetched for table in tables) else ""


def _memory_rule(enumerator: EmbeddingEnumerator) -> Tuple[str, List[str]]:
    """(the one that counts what the enumerator's storage estimator is told to; what to know of it)."""
    estimator = _estimator(enumerator)
    if estimator is not None and estimator._is_inference:
        return "weights_only", ["is_inference: memory is counted of weights alone, as TorchRec does"]
    if estimator is not None and estimator._run_embedding_at_peak_memory and estimator._pipeline_type in PIPELINES:
        return "full", ["run_embedding_at_peak_memory: memory is counted by the rule 'full', which has the vectors beside the pipeline's ids"]
    return "torchrec", []


def _state(table: ModuleTable) -> str:
    """The optimizer whose state the table has, or one that has as much as any."""
    return table.optimizer or "adam"


def _kept_apart(table: ModuleTable, types: List[str], previous: Layout) -> List[str]:
    """Without those that would take the table from data_parallel to sharded or back, where TorchRec's checkpoints lose its optimizer state."""
    before = previous.get(table.key)
    if before is None:
        return types
    kept = [each for each in types if (each == DATA_PARALLEL) == (before.sharding_type == DATA_PARALLEL)]
    if not kept:
        raise PlannerError(
            f"{table.label}: is {before.sharding_type} in the previous plan and may only become {', '.join(types)}, which loses its optimizer state;"
            " keep_optimizer_state=False allows it",
            PlannerErrorType.STRICT_CONSTRAINTS,
        )
    return kept


def unpriced_options(base: v1.ShardPlanRequest, tables: Sequence[ModuleTable], statistics: Optional[FeatureStatistics]) -> List[str]:
    """What is priced otherwise than it will be trained, each with the tables that it concerns."""
    found = [(table.label, text) for table in tables for text in table.unpriced]
    if base.HasField("quantized_comms"):
        given = (base.quantized_comms.forward_dtype, base.quantized_comms.backward_dtype)
        priced = "/".join(word or "fp32" for word in given)
        for table in tables:
            wire = "/".join(word or "fp32" for word in table.wire_dtypes)
            if wire != priced:
                found.append((table.label, f"request.quantized_comms prices {priced} on the wire, and its sharder has {wire}"))
    if statistics is not None and statistics.has_weights:
        for table in tables:
            if not table.weighted:
                how = "as those of a weighted module" if table.is_pooled else "without"
                found.append((table.label, f"ids carry weights in the batches of the statistics, though its module is unweighted: counted {how}"))
    for table in tables if statistics is not None else ():
        known = [feature for feature in table.features if feature in statistics.features]
        # Raw ids of managed collisions, which have memory beside their rows, may be any.
        if known and not table.extra_bytes_per_row and max(map(statistics.largest_id, known)) >= table.rows:
            found.append((table.label, "the statistics have ids beyond the table's rows: are they hashed before training, and were these?"))
    for table in tables:
        factors, features = len(table.pooling_factors), len(table.features or [""])
        if factors != features:
            found.append((table.label, f"constraints have {factors} pooling_factors for {features} features: features without one have the largest, and all are counted"))
    return by_text(found + _pooling_factors_of_1(tables, statistics))


def _pooling_factors_of_1(tables: Sequence[ModuleTable], statistics: Optional[FeatureStatistics]) -> List[Tuple[str, str]]:
    """Tables of which nothing says how many ids a sample has. Where constraints say so of some, those that they have with 1 are meant so."""
    said = any(set(table.pooling_factors) != {POOLING_FACTOR} for table in tables)
    text = "pooling factor taken as 1, where neither pooling_factors of constraints nor statistics= say how many ids a sample has"
    return [(table.label, text) for table in tables if statistics is None and set(table.pooling_factors) == {POOLING_FACTOR} and not (said and table.name in (table.constraints or {}))]


def figures_left_at_defaults(topology: Topology, device: v1.PublishedDevice) -> str:
    """A sentence where a Topology that is said to be of `device` has TorchRec's default figures instead; else empty."""
    memory = ("ddr_cap", DDR_CAP, "ddr_mem_bw", DDR_MEM_BW) if topology.compute_device == "cpu" else ("hbm_cap", HBM_CAP, "hbm_mem_bw", HBM_MEM_BW)
    figures = (
        (memory[0], _memory(topology)[0], memory[1], device.memory_bytes),
        (memory[2], getattr(topology, memory[2]), memory[3], device.memory_bytes_per_s / MILLISECONDS),
        ("intra_host_bw", topology.intra_host_bw, INTRA_NODE_BANDWIDTH, device.intra_host_bytes_per_s / MILLISECONDS),
        ("inter_host_bw", topology.inter_host_bw, CROSS_NODE_BANDWIDTH, device.inter_host_bytes_per_s / MILLISECONDS),
    )
    left = [(name, published) for name, value, default, published in figures if value == default and published and value != published]
    if not left:
        return ""
    return (
        f"device={device.name!r}, and the Topology has TorchRec's defaults (a V100-class host) for {', '.join(name for name, _ in left)},"
        " by which memory is counted, and priced whatever no model measured:"
        f" Topology(..., {', '.join(f'{name}={published:.12g}' for name, published in left)}) has those of {device.name}"
        " (TopologyFactory takes bandwidths with KernelConfig(use_hardware_based_bandwidth=True) alone)"
    )


class DraftRequest:
    """A request, complete but for the sharding types that the cost model decides where neither constraints nor the caller's request name any."""

    def __init__(
        self,
        base: v1.ShardPlanRequest,
        tables: Sequence[ModuleTable],
        topology: Topology,
        reserved: Topology,
        enumerator: EmbeddingEnumerator,
        batch_size: int,
        constraints: Optional[Constraints],
        optimizer: Optional[str],
        statistics: Optional[FeatureStatistics],
        hot_row_blocks: bool,
        row_proportion: str,
        previous: Optional[Layout],
        keep_optimizer_state: bool,
        device: str,
    ) -> None:
        """`base` is not changed. PlannerError where something has no place in a request, with its name."""
        constraints = constraints or {}
        self.unpriced = unpriced_options(base, tables, statistics)
        self._tables = tables
        self._request = v1.ShardPlanRequest()
        self._request.CopyFrom(base)
        host_memory = any(device.storage.ddr > 0 for device in reserved.devices) and any(
            {*HOST_KERNELS, *dynamic_tables.KERNELS} & set(table.kernels) or table.key_value_params.l2_cache_size for table in tables
        )
        ssd = any(KEY_VALUE in table.kernels for table in tables)
        message, reserve, topology_warnings = topology_message(topology, reserved, device_figures(topology, enumerator), host_memory, ssd, device)
        self._request.topology.CopyFrom(message)
        self._request.memory.reserve_bytes += reserve
        rule, rule_warnings = _memory_rule(enumerator)
        self._request.memory.rule = base.memory.rule or rule
        self._request.global_batch_size = batch_size * topology.world_size
        self._request.pipeline_type = base.pipeline_type or _pipeline(enumerator, tables)
        self.unpriced += topology_warnings + ([] if base.memory.rule else rule_warnings)
        if not base.HasField("quantized_comms"):
            forward, backward = _dominant(tables, lambda table: table.wire_dtypes, _exchanged)
            if forward:
                self._request.quantized_comms.CopyFrom(v1.QuantizedComms(forward_dtype=forward, backward_dtype=backward))
            priced = "/".join((forward or "the lookup's type", backward or "the same"))
            others = [(table.label, f"on the wire in {'/'.join(table.wire_dtypes).strip('/') or 'the type of the lookup'} and priced in {priced}, as most are") for table in tables if table.wire_dtypes != (forward, backward)]
            self.unpriced += by_text(others)
        self._request.tables.extend(
            _table_message(table, constraints.get(table.key[1]), statistics, hot_row_blocks, topology.world_size, host_memory, self._request.memory.rule)
            for table in tables
        )

        self._add_cache_statistics(constraints)
        estimator = _estimator(enumerator)
        serves = estimator is not None and estimator._is_inference
        self._add_optimizers(optimizer or base.optimizer or ("none" if serves else ""))
        unconstrained = {FUSED, *HOST_KERNELS} if host_memory else {FUSED}  # what the service plans where nothing is said
        self._types: List[List[str]] = []
        self._rules: List[v1.TableRule] = []  # without names and types
        for table in tables:
            types = list(table.types)
            if not table.constrained and base.constraints.sharding_types:
                types = [each for each in types if each in base.constraints.sharding_types]
                if not types:
                    meant = "".join(did_you_mean(each, table.types) for each in base.constraints.sharding_types)
                    raise PlannerError(
                        f"{table.label}: its sharder allows {', '.join(table.types)}, of which request.constraints.sharding_types has none{meant}",
                        PlannerErrorType.STRICT_CONSTRAINTS,
                    )
            if previous is not None and keep_optimizer_state:
                types = _kept_apart(table, types, previous)
            self._types.append(types)
            rule = v1.TableRule(row_multiple=table.rows // table.buckets if table.buckets else 0, min_column_width=(table.key[1] in constraints and constraints[table.key[1]].min_partition) or 0)
            kernels = [each for each in table.kernels if each in unconstrained or each == KEY_VALUE] or table.kernels
            if kernels and set(kernels) != unconstrained:
                rule.compute_kernels.extend([*kernels, DENSE] if DATA_PARALLEL in types else kernels)
            if table.cache_load_factor is not None and (host_memory or KEY_VALUE in table.kernels):
                rule.cache_load_factor = table.cache_load_factor
            if row_proportion and ROW_WISE in types:
                if not table.row_positions:
                    raise _refuse(f"row_proportion: the sharder of {table.label} trains row_wise tables in even blocks; a RowPositions takes any")
                rule.row_proportion = row_proportion
            self._rules.append(rule)
        if previous is not None:
            shapes = {table.key: (table.rows, table.cols) for table in tables}
            self._request.migration.previous.CopyFrom(to_message(previous, shapes))
        towers: Dict[str, List[ModuleTable]] = {}
        for table in tables:
            if table.dependency:
                towers.setdefault(table.dependency, []).append(table)
        for members in towers.values():
            if len(members) > 1:
                self._request.constraints.colocate.add(tables=[table.label for table in members], level="host")

    def _add_cache_statistics(self, constraints: Constraints) -> None:
        """Zipf's law as a table's CacheStatistics let expect it, where no statistics of batches say more."""
        found = []
        for table, message in zip(self._tables, self._request.tables):
            stats = getattr(getattr(constraints.get(table.key[1]), "cache_params", None), "stats", None)
            count = len(message.pooling_factors)
            samples = list(message.feature_batch_sizes) or [self._request.global_batch_size] * count
            ids = sum(factor * bags * batch for factor, bags, batch in zip(message.pooling_factors, list(message.num_poolings) or [1.0] * count, samples))
            if stats is None or ids <= 0:
                continue
            if message.reuse_histogram:
                found.append((table.label, "cache_params.stats: not read, since statistics= say how often ids occur"))
                continue
            try:
                fit = zipf_fit(stats, table.rows, ids)
            except ValueError as fault:
                raise _refuse(f"{table.label}: cache_params.stats: {fault}") from None
            message.zipf_exponent = fit.exponent
            text = f"cache_params.stats: read as ids by Zipf's law with exponent {fit.exponent:.3g}, whose misses are off by up to {fit.difference:.0%} of a batch's rows"
            found.append((table.label, text))
        self.unpriced += by_text(found)

    def _add_optimizers(self, given: str) -> None:
        """The caller's, else that of most weights, and by table where others have another one."""
        self._request.optimizer = given or _dominant(self._tables, _state, lambda table: float(table.rows * table.cols))
        found = []
        for table, message in zip(self._tables, self._request.tables):
            if given or _state(table) == self._request.optimizer and table.optimizer:
                continue
            if _state(table) != self._request.optimizer:
                message.optimizer = _state(table)
            known = "" if table.optimizer else ", which the service does not know: its state is counted as adam's"
            found.append((table.label, f"optimizer {table.optimizer_name}{known}; times are those of {self._request.optimizer}, which most weights have"))
        self.unpriced += by_text(found)

    @property
    def device(self) -> str:
        """What the ranks compute on: the devices that the request names, else the kind."""
        names = dict.fromkeys(host.device for host in self._request.topology.hosts if host.device)
        return " and ".join(names) or self._request.topology.compute_device

    def fingerprint(self) -> str:
        """SHA-256 of all that can change the plan, in hexadecimal; does not depend on the order of tables, nor on the request_id."""
        return hashlib.sha256(json.dumps(self.summary(), sort_keys=True).encode()).hexdigest()

    def summary(self) -> Dict[str, Any]:
        """What the fingerprint is of, as JSON."""
        content = json_format.MessageToDict(self._request, preserving_proto_field_name=True)
        content.pop("request_id", None)
        rows = zip(content.pop("tables"), self._tables, self._types, self._rules)
        content["tables"] = {
            table.label: {
                **message,
                **self._demands(rule),
                "sharding_types": sorted(types),
                "constrained": table.constrained,
            }
            for message, table, types, rule in rows
        }
        return content

    @staticmethod
    def _demands(rule: v1.TableRule) -> Dict[str, Any]:
        demands = json_format.MessageToDict(rule, preserving_proto_field_name=True)
        return {**demands, "min_partition": int(demands.pop("min_column_width", 0))}

    def complete(self, model_types: Collection[str]) -> v1.ShardPlanRequest:
        """The request for a cost model that was made for `model_types`; a table that can have none of them keeps all of its own."""
        request = v1.ShardPlanRequest()
        request.CopyFrom(self._request)
        rules: Dict[bytes, v1.TableRule] = {}
        named = set(request.constraints.sharding_types)
        for table, types, its_rule in zip(self._tables, self._types, self._rules):
            if not table.constrained and not named and model_types:
                types = [each for each in types if each in model_types] or types
            rule = v1.TableRule(sharding_types=types)
            rule.MergeFrom(its_rule)
            rules.setdefault(rule.SerializeToString(deterministic=True), rule).tables.append(table.label)
        request.constraints.tables.extend(rules.values())
        return request
