"""Pooling factors of statistics, and what planners beside NeuroShardPlanner (guard, fallback, compared) are told and checked for.

  other_planner_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import sys
import unittest

import torch
from held_port import HeldPort
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import DataType, ShardingPlanner

from neuroshard.torchrec import NeuroShardPlanner, statistics
from neuroshard.torchrec.layout import from_sharding_plan

LOGGER = "neuroshard.torchrec"
BATCH = 4096
FACTORS = [100, 15, 15, 15, 15, 15, 15, 15]
NAMES = [f"b{index}" for index in range(len(FACTORS))]
ADDRESS = ""


def model(**more):
    tables = [EmbeddingBagConfig(**{"name": name, "num_embeddings": 100_000, "embedding_dim": 128, "feature_names": [f"f_{name}"], **more}) for name in NAMES]
    found = nn.Module()
    found.ebc = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return found


def gpus(**more):
    return Topology(**{"world_size": 2, "local_world_size": 2, "compute_device": "cuda", **more})


def batches(samples=64):
    lengths = torch.cat([torch.full((samples,), factor) for factor in FACTORS])
    return statistics([KeyedJaggedTensor(keys=[f"f_{name}" for name in NAMES], values=torch.arange(int(lengths.sum())) % 1000, lengths=lengths)])


def whole_tables(factors=None):
    """Constraints, without pooling factors unless there are `factors`."""
    more = [{}] * len(NAMES) if factors is None else [{"pooling_factors": [float(factor)]} for factor in factors]
    return {name: ParameterConstraints(sharding_types=["table_wise"], **each) for name, each in zip(NAMES, more)}


def settings(**more):
    return {
        "topology": gpus(), "batch_size": BATCH, "storage_reservation": FixedPercentageStorageReservation(0.0), "debug": False, "stats": [],
        "constraints": whole_tables(), **more,
    }  # fmt: skip


def ours(**more):
    return NeuroShardPlanner(more.pop("address", ADDRESS), **settings(**more))


def torchrecs(**more):
    return EmbeddingShardingPlanner(**settings(**more))


class Wrapped(ShardingPlanner):
    """A planner of whose constraints nothing is known."""

    def plan(self, module, sharders):
        return torchrecs().plan(module, sharders)

    def collective_plan(self, module, sharders):
        raise NotImplementedError


class PoolingFactorsTest(unittest.TestCase):
    def test_torchrecs_estimators_count_with_those_of_statistics(self):
        planner = ours(statistics=batches())
        with self.assertLogs(LOGGER) as logs:
            plan = planner.plan(model(), get_default_sharders())
        self.assertNotIn("TorchRec's estimators", "".join(logs.output))
        (row,) = planner.evaluate(plan).plans
        self.assertAlmostEqual(row.cost_ms, row.estimate_ms, delta=1e-5 * row.cost_ms)
        stated = ours(constraints=whole_tables(FACTORS))
        (same,) = stated.evaluate(plan, model()).plans
        self.assertAlmostEqual(row.estimate_ms, same.estimate_ms, delta=1e-9)

    def test_guard_and_compared_planner_plan_with_them(self):
        # By itself, with a pooling factor of 1 for every table, TorchRec's planner puts four tables on each rank: the hot one beside three others.
        by_itself = from_sharding_plan(torchrecs().plan(model(), get_default_sharders()))
        planner = ours(statistics=batches(), guard=torchrecs())
        with self.assertNoLogs(LOGGER, "WARNING"):
            planner.plan(model(), get_default_sharders())
        self.assertIsNotNone(planner.response)  # the service's own
        other = torchrecs()
        compared = planner.compare(other).plans
        for row in compared:
            self.assertAlmostEqual(row.cost_ms, row.estimate_ms, delta=1e-5 * row.cost_ms)
        self.assertAlmostEqual(compared[0].cost_ms, compared[1].cost_ms, delta=1e-5 * compared[0].cost_ms)
        # Nothing stays with them.
        self.assertEqual(other._constraints, whole_tables())
        self.assertEqual(from_sharding_plan(other.plan(model(), get_default_sharders())), by_itself)

    def test_a_fallback_plans_with_them(self):
        port = HeldPort()
        self.addCleanup(port.close)
        planner = ours(address=port.address, retries=0, statistics=batches(), fallback=torchrecs())
        plan = planner.plan(model(), get_default_sharders())
        stated = torchrecs(constraints=whole_tables(FACTORS)).plan(model(), get_default_sharders())
        self.assertEqual(from_sharding_plan(plan), from_sharding_plan(stated))
        self.assertNotEqual(from_sharding_plan(plan), from_sharding_plan(torchrecs().plan(model(), get_default_sharders())))

    def test_a_planner_that_cannot_be_told_is_said(self):
        with self.assertLogs(LOGGER, "WARNING") as logs:
            ours(statistics=batches()).compare(Wrapped(), model())
        self.assertIn("Wrapped: plans with pooling factors of its own; those of statistics= cannot be handed to it", "".join(logs.output))

    def test_weights_of_a_byte_are_counted_as_they_are_trained(self):
        planner = ours(statistics=batches())
        with self.assertNoLogs(LOGGER, "WARNING"):
            plan = planner.plan(model(data_type=DataType.INT8), get_default_sharders())
        (row,) = planner.evaluate(plan).plans
        self.assertAlmostEqual(row.cost_ms, row.estimate_ms, delta=1e-5 * row.cost_ms)


class OtherPlannerTest(unittest.TestCase):
    def test_what_is_no_planner_is_refused_at_once(self):
        for argument in ("fallback", "guard"):
            with self.assertRaisesRegex(TypeError, f"^{argument}: must be a planner such as torchrec's EmbeddingShardingPlanner.*, got str$"):
                ours(**{argument: "tr"})

    def test_planners_for_other_ranks_are_refused_at_once(self):
        for more, part in (({"world_size": 4}, "world_size is 4 and this planner's 2"), ({"compute_device": "cpu"}, "compute_device is 'cpu'")):
            other = torchrecs(topology=gpus(**more))
            with self.assertRaisesRegex(ValueError, f"^guard: its topology's {part}"):
                ours(guard=other)
            with self.assertRaisesRegex(ValueError, f"^other: its topology's {part}"):
                ours().compare(other, model())

    def test_another_batch_is_a_warning(self):
        with self.assertLogs(LOGGER, "WARNING") as logs:
            ours(fallback=torchrecs(batch_size=1))
        self.assertIn("fallback: plans for a batch of 1 a rank, this planner for 4096", logs.output[0])


if __name__ == "__main__":
    with PlannerProcess(sys.argv[1]) as process:
        ADDRESS = process.address
        sys.argv = sys.argv[:1] + sys.argv[3:]
        unittest.main(verbosity=2)
