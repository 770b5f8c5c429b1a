"""TorchRec's HardwarePerfConfig: one that a cost model of the service fills, for TorchRec's own planner, and what a user's says of devices."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import grpc
import torch
from torchrec.distributed.planner.constants import UVM_CACHING_RATIO
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    EmbeddingPerfEstimatorV2,
    EstimatorPerfCoefficients,
    HardwarePerfConfig,
    PerfCoefficient,
    PerfCoefficientConfig,
    ShardPerfContext,
)
from torchrec.distributed.planner.estimator.annotations import (
    backward_compute,
    forward_compute,
    get_backward_compute,
    get_bwd_comms,
    get_forward_compute,
    get_fwd_comms,
    get_input_dist_comms,
    get_output_write_size,
    get_prefetch_compute,
    prefetch_compute,
)
from torchrec.distributed.planner.estimator.estimator import get_embedding_perf_sharding_evaluator
from torchrec.distributed.planner.types import ParameterConstraints, SharderDataMap, ShardingOption, Topology
from torchrec.distributed.types import ShardingType

import neuroshard
from neuroshard import v1
from neuroshard.mapping import as_message
from neuroshard.torchrec.arguments import check_constraints, check_type
from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.module_tables import DATA_PARALLEL, DENSE, FUSED, FUSED_UVM_CACHING, HOST_KERNELS, STAND_INS, configs_of
from neuroshard.torchrec.non_negative_fit import fit_non_negative

logger: logging.Logger = logging.getLogger(__name__)

MOST_SETS = 10_000  # of a call; a planner takes 100,000 (max_prediction_shards)
# Mean over 820 tables of the DLRM 2021 trace, which the service takes for tables that say nothing (common/domain/reuse_histogram.cc).
DEFAULT_REUSE = (
    0.234433, 0.108988, 0.131685, 0.110794, 0.0859675, 0.0586633, 0.0403392, 0.0342197, 0.0326429,
    0.0282653, 0.027776, 0.0224811, 0.0197624, 0.0153382, 0.00660477, 0.00794339, 0.0340953,
)  # fmt: skip
_MEASURED_KERNELS = (FUSED, *HOST_KERNELS)
_DTYPES = {4.0: "fp32", 2.0: "fp16", 1.0: "int8"}  # by bytes of a value, which is all that an estimator is told


class PredictedShard(NamedTuple):
    """What a cost model reads of a shard: a MeasuredShard, and the samples of the batch that it is looked up for."""

    rows: int
    cols: int
    pooling_factor: float
    reuse_histogram: Tuple[float, ...]
    weight_dtype: str
    pooling_mode: str
    weighted: bool
    compute_kernel: str
    cache_load_factor: float
    batch_size: int


class Sizes(NamedTuple):
    """What the coefficients of a FittedPerfConfig multiply: 1, and the milliseconds that ids, rows read, vectors and rows of the table take at the
    bandwidth of the kernel."""

    forward: List[float]
    backward: List[float]


class FitError(NamedTuple):
    """How far compute of shards by fitted coefficients is from the prediction, relative to it, of `shards` shards that were not fitted: of forward and
    backward together, which TorchRec adds up, and in the mean of each alone."""

    median: float
    p90: float
    worst: float
    mean: float
    forward_mean: float
    backward_mean: float
    shards: int


class FittedPerfConfig(EmbeddingPerfEstimatorConfig):
    """TorchRec's coefficients by sharding type and kernel, and a fixed time of each, which TorchRec's own do not have: for any shard, without a service.
    `error` says how far off they are, `errors` by sharding type and kernel. What was not fitted costs what coefficients of 1 say."""

    name = "neuroshard-fitted"
    _use_block_usage_penalty = False
    _use_min_dim_for_lookup = False
    _weighted_feature_bwd_compute_multiplier = 1.0

    def __init__(
        self,
        coefficients: PerfCoefficientConfig,
        fixed_ms: Dict[Tuple[str, str], Tuple[float, float]],
        error: FitError,
        errors: Dict[Tuple[str, str], FitError],
    ) -> None:
        self.coefficients = coefficients
        self.fixed_ms = fixed_ms
        """(forward, backward) by sharding type and kernel."""
        self.error = error
        self.errors = errors
        """Of the shards of a sharding type and kernel, which may be far from the whole: a kernel behind a cache, say."""

    @forward_compute
    def fitted_forward(self, ctx: ShardPerfContext) -> float:
        fixed = self.fixed_ms.get((ctx.sharding_type, ctx.compute_kernel), (0.0, 0.0))[0]
        return fixed + get_embedding_perf_sharding_evaluator(ctx.sharding_type)._default_fwd_comp(ctx, self)

    @backward_compute
    def fitted_backward(self, ctx: ShardPerfContext) -> float:
        fixed = self.fixed_ms.get((ctx.sharding_type, ctx.compute_kernel), (0.0, 0.0))[1]
        return fixed + get_embedding_perf_sharding_evaluator(ctx.sharding_type)._default_bwd_comp(ctx, self)


class MeasuredPerfConfig(EmbeddingPerfEstimatorConfig):
    """Forward and backward compute of shards in milliseconds as a cost model predicts them; exchanges, and shards that no model predicts (SSD, virtual
    tables), by TorchRec's default formulas. Knows the shards that a MeasuredPerfEstimator asked for; others are a ValueError. Can be pickled."""

    name = "neuroshard"

    def __init__(self) -> None:
        self.predictions: Dict[PredictedShard, Optional[Tuple[float, float]]] = {}
        """(forward, backward) by shard; None: not asked yet."""
        self.reuse: Dict[str, Tuple[float, ...]] = {}
        """Reuse histograms by table; of others DEFAULT_REUSE."""
        self.sizes: Dict[Tuple[str, str], Dict[PredictedShard, Sizes]] = {}
        """What TorchRec's coefficients multiply, by sharding type and kernel."""
        self._noting = False

    def shard(self, ctx: ShardPerfContext) -> Optional[PredictedShard]:
        """None: none that a model predicts. A block of some rows has their share of the table's ids, as the service has it."""
        kernel = FUSED if ctx.compute_kernel == DENSE else STAND_INS.get(ctx.compute_kernel, ctx.compute_kernel)
        dtype = _DTYPES.get(ctx.table_data_type_size)
        if kernel not in _MEASURED_KERNELS or dtype is None or ctx.hash_size < 1:
            return None
        samples = max(ctx.batch_sizes)
        load_factor = UVM_CACHING_RATIO if ctx.caching_ratio is None else min(ctx.caching_ratio, 1.0)
        return PredictedShard(
            rows=ctx.hash_size,
            cols=ctx.emb_dim,
            pooling_factor=ctx.batch_inputs / samples * ctx.hash_size / ctx.hash_size_for_clamping,
            reuse_histogram=self.reuse.get(ctx.table_name, DEFAULT_REUSE),
            weight_dtype=dtype,
            pooling_mode="sum" if ctx.is_pooled else "none",
            weighted=ctx.is_weighted and ctx.is_pooled,
            compute_kernel=kernel,
            cache_load_factor=load_factor if kernel == FUSED_UVM_CACHING else 0.0,
            batch_size=samples * (1 if ctx.sharding_type == DATA_PARALLEL else ctx.world_size),
        )

    def _predicted(self, ctx: ShardPerfContext) -> Optional[Tuple[float, float]]:
        shard = self.shard(ctx)
        if shard is None:
            return (0.0, 0.0) if ctx.hash_size < 1 else None
        if self._noting:
            self.predictions.setdefault(shard, None)
            self.sizes.setdefault((ctx.sharding_type, ctx.compute_kernel), {})[shard] = _sizes(ctx, self)
            return 0.0, 0.0
        known = self.predictions.get(shard)
        if known is None:
            raise ValueError(f"a MeasuredPerfEstimator has to ask for it first: {shard}")
        return known

    @forward_compute
    def predicted_forward(self, ctx: ShardPerfContext) -> float:
        found = self._predicted(ctx)
        return get_embedding_perf_sharding_evaluator(ctx.sharding_type)._default_fwd_comp(ctx, self) if found is None else found[0]

    @backward_compute
    def predicted_backward(self, ctx: ShardPerfContext) -> float:
        found = self._predicted(ctx)
        return get_embedding_perf_sharding_evaluator(ctx.sharding_type)._default_bwd_comp(ctx, self) if found is None else found[1]

    @prefetch_compute
    def predicted_prefetch(self, ctx: ShardPerfContext) -> float:
        """Lookups that were measured behind a cache have its misses in them."""
        if self._predicted(ctx) is not None:
            return 0.0
        return get_embedding_perf_sharding_evaluator(ctx.sharding_type)._default_prefetch_comp(ctx, self)


