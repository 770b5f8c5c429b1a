"""Figures that a plan rests on: devices named beside a Topology of TorchRec's defaults, bandwidths in other units, pooling factors that nobody said.

  topology_figures_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import re
import sys
import unittest

import torch
import torch.distributed as dist
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.sharding_plan import get_default_sharders

from neuroshard.torchrec import NeuroShardPlanner, statistics

ADDRESS = ""


def model():
    tables = [EmbeddingBagConfig(name=name, num_embeddings=1000, embedding_dim=64, feature_names=[f"f_{name}"]) for name in "abc"]
    found = nn.Module()
    found.ebc = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return found


def planned(topology, **more):
    planner = NeuroShardPlanner(ADDRESS, topology, 512, debug=False, stats=[], **more)
    planner.plan(model(), get_default_sharders())
    return planner


def gpus(**more):
    return Topology(**{"world_size": 4, "local_world_size": 2, "compute_device": "cuda", **more})


class DeviceTest(unittest.TestCase):
    def test_a_topology_of_defaults_is_not_the_devices(self):
        planner = planned(gpus(), device="a100-sxm-80gb")  # no model was measured on it
        (warning,) = [each for each in planner.response.warnings if each.startswith("device='a100-sxm-80gb'")]
        self.assertIn("TorchRec's defaults (a V100-class host) for hbm_cap, hbm_mem_bw, intra_host_bw, inter_host_bw, by which memory is counted, and priced whatever no model measured", warning)
        self.assertNotIn("published figures", planner.response.price_basis.text)
        self.assertIn("; prices rest on the request's figures for a100-sxm-80gb (963 GB/s of memory", planner.summary)
        # What the warning says to write has the device's figures, and no warning.
        figures = dict(re.findall(r"(\w+)=([\d.e+]+)", warning.partition("Topology(..., ")[2]))
        stated = planned(gpus(hbm_cap=int(figures.pop("hbm_cap")), **{name: float(value) for name, value in figures.items()}), device="a100-sxm-80gb")
        self.assertEqual([each for each in stated.response.warnings if each.startswith("device=")], [])
        self.assertIn("(2039 GB/s of memory", stated.response.price_basis.text)

    def test_without_a_device_the_summary_says_which_figures_count(self):
        self.assertIn("; prices rest on TorchRec's formulas with their default bandwidths of a V100-class host, from the service", planned(gpus()).summary)

    def test_bandwidths_that_are_too_small_are_told_in_the_topologys_unit(self):
        with self.assertRaises(PlannerError) as caught:
            planned(gpus(intra_host_bw=450, hbm_mem_bw=3.35))
        for part in ("hbm_mem_bw is 3.35 bytes per millisecond", "intra_host_bw is 450 bytes per millisecond", "450 GB/s are 450e6"):
            self.assertIn(part, str(caught.exception))


class ProcessGroupTest(unittest.TestCase):
    def test_cuda_without_cuda_devices_is_told(self):
        if torch.cuda.is_available():
            self.skipTest("there are CUDA devices")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        for device, told in (("cuda", True), ("cpu", False)):
            planner = NeuroShardPlanner(ADDRESS, Topology(world_size=1, local_world_size=1, compute_device=device), 512, debug=False, stats=[])
            with self.assertLogs("neuroshard.torchrec") as logs:
                planner.collective_plan(model(), get_default_sharders())
            self.assertEqual("DistributedModelParallel cannot run the plan here" in "".join(logs.output), told)
            self.assertIn("plan of 3 tables on 1 rank (", planner.summary)


class PoolingFactorTest(unittest.TestCase):
    def warned(self, **more):
        return [each for each in planned(gpus(), **more).response.warnings if each.startswith("pooling factor taken as 1")]

    def test_a_pooling_factor_that_nobody_said_is_told(self):
        (warning,) = self.warned()
        self.assertTrue(warning.endswith(": ebc.a, ebc.b, ebc.c"), warning)
        # Where constraints speak of pooling factors, their 1 is meant.
        (warning,) = self.warned(constraints={"a": ParameterConstraints(pooling_factors=[20.0]), "b": ParameterConstraints(pooling_factors=[1.0])})
        self.assertTrue(warning.endswith(": ebc.c"), warning)
        self.assertEqual(self.warned(constraints={name: ParameterConstraints(pooling_factors=[2.0]) for name in "abc"}), [])

    def test_ids_beyond_the_rows_are_told(self):
        for largest, told in ((999, []), (1000, ["b"])):
            keys = [f"f_{name}" for name in "abc"]
            batch = KeyedJaggedTensor(keys=keys, values=torch.tensor([1, largest, 2]), lengths=torch.tensor([1, 1, 1]))
            warnings = planned(gpus(), statistics=statistics([batch])).response.warnings
            self.assertEqual([each[-1] for each in warnings if "ids beyond the table's rows" in each], told)


if __name__ == "__main__":
    with PlannerProcess(sys.argv[1]) as process:
        ADDRESS = process.address
        sys.argv = sys.argv[:1] + sys.argv[3:]
        unittest.main(verbosity=2)
