"""A plan of NeuroShardPlanner beside that of TorchRec's own planner, both priced by TorchRec's estimators: never dearer where formulas answer.

  guard_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import random
import sys
import unittest

import torch
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import DataType
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

from neuroshard.torchrec import NeuroShardPlanner

GIB = 1 << 30
ROUNDING = 1e-6  # costs of the service are floats
JOBS = 28
ALL_CUT = 54  # where the best plan cuts every table by rows
TYPES = ["table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "data_parallel", "grid_shard"]
ADDRESS = ""


class Job:
    """A model of odd shapes on some GPUs, with what both planners are told: odd bandwidths and batches, constraints, memory that is short."""

    def __init__(self, seed):
        draw = random.Random(seed)
        ranks, local, self.pod_size = draw.choice(
            [(2, 2, None), (3, 1, None), (4, 2, None), (5, 5, None), (6, 3, None), (8, 8, None), (12, 4, None), (12, 4, 3), (16, 4, 2), (16, 8, None)]
        )
        kinds = draw.choice([("bags",), ("bags", "weighted"), ("bags", "ids"), ("ids",), ("half",)])
        constrained = draw.random() < 0.5
        tables, self.constraints, weights = {kind: [] for kind in kinds}, {}, 0
        # An EmbeddingCollection has one width for all its tables, and runs column blocks of one width alone.
        width_of_ids, least_of_ids = draw.choice([(8, None), (20, None), (64, 16), (64, 32)])
        for index in range(draw.choice([1, 2, 5, 11, 23, 40])):
            kind = draw.choice(kinds)
            rows = int(10 ** draw.uniform(0, 7.3))
            cols = width_of_ids if kind == "ids" else draw.choice([4, 8, 12, 20, 36, 64, 100, 128, 192, 256, 516])
            features = [f"f{index}_{number}" for number in range(draw.choice([1, 1, 1, 2, 3]))]
            dtype = DataType.FP16 if kind == "half" else DataType.FP32
            config = EmbeddingConfig if kind == "ids" else EmbeddingBagConfig
            tables[kind].append(config(name=f"t{index}", num_embeddings=rows, embedding_dim=cols, feature_names=features, data_type=dtype))
            weights += rows * cols * 4
            # data_parallel of an EmbeddingCollection is offered by its sharder and fails when it runs.
            types = TYPES[:3] if kind == "ids" else TYPES if constrained else None
            if constrained and draw.random() < 0.5:
                types = sorted({"table_wise", *draw.sample(types, draw.randint(1, len(types) - 1))})
            least = least_of_ids if kind == "ids" else draw.choice([None, 16, 32, 64])
            if not constrained or (least and cols % least):
                least = None
            self.constraints[f"t{index}"] = ParameterConstraints(
                sharding_types=types,
                min_partition=least,
                pooling_factors=[round(10 ** draw.uniform(-0.5, 2), 2) for _ in features],
            )
        self.model = nn.Module()
        for kind in (kind for kind in kinds if tables[kind]):
            meta = torch.device("meta")
            made = EmbeddingCollection(tables[kind], meta) if kind == "ids" else EmbeddingBagCollection(tables[kind], kind == "weighted", device=meta)
            setattr(self.model, kind, made)
        pressure = draw.choice([None, None, 1.3, 2.5])  # of memory; the tightest only fits since host memory helps
        figures = {}
        if draw.random() < 0.5:  # bytes per millisecond
            figures = {"hbm_mem_bw": draw.choice([1555e6, 3350e6]), "intra_host_bw": draw.choice([25e6, 450e6]), "inter_host_bw": draw.choice([3e6, 48e6])}
        hbm_cap = 80 * GIB if pressure is None else int(pressure * weights / ranks) + GIB // 4
        self.topology = Topology(world_size=ranks, local_world_size=local, compute_device="cuda", hbm_cap=hbm_cap, pod_size=self.pod_size, **figures)
        self.batch_size = draw.choice([1, 37, 512, 4096])

    def planner(self, planner, *address, **more):
        return planner(
            *address,
            topology=self.topology,
            batch_size=self.batch_size,
            constraints=self.constraints,
            storage_reservation=FixedPercentageStorageReservation(0.0),
            stats=[],
            debug=False,
            **more,
        )

    def cost_ms(self, planner):
        """What TorchRec's estimators say of the planner's plan."""
        planner.plan(self.model, get_default_sharders())
        return NoopPerfModel(self.topology).rate(planner.get_selected_options())


class GuardTest(unittest.TestCase):
    def test_no_plan_is_dearer_than_torchrecs_by_torchrecs_estimators(self):
        cheaper = 0
        for seed in (*range(JOBS), ALL_CUT):
            with self.subTest(seed=seed):
                job = Job(seed)
                ours = job.planner(NeuroShardPlanner, ADDRESS)
                try:
                    theirs_ms = job.cost_ms(job.planner(EmbeddingShardingPlanner))
                except PlannerError:
                    continue  # ours may find one
                ours_ms = job.cost_ms(ours)
                self.assertEqual((ours.response.cost_model.name, ours.response.HasField("analytic_cost_ms")), ("analytic", False))
                own_ms = ours.response.cost.embedding_cost_ms
                if job.pod_size and abs(own_ms - ours_ms) > ROUNDING * ours_ms:
                    continue  # of pods the service counts the all-reduce of data_parallel in another way
                self.assertAlmostEqual(own_ms, ours_ms, delta=ROUNDING * ours_ms)
                self.assertLessEqual(ours_ms, theirs_ms * (1 + ROUNDING))
                cheaper += ours_ms < theirs_ms * (1 - ROUNDING)
        self.assertGreater(cheaper, JOBS // 3)

    def test_a_model_that_was_not_measured_on_the_devices_is_told_with_both_figures(self):
        job = Job(3)
        planner = job.planner(NeuroShardPlanner, ADDRESS, request={"cost_model": {"name": "cpu-amd-epyc"}})
        cost_ms = job.cost_ms(planner)
        response = planner.response
        self.assertAlmostEqual(response.analytic_cost_ms, cost_ms, delta=ROUNDING * cost_ms)
        (warning,) = [each for each in response.warnings if "was not measured on cuda devices" in each]
        self.assertIn(f"{response.cost.embedding_cost_ms:.4g} ms by that model and {response.analytic_cost_ms:.4g} ms by TorchRec's formulas", warning)

    def test_the_guards_plan_is_taken_where_it_is_cheaper(self):
        by_name = {"request": {"cost_model": {"name": "cpu-amd-epyc"}}}
        seen = set()
        for seed in range(8):
            with self.subTest(seed=seed):
                job = Job(seed)
                try:
                    theirs_ms = job.cost_ms(job.planner(EmbeddingShardingPlanner))
                except PlannerError:
                    continue
                ours_ms = job.cost_ms(job.planner(NeuroShardPlanner, ADDRESS, **by_name))
                guarded = job.planner(NeuroShardPlanner, ADDRESS, guard=job.planner(EmbeddingShardingPlanner), **by_name)
                with self.assertLogs("neuroshard.torchrec", "WARNING") as logs:
                    guarded_ms = job.cost_ms(guarded)
                self.assertAlmostEqual(guarded_ms, min(ours_ms, theirs_ms), delta=ROUNDING * theirs_ms)
                taken = "THE PLAN IS EmbeddingShardingPlanner'S" in "\n".join(logs.output)
                self.assertEqual(taken, theirs_ms < ours_ms)
                self.assertEqual(guarded.response is None, taken)
                seen.add(taken)
        self.assertEqual(seen, {False, True})

    def test_formulas_that_are_not_torchrecs_are_told(self):
        job = Job(3)
        planner = job.planner(NeuroShardPlanner, ADDRESS)
        with self.assertLogs("neuroshard.torchrec") as logs:
            job.cost_ms(planner)
        self.assertNotIn("TorchRec's estimators", "".join(logs.output))
        # TorchRec's estimators do not see that a feature processor gives weights.
        tables = [EmbeddingBagConfig(name=f"t{index}", num_embeddings=1000, embedding_dim=64, feature_names=[f"f{index}"]) for index in range(4)]
        inner = EmbeddingBagCollection(tables, is_weighted=True, device=torch.device("meta"))
        processors = PositionWeightedModuleCollection({f"f{index}": 10 for index in range(4)}, torch.device("meta"))
        model = nn.Module()
        model.fp = FeatureProcessedEmbeddingBagCollection(inner, processors)
        planner = NeuroShardPlanner(ADDRESS, Topology(world_size=2, compute_device="cuda"), 64, stats=[], debug=False)
        with self.assertLogs("neuroshard.torchrec", "WARNING") as logs:
            planner.plan(model, [FeatureProcessedEmbeddingBagCollectionSharder()])
        (line,) = [each for each in logs.output if "TorchRec's estimators" in each]
        own_ms = planner.response.cost.embedding_cost_ms
        estimate_ms = NoopPerfModel(planner._topology).rate(planner.get_selected_options())
        self.assertIn(f"{own_ms:.4g} ms, by TorchRec's estimators {estimate_ms:.4g} ms", line)

    def test_the_device_is_told(self):
        job = Job(3)
        planner = job.planner(NeuroShardPlanner, ADDRESS, device="a100-sxm-80gb")
        cost_ms = job.cost_ms(planner)
        self.assertEqual(planner.response.cost_model.name, "analytic")
        self.assertIn("a100-sxm-80gb", planner.response.price_basis.text)
        self.assertAlmostEqual(planner.response.cost.embedding_cost_ms, cost_ms, delta=ROUNDING * cost_ms)  # the topology's figures count
        with self.assertRaisesRegex(PlannerError, "h100-sxn.*did you mean h100-sxm"):
            job.cost_ms(job.planner(NeuroShardPlanner, ADDRESS, device="h100-sxn"))

    def test_a_model_of_cpus_answers_cpus(self):
        tables = [EmbeddingBagConfig(name="a", num_embeddings=1000, embedding_dim=16, feature_names=["f"])]
        model = nn.Module()
        model.bags = EmbeddingBagCollection(tables, device=torch.device("meta"))
        for device, answers in (("cpu", "cpu-amd-epyc"), ("cuda", "analytic")):
            planner = NeuroShardPlanner(ADDRESS, Topology(world_size=2, compute_device=device), 64, stats=[], debug=False)
            planner.plan(model, get_default_sharders())
            self.assertEqual(planner.response.cost_model.name, answers)


if __name__ == "__main__":
    with PlannerProcess(sys.argv[1]) as process:
        ADDRESS = process.address
        sys.argv = sys.argv[:1] + sys.argv[3:]
        unittest.main(verbosity=2)
