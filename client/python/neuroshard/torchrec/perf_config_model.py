"""A user's HardwarePerfConfig as a cost model that planners serve: TorchRec's formulas with its coefficients (`compute.kind: torchrec` of model.yaml)."""

from __future__ import annotations

import json
import logging
from typing import Any, Dict, List, Optional, Tuple

from torchrec.distributed.planner.constants import BIGINT_DTYPE
from torchrec.distributed.planner.estimator import HardwarePerfConfig, PerfCoefficient, ShardPerfContext
from torchrec.distributed.planner.estimator.annotations import (
    get_backward_compute,
    get_bwd_comms,
    get_forward_compute,
    get_fwd_comms,
    get_input_dist_comms,
    get_output_write_size,
    get_prefetch_compute,
)
from torchrec.distributed.planner.estimator.estimator import EmbeddingShardingPerfEvaluator, get_embedding_perf_sharding_evaluator
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import ShardingType

from neuroshard.checkpoints import model_directory
from neuroshard.torchrec.hardware_perf_config import FittedPerfConfig
from neuroshard.torchrec.module_tables import DATA_PARALLEL, DENSE, FUSED, HOST_KERNELS, KEY_VALUE

logger: logging.Logger = logging.getLogger(__name__)

_OWN_METHODS = (FittedPerfConfig.fitted_forward, FittedPerfConfig.fitted_backward)  # which add its fixed times to coefficients
_MULTIPLIERS = {  # a key of model.yaml: PerfCoefficient's
    "ids": "input_read_size_multiplier",
    "lookup": "lookup_size_multiplier",
    "output": "embedding_output_multiplier",
    "rows": "hash_size_multiplier",
}
_MOST = {"_multiplier": 1e9, "_ms": 1e6, "_bw": 1e15}  # as in server/networks/model_manifest.cc
_SAMPLES = 1 << 20


def write_cost_model(path: str, config: HardwarePerfConfig, topology: Topology, replace: bool = False) -> None:
    """Writes the version `path` (ROOT/NAME/VERSION) of a cost model that prices a shard as TorchRec's estimator does with `config` on `topology`. A planner
    that serves ROOT knows it as {"cost_model": {"name": NAME}}.

    ValueError names all that makes it another price: methods that compute, and numbers out of range. A warning names what is priced as without the config,
    exchanges and prefetched rows. ModelDirectoryError where `path` is no such place, or is there and not to be replaced.
    """
    for argument, value, kind in (("config", config, HardwarePerfConfig), ("topology", topology, Topology)):
        if not isinstance(value, kind):
            raise TypeError(f"{argument}: must be torchrec's {kind.__name__}, got {type(value).__name__}")
    _, name, version = model_directory.parse_place(path)
    kinds = [each.value for each in ShardingType if config.is_sharding_type_supported(each.value)]
    computing = (get_forward_compute, get_backward_compute, get_output_write_size)
    others = (get_fwd_comms, get_bwd_comms, get_input_dist_comms)
    faults = [
        f"{method}(): a method, of which no coefficients can be read"
        for method in _methods({find(config, kind) for find in computing for kind in kinds} | {getattr(config, "post_process_perfs", None)})
    ]
    entries = [entry for kind in kinds for kernel in _kernels(kind) if (entry := _entry(config, topology, kind, kernel, faults))]
    if not entries and not faults:
        faults = [f"supported_sharding_types: it has none of {', '.join(each.value for each in ShardingType)}"]
    if faults:
        raise ValueError(f"HardwarePerfConfig {config.name!r} cannot be written as a cost model: {'; '.join(dict.fromkeys(faults))}")
    left = [f"{method}()" for method in _methods({find(config, kind) for find in others for kind in kinds} | {get_prefetch_compute(config)})]
    left += ["coefficients.prefetch"] * (config.coefficients.prefetch is not None)
    left += [f"coefficients.by_kernel[{kind}, {kernel}]" for kind, kernel in config.coefficients.by_kernel if kernel not in _kernels(kind)]
    if left:
        logger.warning("HardwarePerfConfig %r: not in the cost model, which prices that as TorchRec's default does: %s", config.name, ", ".join(left))
    lines = [f"format: neuroshard-cost-model/2\nname: {name}\nversion: {version}\ncompute:\n  kind: torchrec\n  coefficients:\n"]
    lines += [f"    - {json.dumps(entry)}\n" for entry in entries]
    lines += [f"provenance:\n  hardware_perf_config: {json.dumps(config.name)}\n"]
    files = {"model.yaml": "".join(lines).encode()}
    model_directory.publish(path, {**files, "files.sha256": model_directory.file_list(files)}, replace)