class MeasuredPerfEstimator(EmbeddingPerfEstimatorV2):
    """The perf estimator for TorchRec's own planner: compute of every shard as PredictCompute gives it, asked in one call for all options of a module.

        estimators = [MeasuredPerfEstimator(topology, constraints, cost_model={"name": "h100-sxm"}), EmbeddingStorageEstimator(topology, constraints)]
        enumerator = EmbeddingEnumerator(topology, batch_size, constraints, estimators)
        planner = EmbeddingShardingPlanner(topology=topology, batch_size=batch_size, constraints=constraints, enumerator=enumerator)

    topology, constraints, is_inference
                  as in TorchRec's estimator.
    address, timeout_s, credentials, tls_server_name, retries
                  as in neuroshard.PlannerClient.
    cost_model    a neuroshard.v1.CostModelRef, or a dict of its shape. None: the planner's default.
    optimizer     a word of ShardPlanRequest.optimizer, of all tables. None: "sgd".
    statistics    of `neuroshard.torchrec.statistics(batches)`: how often ids occur. Pooling factors are those of the constraints. None: as in a public trace.

    Each shard is priced as if it were looked up alone, which is what TorchRec adds up; the service's own plans price the shards of a rank together. Of a
    table with several features one bag a sample is priced with all their ids; weights of 2 bytes as fp16, of 1 byte as int8, whatever they are.
    """

    def __init__(
        self,
        topology: Topology,
        constraints: Optional[Dict[str, ParameterConstraints]] = None,
        is_inference: bool = False,
        address: Optional[str] = None,
        cost_model: Union[v1.CostModelRef, Mapping[str, Any], None] = None,
        optimizer: Optional[str] = None,
        statistics: Optional[FeatureStatistics] = None,
        timeout_s: float = neuroshard.call.DEFAULT_TIMEOUT_S,
        retries: int = neuroshard.call.DEFAULT_RETRIES,
        credentials: Optional[grpc.ChannelCredentials] = None,
        tls_server_name: Optional[str] = None,
    ) -> None:
        check_type("topology", topology, Topology, "torchrec's Topology")
        check_constraints(constraints)
        check_type("optimizer", optimizer, str, "the name of an optimizer, such as 'adagrad'")
        check_type("statistics", statistics, FeatureStatistics, "what neuroshard.torchrec.statistics(batches) gives")
        self._client_arguments: Dict[str, Any] = {
            "address": address, "timeout_s": timeout_s, "retries": retries, "credentials": credentials, "tls_server_name": tls_server_name,
        }  # fmt: skip
        with neuroshard.PlannerClient(**self._client_arguments):
            pass  # arguments that are none are told here
        self._cost_model = v1.CostModelRef() if cost_model is None else as_message(v1.CostModelRef, cost_model, "cost_model")
        self._optimizer = optimizer or ""
        self._statistics = statistics
        self._measured = MeasuredPerfConfig()
        super().__init__(topology, constraints, is_inference, self._measured)
        self.price_basis = ""
        """What the prices of the last call rest on, a line; empty before it."""

    def estimate(self, sharding_options: List[ShardingOption], sharder_data_map: SharderDataMap) -> None:
        """Sets the perf of every shard. neuroshard.PlannerError where the planner gives no answer, ValueError for features that the statistics lack."""
        self._measured.reuse.update(self._reuse(sharding_options))
        self._measured._noting = True
        try:
            super().estimate(sharding_options, sharder_data_map)
        finally:
            self._measured._noting = False
        self._ask([shard for shard, known in self._measured.predictions.items() if known is None])
        super().estimate(sharding_options, sharder_data_map)

    def fitted(self) -> FittedPerfConfig:
        """Coefficients nearest to the predictions of the shards that were asked for so far, by relative error and none below 0; fitted to half of them, drawn
        at random, `error` is of the rest. They go with the topology's bandwidths. ValueError before any `estimate`."""
        coefficients, fixed_ms, errors = PerfCoefficientConfig(weighted_kernel_multiplier=0.0), {}, {}
        for key, all_sizes in self._measured.sizes.items():
            sizes = {shard: size for shard, size in all_sizes.items() if min(self._measured.predictions[shard] or (0.0,)) > 0}
            if not sizes:
                continue
            terms = [torch.tensor(part, dtype=torch.float64) for part in zip(*sizes.values())]
            known = torch.tensor([self._measured.predictions[shard] for shard in sizes], dtype=torch.float64)
            drawn = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(0))
            half, rest = drawn[::2], drawn[1::2]
            forward, backward = (torch.tensor(fit_non_negative(each[half].tolist(), known[half, at].tolist()), dtype=torch.float64) for at, each in enumerate(terms))
            coefficients.by_kernel[key] = EstimatorPerfCoefficients(PerfCoefficient(*forward[1:].tolist()), PerfCoefficient(*backward[1:].tolist()))
            fixed_ms[key] = (float(forward[0]), float(backward[0]))
            found = torch.stack([terms[0] @ forward, terms[1] @ backward], 1)[rest]
            errors[key] = (torch.column_stack([found.sum(1), found]) / torch.column_stack([known.sum(1), known])[rest] - 1).abs()
        if not errors:
            raise ValueError("nothing was estimated yet: there are no shards to fit to")
        of_all = _fit_error(torch.cat(list(errors.values())))
        return FittedPerfConfig(coefficients, fixed_ms, of_all, {key: _fit_error(each) for key, each in errors.items()})

    def _reuse(self, options: Sequence[ShardingOption]) -> Dict[str, Tuple[float, ...]]:
        """By table; of tables with the same name in several modules, that of all their features."""
        if self._statistics is None:
            return {}
        features: Dict[str, Dict[str, None]] = {}
        for option in options:
            configs = [config for part in option.module[1].modules() for config in configs_of(part) if config.name == option.name]
            names = option.feature_names or [name for config in configs for name in config.feature_names]
            features.setdefault(option.name, {}).update(dict.fromkeys(names))
        found = {table: tuple(self._statistics.reuse_histogram(list(names))) for table, names in features.items()}
        return {table: histogram for table, histogram in found.items() if any(histogram)}

    def _ask(self, shards: Sequence[PredictedShard]) -> None:
        with neuroshard.PlannerClient(**self._client_arguments) as client:
            for first in range(0, len(shards), MOST_SETS):
                asked = shards[first : first + MOST_SETS]
                response = client.predict(v1.PredictComputeRequest(cost_model=self._cost_model, sets=[self._set(shard) for shard in asked]))
                for warning in response.warnings:
                    logger.warning("%s", warning)
                self.price_basis = response.price_basis.text
                self._measured.predictions.update((shard, self._parts(each)) for shard, each in zip(asked, response.predictions))

    def _set(self, shard: PredictedShard) -> v1.ComputeSet:
        said = shard._asdict()
        batch_size = said.pop("batch_size")
        return v1.ComputeSet(shards=[v1.MeasuredShard(**said)], batch_size=batch_size, optimizer=self._optimizer)

    def _parts(self, prediction: v1.ComputePrediction) -> Tuple[float, float]:
        """A model that does not tell the two apart has TorchRec's share of the backward pass."""
        if prediction.HasField("forward_ms"):
            return prediction.forward_ms, prediction.backward_ms
        forward = prediction.total_ms / (1 + self._topology.bwd_compute_multiplier)
        return forward, prediction.total_ms - forward


