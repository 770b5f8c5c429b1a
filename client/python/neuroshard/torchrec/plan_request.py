"""The service's request for the tables of a module: TorchRec's Topology, ParameterConstraints and storage reservation in the service's words."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

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
from torchrec.distributed.planner.types import BasicCommsBandwidths, ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.types import PipelineType

from neuroshard import v1
from neuroshard.similar_word import did_you_mean
from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.layout import Layout, to_message
from neuroshard.torchrec.module_tables import DATA_PARALLEL, DENSE, FUSED, HOST_KERNELS, KEY_VALUE, OPTIMIZERS, ROW_WISE, ModuleTable
from neuroshard.torchrec.unpriced import by_text

MILLISECONDS = 1000.0  # in a second: TorchRec's bandwidths are bytes per millisecond, the service's per second
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


def _cap(reserved: Topology, ranks: range, memory: str) -> int:
    """Of each rank: TorchRec has a ddr_cap and an ssd_cap a rank, and no limit of the host's own."""
    caps = [getattr(reserved.devices[rank].storage, memory) for rank in ranks]
    if len(set(caps)) > 1:
        raise _refuse(f"topology: {memory}_cap of ranks {ranks[0]} to {ranks[-1]}, a host, is {caps}; the service has one for all ranks of a host")
    return int(caps[0])


def _host(reserved: Topology, ranks: range, host_memory: bool, ssd: bool) -> v1.HostGroup:
    """The host's memory and SSDs for tables."""
    host = v1.HostGroup()
    if host_memory:
        host.max_host_memory_bytes_per_device = _cap(reserved, ranks, "ddr")
        host.host_memory_bytes = len(ranks) * host.max_host_memory_bytes_per_device
    if ssd:
        host.max_ssd_bytes_per_device = _cap(reserved, ranks, "ssd")
        host.ssd_bytes = len(ranks) * host.max_ssd_bytes_per_device
    return host


def _bandwidth_faults(topology: Topology, ssd: bool) -> List[str]:
    own_memory = "ddr_mem_bw" if topology.compute_device == "cpu" else "hbm_mem_bw"
    return [
        f"{name} is {getattr(topology, name):.6g} bytes per millisecond, TorchRec's unit; {LEAST_BANDWIDTH:.6g} are the least (450 GB/s are 450e6)"
        for name in (own_memory, "intra_host_bw", "inter_host_bw", *(["ssd_mem_bw"] if ssd else []))
        if not getattr(topology, name) >= LEAST_BANDWIDTH
    ]


