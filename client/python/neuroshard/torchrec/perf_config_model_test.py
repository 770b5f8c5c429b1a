"""A user's HardwarePerfConfig as a cost model: what the planner says of a shard is what TorchRec's estimator says.

perf_config_model_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import collections
import math
import pathlib
import random
import tempfile

import torch
from planner_case import Case, Model, Programs, bag, gpus, main, make, small_model
from planner_process import PlannerProcess
from torchrec import EmbeddingBagCollection, EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    EmbeddingPerfEstimatorV2,
    EstimatorPerfCoefficients,
    HardwarePerfConfig,
    PerfCoefficient,
    PerfCoefficientConfig,
)
from torchrec.distributed.planner.estimator.annotations import (
    bwd_coefficient,
    device_bw,
    forward_compute,
    fwd_coefficient,
    fwd_comms,
    output_write_size,
    supported_sharding_types,
    use_bytes_for_input_read_size,
)
from torchrec.distributed.planner.estimator.types import PrefetchCoefficients
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams, ShardingType

import neuroshard
from neuroshard.checkpoints.model_directory import ModelDirectoryError
from neuroshard.torchrec import MeasuredPerfEstimator, write_cost_model
from neuroshard.torchrec.module_tables import CACHED_KERNELS

BATCH, RANKS, LOCAL, TABLES = 256, 8, 4, 6
TOPOLOGY = gpus(RANKS, LOCAL, bwd_compute_multiplier=2.5)
KINDS = [each.value for each in ShardingType]
KERNELS = ["dense", "fused", "fused_uvm", "fused_uvm_caching", "key_value"]
HOST = {"num_devices": LOCAL, "memory_bytes": 1 << 40, "host_memory_bytes": 1 << 45, "ssd_bytes": 1 << 45, "count": RANKS // LOCAL}
BANDWIDTHS = {"device_memory_bytes_per_s": 1e3 * TOPOLOGY.hbm_mem_bw, "host_to_device_bytes_per_s": 1e3 * TOPOLOGY.hbm_to_ddr_mem_bw}


def coefficient(draw):
    return PerfCoefficient(*(draw.choice([0.0, draw.uniform(0, 4)]) for _ in range(3)), draw.choice([0.0, draw.uniform(0, 50)]))


def coefficients(draw):
    return EstimatorPerfCoefficients(coefficient(draw), draw.choice([None, coefficient(draw)]))


def random_config(draw):
    class Drawn(draw.choice([HardwarePerfConfig, EmbeddingPerfEstimatorConfig])):
        name = "drawn"
        coefficients = PerfCoefficientConfig(
            **{kind: draw.choice([None, coefficients(draw)]) for kind in ("table_wise", "column_wise", "row_wise", "table_row_wise", "data_parallel")},
            by_kernel={(kind, kernel): coefficients(draw) for kind in KINDS for kernel in KERNELS if draw.random() < 0.3},
            weighted_kernel_multiplier=draw.uniform(0, 2),
        )
        kernel_device_bandwidths = {("cuda", kernel): 10 ** draw.uniform(6, 10) for kernel in KERNELS if draw.random() < 0.3}

    for attribute, value in (
        ("_use_block_usage_penalty", draw.choice([True, False])),
        ("_use_min_dim_for_lookup", draw.choice([True, False])),
        ("_use_bytes_for_input_read_size", False),
        ("_input_data_type_size", 4),
        ("_bwd_compute_multiplier", draw.uniform(0, 4)),
        ("_weighted_feature_bwd_compute_multiplier", draw.uniform(0, 2)),
        ("device_bw", 10 ** draw.uniform(8, 10)),
    ):
        if draw.random() < 0.4:
            setattr(Drawn, attribute, value)
    return Drawn()


@use_bytes_for_input_read_size(False)
@device_bw(bandwidth=6e9, device="cuda", compute_kernel="fused")
class Annotated(HardwarePerfConfig):
    name = "annotated: by \"methods\""

    @fwd_coefficient(sharding_type=["table_wise", "row_wise"])
    def of_forward(self):
        return PerfCoefficient(40.0, 0.5, 2.0, 3.0)

    @bwd_coefficient(sharding_type="row_wise")
    def of_backward(self):
        return PerfCoefficient(1.0, 2.0, 0.25, 0.0)


def tables(draw, **kind):
    widths = [256] if kind.get("unpooled") else [8, 32, 64, 100, 128, 256]  # TorchRec has one width in an EmbeddingCollection
    named = {f"t{index}": (int(10 ** draw.uniform(2, 6)), draw.choice(widths)) for index in range(TABLES)}
    constraints = {
        name: ParameterConstraints(
            sharding_types=KINDS,
            compute_kernels=KERNELS,
            pooling_factors=[10 ** draw.uniform(-0.5, 1.5)],
            min_partition=32,
            cache_params=CacheParams(load_factor=draw.uniform(0.05, 0.95)),
        )
        for name in named
    }
    meta = torch.device("meta")
    if kind.get("unpooled"):
        configs = [EmbeddingConfig(name=name, num_embeddings=rows, embedding_dim=cols, feature_names=[f"f_{name}"]) for name, (rows, cols) in named.items()]
        return Model(ec=EmbeddingCollection(tables=configs, device=meta)), constraints
    configs = [bag(name, rows, cols) for name, (rows, cols) in named.items()]
    return Model(ebc=EmbeddingBagCollection(tables=configs, is_weighted=kind.get("weighted", False), device=meta)), constraints


def options(config, module, constraints):
    perf = EmbeddingPerfEstimatorV2(TOPOLOGY, constraints, config=config)
    enumerator = EmbeddingEnumerator(TOPOLOGY, BATCH, constraints, [perf, EmbeddingStorageEstimator(TOPOLOGY, constraints)])
    return enumerator.enumerate(module, get_default_sharders())


def ranks_of(option):
    """Of its shards, as TorchRec may place them."""
    index = range(len(option.shards))
    if option.sharding_type == "grid_shard":
        return [(at // LOCAL) % (RANKS // LOCAL) * LOCAL + at % LOCAL for at in index]
    return [at % (LOCAL if option.sharding_type == "table_column_wise" else RANKS) for at in index]


class PerfConfigModelTest(Case):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def served(self):
        """An address where the models of the root are served."""
        return self.enterContext(PlannerProcess(Programs.planner, models=str(self.root))).address

    def off_by(self, client, name, option, **kind):
        """(shards, the largest relative error of compute on a rank)."""
        rows, cols = option.tensor.shape
        table = {"name": option.name, "num_embeddings": rows, "embedding_dim": cols, "pooling_factor": option.input_lengths[0]}
        table |= {"kind": "embedding" if kind.get("unpooled") else "embedding_bag", "weighted": kind.get("weighted", False)}
        shards, expected = [], collections.defaultdict(lambda: [0.0, 0.0])
        for shard, rank in zip(option.shards, ranks_of(option)):
            shards.append({"row_offset": shard.offset[0], "rows": shard.size[0], "col_offset": shard.offset[1], "cols": shard.size[1], "rank": rank})
            for at, time in enumerate((shard.perf.fwd_compute, shard.perf.bwd_compute)):
                expected[rank][at] += time
        plan = {"name": option.name, "sharding_type": option.sharding_type, "compute_kernel": option.compute_kernel, "shards": shards}
        if option.compute_kernel in CACHED_KERNELS:
            plan["cache_load_factor"] = option.cache_load_factor
        request = {
            "tables": [table],
            "topology": {"hosts": [HOST], "bandwidths": BANDWIDTHS},
            "global_batch_size": BATCH * RANKS,
            "cost_model": {"name": name},
        }
        ranks = client.evaluate(request, {"tables": [plan]}).cost.ranks
        worst = 0.0
        for rank, times in expected.items():
            for found, time in zip((ranks[rank].forward_compute_ms, ranks[rank].backward_compute_ms), times):
                worst = max(worst, abs(found - time) / time if time else found)
        return len(shards), worst

    def test_shards_cost_what_torchrec_says(self):
        draw = random.Random(34)
        configs = {"annotated": Annotated(), **{f"drawn{index}": random_config(draw) for index in range(8)}}
        fitted = MeasuredPerfEstimator(TOPOLOGY, address=Programs.address, cost_model={"name": "h100-sxm"})
        fitted_options = EmbeddingEnumerator(TOPOLOGY, BATCH, None, [fitted, EmbeddingStorageEstimator(TOPOLOGY)])
        fitted_options.enumerate(tables(draw)[0], get_default_sharders())
        configs["fitted"] = fitted.fitted()
        for name, config in configs.items():
            write_cost_model(str(self.root / name / "1"), config, TOPOLOGY)
        address, errors, seen = self.served(), [], collections.defaultdict(set)
        with neuroshard.PlannerClient(address) as client:
            for name, config in configs.items():
                for kind in ({}, {"weighted": True}, {"unpooled": True}):
                    for option in options(config, *tables(draw, **kind)):
                        count, worst = self.off_by(client, name, option, **kind)
                        self.assertLess(worst, 0.01, (name, kind, option.sharding_type, option.compute_kernel))
                        errors += [worst] * count
                        seen[bool(kind.get("unpooled"))].add((option.sharding_type, option.compute_kernel))
        self.assertGreater(len(errors), 1000)
        self.assertEqual({kind for kind, _ in seen[False]}, set(KINDS))
        self.assertEqual({kernel for _, kernel in seen[False]}, set(KERNELS))
        self.assertGreaterEqual({kind for kind, _ in seen[True]}, {"table_wise", "column_wise", "row_wise", "data_parallel"})
        print(f"{len(configs)} configs, {len(errors)} shards: off by at most {max(errors):.2g}, {sum(errors) / len(errors):.2g} in the mean")

    def test_plans_and_their_prices_are_those_of_the_config(self):
        """By NeuroShardPlanner, as a user has both: its plan costs what TorchRec's estimators say of it."""
        config = Annotated()
        write_cost_model(str(self.root / "mine" / "1"), config, TOPOLOGY)
        address = self.served()
        enumerator = EmbeddingEnumerator(TOPOLOGY, BATCH, estimator=[EmbeddingPerfEstimatorV2(TOPOLOGY, config=config), EmbeddingStorageEstimator(TOPOLOGY)])
        planner = make(address, TOPOLOGY, BATCH, enumerator=enumerator, request={"cost_model": {"name": "mine"}})
        planner.plan(small_model(), get_default_sharders())
        own = planner.response.cost
        estimated = collections.defaultdict(float)
        for option in planner.get_selected_options():
            for shard in option.shards:
                estimated[shard.rank] += shard.perf.total
        self.assertAlmostEqual(own.embedding_cost_ms / max(estimated.values()), 1, delta=0.01)
        self.assertIn("nothing was measured", planner.response.price_basis.text)
        self.assertIn("coefficients are those of mine", planner.response.price_basis.text)
        # Only requests that name it are priced by it.
        unnamed = make(address, TOPOLOGY, BATCH)
        unnamed.plan(small_model(), get_default_sharders())
        self.assertEqual(unnamed.response.cost_model.name, "analytic")
        with neuroshard.PlannerClient(address) as client:
            self.assertEqual(client.model("mine", 1).summary.kind, "analytic")
            self.assertEqual(len(client.model("mine", 1).sharding_types), len(KINDS))
        write_cost_model(str(self.root / "few" / "1"), supported_sharding_types("row_wise", "table_wise")(type("Few", (HardwarePerfConfig,), {}))(), TOPOLOGY)
        with neuroshard.PlannerClient(self.served()) as client:
            self.assertEqual(set(client.model("few", 1).sharding_types), {"row_wise", "table_wise"})

    def test_all_that_makes_it_another_price_is_named(self):
        class Other(EmbeddingPerfEstimatorConfig):
            name = "other"
            coefficients = PerfCoefficientConfig(
                row_wise=EstimatorPerfCoefficients(PerfCoefficient(lookup_size_multiplier=-1.0), PerfCoefficient(hash_size_multiplier=math.nan))
            )
            kernel_device_bandwidths = {("cuda", "fused_uvm"): 0.0}
            _bwd_compute_multiplier = math.inf

            @forward_compute(sharding_type="table_wise")
            def of_tables(self, ctx):
                return 1.0

            @output_write_size
            def of_vectors(self, ctx, is_fwd):
                return 1.0

            def post_process_perfs(self, shard_perfs, **more):
                return shard_perfs

        place = str(self.root / "other" / "1")
        with self.assertRaises(ValueError) as caught:
            write_cost_model(place, Other(), TOPOLOGY)
        for part in (
            "HardwarePerfConfig 'other' cannot be written as a cost model: ",
            "of_tables(): a method",
            "of_vectors(): a method",
            "post_process_perfs(): a method",
            "coefficients.fwd.lookup_size_multiplier of row_wise fused must be in [0, 1e+09], got -1.0",
            "coefficients.bwd.hash_size_multiplier of row_wise key_value must be in [0, 1e+09], got nan",
            "device_bw of table_wise fused_uvm must be in [0.001, 1e+15], got 0.0",
            "bwd_compute_multiplier of table_wise fused must be in [0, 1e+09], got inf",
        ):
            self.assertIn(part, str(caught.exception))
        self.assertFalse(pathlib.Path(place).exists())
        with self.assertRaisesRegex(ValueError, "supported_sharding_types: it has none of data_parallel"):
            write_cost_model(place, supported_sharding_types("other_wise")(type("None_", (HardwarePerfConfig,), {}))(), TOPOLOGY)
        for arguments in ((None, TOPOLOGY), (HardwarePerfConfig(), 3), (HardwarePerfConfig, TOPOLOGY)):
            with self.assertRaisesRegex(TypeError, "must be torchrec's"):
                write_cost_model(place, *arguments)
        for wrong in ("other", str(self.root / "a model" / "1")):
            with self.assertRaises(ModelDirectoryError):
                write_cost_model(wrong, HardwarePerfConfig(), TOPOLOGY)
        write_cost_model(place, HardwarePerfConfig(), TOPOLOGY)
        with self.assertRaisesRegex(ModelDirectoryError, "exists already"):
            write_cost_model(place, HardwarePerfConfig(), TOPOLOGY)
        write_cost_model(place, Annotated(), TOPOLOGY, replace=True)

    def test_what_is_priced_without_the_config_is_told(self):
        class Told(EmbeddingPerfEstimatorConfig):
            name = "told"
            coefficients = PerfCoefficientConfig(by_kernel={("table_wise", "quant"): EstimatorPerfCoefficients()}, prefetch=PrefetchCoefficients(1.0))

            @fwd_comms
            def of_exchanges(self, ctx):
                return 1.0

        with self.assertLogs("neuroshard.torchrec", "WARNING") as logged:
            write_cost_model(str(self.root / "told" / "1"), Told(), TOPOLOGY)
        told = "of_exchanges(), coefficients.prefetch, coefficients.by_kernel[table_wise, quant]"
        self.assertIn(f"'told': not in the cost model, which prices that as TorchRec's default does: {told}", logged.output[0])
        with self.assertNoLogs("neuroshard.torchrec", "WARNING"):
            write_cost_model(str(self.root / "quiet" / "1"), Annotated(), TOPOLOGY)


if __name__ == "__main__":
    main()