def _fit_error(errors: torch.Tensor) -> FitError:
    """Of one row a shard: relative errors of the sum, of forward and of backward."""
    if not len(errors):
        return FitError(*[0.0] * 6, shards=0)
    found = errors[:, 0].sort().values
    return FitError(*(float(found[int(share * (len(found) - 1))]) for share in (0.5, 0.9, 1.0)), *errors.mean(0).tolist(), shards=len(found))


def _sizes(ctx: ShardPerfContext, config: HardwarePerfConfig) -> Sizes:
    evaluator = get_embedding_perf_sharding_evaluator(ctx.sharding_type)
    read = [evaluator._get_input_read_size(ctx, config), evaluator._get_embedding_lookup_size(ctx)]
    vectors = [evaluator._get_output_write_size(ctx, evaluator._get_comm_data_type_size(ctx, is_fwd=is_forward)) for is_forward in (True, False)]
    return Sizes(*([1.0, *(each / ctx.device_bw for each in (*read, written, ctx.hash_size))] for written in vectors))


class DeviceFigures(NamedTuple):
    """Of all devices, as TorchRec's formulas have them: a Topology's, or those of a HardwarePerfConfig in its place. Bytes per millisecond."""

    memory_bw: float
    host_to_device_bw: float
    bwd_compute_multiplier: float
    weighted_feature_bwd_compute_multiplier: float
    unsaid: List[str]
    """What the config says besides, which no request can say."""