def topology_message(topology: Topology, reserved: Topology, host_memory: bool, ssd: bool, device: str) -> Tuple[v1.Topology, int]:
    """(the service's topology, bytes that are kept free on every device).

    `reserved` is what TorchRec's StorageReservation left of `topology`. Hosts are TorchRec's intra groups (pod_size hosts, where it is given):
    the ranks that table_row_wise and its like stay within. `host_memory`, `ssd`: whether tables may be there. `device`:
    of all hosts, empty where it is not known.
    """
    faults = []
    local = topology.intra_group_size
    if topology.world_size % local:
        faults.append(f"world_size {topology.world_size} is not a multiple of the {local} ranks of a host")
    own = (
        ("bwd_compute_multiplier", topology.bwd_compute_multiplier, BWD_COMPUTE_MULTIPLIER),
        ("weighted_feature_bwd_compute_multiplier", topology.weighted_feature_bwd_compute_multiplier, WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER),
        ("uneven_sharding_perf_multiplier", topology.uneven_sharding_perf_multiplier, 1.0),
    )
    faults += [f"{name} is {value}; the service's cost models have their own ({default} in TorchRec)" for name, value, default in own if value != default]
    if not isinstance(topology.comms_bandwidths, BasicCommsBandwidths):
        faults.append("generalized_comms_bandwidths cannot be told to the service; give intra_host_bw and inter_host_bw")
    else:
        faults += _bandwidth_faults(topology, ssd)
    if faults:
        raise _refuse("topology: " + "; ".join(faults))

    full, left = _memory(topology), _memory(reserved)
    least = min(range(len(left)), key=lambda rank: left[rank])
    if left[least] <= 0:
        raise PlannerError(
            f"rank {least}: the storage reservation leaves {left[least]} of {full[least]} bytes for tables", PlannerErrorType.INSUFFICIENT_STORAGE
        )
    reserve = max(0, min(before - after for before, after in zip(full, left)))
    message = v1.Topology(compute_device=topology.compute_device)
    last = v1.HostGroup()
    for first in range(0, topology.world_size, local):
        sizes = [after + reserve for after in left[first : first + local]]
        host = _host(reserved, range(first, first + local), host_memory, ssd)
        host.num_devices, host.device = local, device
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
    own_memory = topology.ddr_mem_bw if topology.compute_device == "cpu" else topology.hbm_mem_bw
    message.bandwidths.device_memory_bytes_per_s = own_memory * MILLISECONDS
    # TorchRec's estimators send everything between the hosts of a pod as between pods.
    within = topology.intra_host_bw if local == topology.local_world_size else topology.inter_host_bw
    message.bandwidths.intra_host_bytes_per_s = within * MILLISECONDS
    message.bandwidths.inter_host_bytes_per_s = topology.inter_host_bw * MILLISECONDS
    if host_memory:
        message.bandwidths.host_to_device_bytes_per_s = topology.hbm_to_ddr_mem_bw * MILLISECONDS
    if ssd:
        message.bandwidths.ssd_bytes_per_s = topology.ssd_mem_bw * MILLISECONDS
    return message, reserve


def _l2_cache_bytes(table: ModuleTable) -> int:
    """TorchRec's size is of the cache of all tables that FBGEMM looks up together; no table needs more than it has itself."""
    return min((table.key_value_params.l2_cache_size or 0) * GIB, table.rows * table.cols * _BYTES.get(table.weight_dtype, 0))


def _table_message(
    table: ModuleTable,
    constraint: Optional[ParameterConstraints],
    statistics: Optional[FeatureStatistics],
    hot_row_blocks: bool,
    world_size: int,
    host_memory: bool,
) -> v1.Table:
    unknown = [feature for feature in table.features if statistics is not None and feature not in statistics.features]
    if unknown:
        raise _refuse(f"{table.label}: the statistics have no feature {', '.join(unknown)}")
    features = table.features or [table.key[1]]
    factors = table.pooling_factors
    poolings: Sequence[float] = (constraint and constraint.num_poolings) or []
    batches: Sequence[int] = (constraint and constraint.batch_sizes) or []
    for name, given in (("pooling_factors", factors), ("num_poolings", poolings), ("batch_sizes", batches)):
        if given and len(given) != len(features):
            raise _refuse(f"{table.label}: {len(given)} {name} for {len(features)} features ({', '.join(features)})")
        if not all(math.isfinite(each) and each >= 0 for each in given):
            raise _refuse(f"{table.label}: {name} {list(given)} must be finite and not negative")
    most = table.key_value_params.max_l1_cache_size
    return v1.Table(
        name=table.key[1],
        module=table.key[0],
        kind="embedding_bag" if table.is_pooled else "embedding",
        num_embeddings=table.rows,
        embedding_dim=table.cols,
        features=features,
        pooling_factors=factors,
        num_poolings=poolings,
        feature_batch_sizes=[each * world_size for each in batches],
        reuse_histogram=statistics.reuse_histogram(table.features) if statistics is not None and table.features else [],
        weight_dtype=table.weight_dtype,
        output_dtype=table.output_dtype,
        pooling_mode=table.pooling_mode if table.is_pooled else "",
        weighted=table.weighted or (table.is_pooled and statistics is not None and statistics.has_weights),
        hot_row_blocks=hot_row_blocks,
        max_l1_cache_bytes=None if most is None else most * MIB,
        l2_cache_bytes=_l2_cache_bytes(table) if host_memory else 0,
        extra_bytes_per_row=table.extra_bytes_per_row,
    )


