"""The service's request for the tables of a module: TorchRec's Topology, ParameterConstraints and storage reservation in the service's words."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from google.protobuf import json_format
from torchrec.distributed.planner.constants import BWD_COMPUTE_MULTIPLIER, WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER
from torchrec.distributed.planner.types import BasicCommsBandwidths, ParameterConstraints, PlannerError, PlannerErrorType, Topology

from neuroshard import v1
from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.layout import Layout, to_message
from neuroshard.torchrec.module_tables import DATA_PARALLEL, ModuleTable

MILLISECONDS = 1000.0  # in a second: TorchRec's bandwidths are bytes per millisecond, the service's per second

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


def topology_message(topology: Topology, reserved: Topology) -> Tuple[v1.Topology, int]:
    """(the service's topology, bytes that are kept free on every device).

    `reserved` is what TorchRec's StorageReservation left of `topology`. Hosts are TorchRec's intra groups (pod_size hosts, where it is given):
    the ranks that table_row_wise and its like stay within.
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
    for first in range(0, topology.world_size, local):
        host = [after + reserve for after in left[first : first + local]]
        if len(set(host)) > 1:
            message.hosts.add(num_devices=local, device_memory_bytes=host)
        elif message.hosts and message.hosts[-1].memory_bytes == host[0]:
            message.hosts[-1].count += 1
        else:
            message.hosts.add(count=1, num_devices=local, memory_bytes=host[0])
    own_memory = topology.ddr_mem_bw if topology.compute_device == "cpu" else topology.hbm_mem_bw
    message.bandwidths.device_memory_bytes_per_s = own_memory * MILLISECONDS
    message.bandwidths.intra_host_bytes_per_s = topology.intra_host_bw * MILLISECONDS
    message.bandwidths.inter_host_bytes_per_s = topology.inter_host_bw * MILLISECONDS
    return message, reserve


def _vectors(
    table: ModuleTable, constraint: Optional[ParameterConstraints], statistics: Optional[FeatureStatistics], batch_size: int
) -> List[Tuple[str, float]]:
    """(feature, mean ids) of each vector that a sample gets from the table: one or more for each feature.

    A feature with num_poolings n and a batch of its own of b samples is n * b / batch_size vectors, rounded and at least one, which share its
    pooling factor * n * b / batch_size ids.
    """
    features = table.features or [table.key[1]]
    factors = list(constraint.pooling_factors) if constraint is not None else [1.0]
    if factors == [1.0]:  # TorchRec's default, whatever the number of features
        known = statistics is not None and bool(table.features)
        factors = [statistics.pooling_factor(feature) if known and statistics else 1.0 for feature in features]
    numbers: Sequence[float] = (constraint and constraint.num_poolings) or [1.0] * len(features)
    batches: Sequence[float] = (constraint and constraint.batch_sizes) or [batch_size] * len(features)
    for name, given in (("pooling_factors", factors), ("num_poolings", numbers), ("batch_sizes", batches)):
        if len(given) != len(features):
            raise _refuse(f"{table.label}: {len(given)} {name} for {len(features)} features ({', '.join(features)})")
        if not all(math.isfinite(each) and each >= 0 for each in given):
            raise _refuse(f"{table.label}: {name} {list(given)} must be finite and not negative")
    vectors = []
    for feature, factor, number, batch in zip(features, factors, numbers, batches):
        share = number * batch / batch_size
        count = max(1, round(share))
        vectors += [(feature if index == 0 else f"{feature}#{index + 1}", factor * share / count) for index in range(count)]
    return vectors


def _table_message(
    table: ModuleTable, constraint: Optional[ParameterConstraints], statistics: Optional[FeatureStatistics], batch_size: int
) -> v1.Table:
    unknown = [feature for feature in table.features if statistics is not None and feature not in statistics.features]
    if unknown:
        raise _refuse(f"{table.label}: the statistics have no feature {', '.join(unknown)}")
    vectors = _vectors(table, constraint, statistics, batch_size)
    return v1.Table(
        name=table.key[1],
        module=table.key[0],
        kind="embedding_bag" if table.is_pooled else "embedding",
        num_embeddings=table.rows,
        embedding_dim=table.cols,
        features=[feature for feature, _ in vectors],
        pooling_factors=[factor for _, factor in vectors],
        reuse_histogram=statistics.reuse_histogram(table.features) if statistics is not None and table.features else [],
        weight_dtype=table.weight_dtype,
        pooling_mode=table.pooling_mode if table.is_pooled else "",
        weighted=table.weighted,
    )


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
        raise _refuse(f"{reason}: {listed}. Give the planner the one whose memory comes closest: optimizer='sgd', 'adagrad', 'rowwise_adagrad' or 'adam'")
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


class DraftRequest:
    """A request, complete but for the sharding types that the cost model decides where neither constraints nor the caller's request name any."""

    def __init__(
        self,
        base: v1.ShardPlanRequest,
        tables: Sequence[ModuleTable],
        topology: Topology,
        reserved: Topology,
        batch_size: int,
        constraints: Optional[Constraints],
        optimizer: Optional[str],
        statistics: Optional[FeatureStatistics],
        previous: Optional[Layout],
        keep_optimizer_state: bool,
    ) -> None:
        """`base` is not changed. PlannerError where something has no place in a request, with its name."""
        constraints = constraints or {}
        self._tables = tables
        self._request = v1.ShardPlanRequest()
        self._request.CopyFrom(base)
        message, reserve = topology_message(topology, reserved)
        self._request.topology.CopyFrom(message)
        self._request.memory.reserve_bytes += reserve
        self._request.memory.rule = base.memory.rule or "torchrec"
        self._request.global_batch_size = batch_size * topology.world_size
        self._request.optimizer = _optimizer(optimizer or base.optimizer, tables)
        self._request.tables.extend(_table_message(table, constraints.get(table.key[1]), statistics, batch_size) for table in tables)

        self._types: List[List[str]] = []
        self._widths: List[int] = []
        for table in tables:
            types = list(table.types)
            if not table.constrained and base.constraints.sharding_types:
                types = [each for each in types if each in base.constraints.sharding_types]
                if not types:
                    raise PlannerError(
                        f"{table.label}: its sharder allows {', '.join(table.types)}, of which request.constraints.sharding_types has none",
                        PlannerErrorType.STRICT_CONSTRAINTS,
                    )
            if previous is not None and keep_optimizer_state:
                types = _kept_apart(table, types, previous)
            self._types.append(types)
            self._widths.append((table.key[1] in constraints and constraints[table.key[1]].min_partition) or 0)
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

    def fingerprint(self) -> str:
        """SHA-256 of all that can change the plan, in hexadecimal; does not depend on the order of tables, nor on the request_id."""
        return hashlib.sha256(json.dumps(self.summary(), sort_keys=True).encode()).hexdigest()

    def summary(self) -> Dict[str, Any]:
        """What the fingerprint is of, as JSON."""
        content = json_format.MessageToDict(self._request, preserving_proto_field_name=True)
        content.pop("request_id", None)
        rows = zip(content.pop("tables"), self._tables, self._types, self._widths)
        content["tables"] = {
            table.label: {**message, "sharding_types": sorted(types), "constrained": table.constrained, "min_partition": width}
            for message, table, types, width in rows
        }
        return content

    def complete(self, model_types: Collection[str]) -> v1.ShardPlanRequest:
        """The request for a cost model that was made for `model_types`; a table that can have none of them keeps all of its own."""
        request = v1.ShardPlanRequest()
        request.CopyFrom(self._request)
        rules: Dict[Tuple[Tuple[str, ...], int], List[str]] = {}
        named = set(request.constraints.sharding_types)
        for table, types, width in zip(self._tables, self._types, self._widths):
            if not table.constrained and not named and model_types:
                types = [each for each in types if each in model_types] or types
            rules.setdefault((tuple(types), width), []).append(table.label)
        for (allowed, width), names in rules.items():
            request.constraints.tables.add(tables=names, sharding_types=allowed, min_column_width=width)
        return request