def _kernels(kind: str) -> List[str]:
    return [DENSE] if kind == DATA_PARALLEL else [FUSED, *HOST_KERNELS, KEY_VALUE]


def _methods(found: Any) -> List[str]:
    """Names of methods that are neither TorchRec's nor a FittedPerfConfig's."""
    functions = {getattr(method, "__func__", method) for method in found} - {None, HardwarePerfConfig.post_process_perfs, *_OWN_METHODS}
    return sorted(function.__name__ for function in functions)


def _entry(config: HardwarePerfConfig, topology: Topology, kind: str, kernel: str, faults: List[str]) -> Optional[Dict[str, Any]]:
    """None: TorchRec has no such kernel on the topology's devices."""
    memories = (topology.hbm_mem_bw, topology.ddr_mem_bw, topology.ssd_mem_bw, topology.hbm_to_ddr_mem_bw)
    try:
        # In proportion to what a cache holds, between the two.
        uncached, cached = (config.get_device_bw(topology.compute_device, kernel, *memories, caching_ratio=share) for share in (0.0, 1.0))
    except ValueError:
        return None
    evaluator = get_embedding_perf_sharding_evaluator(kind)
    factors = config.get_coefficients_for_sharding(kind, kernel)
    id_bytes, least_cols = _one_id(config, evaluator, kind)
    fixed = config.fixed_ms.get((kind, kernel), (0.0, 0.0)) if isinstance(config, FittedPerfConfig) else (0.0, 0.0)

    def number(name: str, value: Any, least: float = 0.0) -> float:
        most = next(most for end, most in _MOST.items() if name.endswith(end))
        if not isinstance(value, (int, float)) or not least <= value <= most:
            faults.append(f"{name} of {kind} {kernel} must be in [{least:g}, {most:g}], got {value}")
            return least
        return float(value)

    def part(name: str, factor: Optional[PerfCoefficient]) -> Dict[str, float]:
        if factor is None:
            return dict.fromkeys(_MULTIPLIERS, 0.0)
        found = {key: number(f"{name}.{word}", getattr(factor, word)) for key, word in _MULTIPLIERS.items()}
        return {**found, "ids": found["ids"] * id_bytes / BIGINT_DTYPE}

    return {
        "sharding_type": kind,
        "compute_kernel": kernel,
        "bytes_per_s": 1000 * number("device_bw", uncached, 1e-3),
        "cached_bytes_per_s": 1000 * number("device_bw", cached, 1e-3),
        "forward": part("coefficients.fwd", factors.fwd),
        "backward": part("coefficients.bwd", factors.bwd),
        "forward_fixed_ms": number("fixed_ms", fixed[0]),
        "backward_fixed_ms": number("fixed_ms", fixed[1]),
        "backward_of_forward": 0.0 if factors.bwd else number("bwd_compute_multiplier", config.get_bwd_compute_multiplier(topology.bwd_compute_multiplier)),
        "weighted_backward": number(
            "weighted_feature_bwd_compute_multiplier", config.get_weighted_feature_bwd_compute_multiplier(topology.weighted_feature_bwd_compute_multiplier)
        ),
        "weighted_gradient": number("coefficients.weighted_kernel_multiplier", config.coefficients.weighted_kernel_multiplier),
        "min_lookup_cols": least_cols,
        "block_penalty": bool(evaluator.use_block_usage_penalty(config)),
    }


def _one_id(config: HardwarePerfConfig, evaluator: EmbeddingShardingPerfEvaluator, kind: str) -> Tuple[float, float]:
    """As the evaluator counts an id of a row of one column: its bytes, 1 where it counts ids and not bytes, and columns that are read."""
    size = getattr(config, "_input_data_type_size", BIGINT_DTYPE)
    one = ShardPerfContext(sharding_type=kind, emb_dim=1, batch_sizes=[_SAMPLES], num_poolings=[1.0], input_lengths=[1.0], input_data_type_size=size)
    read, alone = (evaluator._get_embedding_lookup_size(one, least) for least in (evaluator.use_min_dim_for_lookup(config), False))
    return float(evaluator._get_input_read_size(one, config)) / _SAMPLES, read / alone