def device_figures(topology: Topology, enumerator: EmbeddingEnumerator) -> DeviceFigures:
    """Those of the config of the enumerator's perf estimator, which stands for the topology where both say something."""
    configs = (getattr(getattr(each, "_estimator", each), "_config", None) for each in enumerator._estimators)
    config = next((each for each in configs if isinstance(each, HardwarePerfConfig)), EmbeddingPerfEstimatorConfig())

    def bandwidth(kernel: str) -> float:
        memories = (topology.hbm_mem_bw, topology.ddr_mem_bw, topology.ssd_mem_bw, topology.hbm_to_ddr_mem_bw)
        return float(config.get_device_bw(topology.compute_device, kernel, *memories) or 0.0)

    return DeviceFigures(
        memory_bw=bandwidth(FUSED),
        host_to_device_bw=topology.hbm_to_ddr_mem_bw if config.hbm_to_ddr_mem_bw is None else config.hbm_to_ddr_mem_bw,
        bwd_compute_multiplier=config.get_bwd_compute_multiplier(topology.bwd_compute_multiplier),
        weighted_feature_bwd_compute_multiplier=config.get_weighted_feature_bwd_compute_multiplier(topology.weighted_feature_bwd_compute_multiplier),
        unsaid=[] if isinstance(config, MeasuredPerfConfig) else _unsaid(config),
    )


def _unsaid(config: HardwarePerfConfig) -> List[str]:
    default = EmbeddingPerfEstimatorConfig()
    kernels = sorted({kernel for _, kernel in config.kernel_device_bandwidths} - {FUSED})
    types = [each.value for each in ShardingType]
    of_type = (get_forward_compute, get_backward_compute, get_fwd_comms, get_bwd_comms, get_input_dist_comms, get_output_write_size)
    methods = {find(config, each) for find in of_type for each in types} | {get_prefetch_compute(config)}
    found = [f"bandwidth of {kernel}" for kernel in kernels]
    found += ["coefficients"] * any(
        config.get_coefficients_for_sharding(each, kernel) != default.get_coefficients_for_sharding(each, kernel) for each in types for kernel in (FUSED, DENSE)
    )
    found += [f"{method.__name__}()" for method in sorted(methods - {None}, key=lambda method: method.__name__)]
    return [
        f"HardwarePerfConfig {config.name!r}: not priced, since cost models have their own, but by one that write_cost_model wrote of it: {', '.join(found)}"
    ] * bool(found)