def _wire_dtypes(tables: Sequence[ModuleTable]) -> Tuple[str, str]:
    faults = "; ".join(f"{table.label}: {table.wire_fault}" for table in tables if table.wire_fault)
    if faults:
        raise _refuse(f"{faults}; request.quantized_comms would decide")
    found: Dict[Tuple[str, str], str] = {}
    for table in tables:
        found.setdefault(table.wire_dtypes, table.label)
    if len(found) > 1:
        listed = "; ".join(f"{forward or 'the type of the lookup'}/{backward or 'the same'} of {label}" for (forward, backward), label in found.items())
        raise _refuse(f"sharders: the service plans one pair of types on the wire (forward/backward) for all tables: {listed}; request.quantized_comms would decide")
    return next(iter(found))


def _pipeline(enumerator: EmbeddingEnumerator, tables: Sequence[ModuleTable]) -> str:
    """What the enumerator's storage estimator counts for; where it counts for none, prefetched caches say which it is. Empty: none."""
    for estimator in enumerator._estimators:
        if isinstance(estimator, EmbeddingStorageEstimator):
            given = estimator._pipeline_type
            if estimator._is_inference:
                raise _refuse("enumerator: its storage estimator is for inference (is_inference); the service plans training")
            if estimator._run_embedding_at_peak_memory and given not in (PipelineType.NONE, PipelineType.TRAIN_BASE):
                raise _refuse("enumerator: its storage estimator has run_embedding_at_peak_memory, which the service does not count")
            if given in (PipelineType.TRAIN_SPARSE_DIST, PipelineType.TRAIN_PREFETCH_SPARSE_DIST):
                return str(given.value)
    return PipelineType.TRAIN_PREFETCH_SPARSE_DIST.value if any(table.prefetched for table in tables) else ""


def _optimizer(given: Optional[str], tables: Sequence[ModuleTable]) -> str:
    if given:
        return given
    found: Dict[str, List[ModuleTable]] = {}
    for table in tables:
        found.setdefault(table.optimizer or table.optimizer_name, []).append(table)
    unknown = [name for name in found if any(table.optimizer is None for table in found[name])]
    if unknown or len(found) > 1:
        listed = "; ".join(f"{name} of {', '.join(table.label for table in users[:5])}{' ...' if len(users) > 5 else ''}" for name, users in found.items())
        reason = f"the service does not know the optimizer {unknown[0]}" if unknown else "the service plans one optimizer for all tables"
        raise _refuse(f"{reason}: {listed}. Give the planner the one whose memory comes closest: optimizer={' or '.join(map(repr, OPTIMIZERS))}")
    return next(iter(found))


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
            if table.wire_fault or wire != priced:
                has = table.wire_fault or f"its sharder has {wire}"
                found.append((table.label, f"request.quantized_comms prices {priced} on the wire, and {has}"))
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
            set(HOST_KERNELS) & set(table.kernels) or table.key_value_params.l2_cache_size for table in tables
        )
        ssd = any(KEY_VALUE in table.kernels for table in tables)
        message, reserve = topology_message(topology, reserved, host_memory, ssd, device)
        self._request.topology.CopyFrom(message)
        self._request.memory.reserve_bytes += reserve
        self._request.memory.rule = base.memory.rule or "torchrec"
        self._request.global_batch_size = batch_size * topology.world_size
        self._request.optimizer = _optimizer(optimizer or base.optimizer, tables)
        self._request.pipeline_type = base.pipeline_type or _pipeline(enumerator, tables)
        if not base.HasField("quantized_comms"):
            forward, backward = _wire_dtypes(tables)
            if forward:
                self._request.quantized_comms.CopyFrom(v1.QuantizedComms(forward_dtype=forward, backward_dtype=backward))
        self._request.tables.extend(
            _table_message(table, constraints.get(table.key[1]), statistics, hot_row_blocks, topology.world_size, host_memory) for table in tables
        )

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
            rule = v1.TableRule(min_column_width=(table.key[1] in constraints and constraints[table.key[1]].min_partition) or 0)
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
