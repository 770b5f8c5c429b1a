"""Plans in files between the command line and TorchRec: tables of requests that name no module.

  no_module_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders

from neuroshard.torchrec import NeuroShardPlanner, load_plan, save_plan

ADDRESS = CLIENT = ""
REQUEST = """
tables:
  - {name: users, num_embeddings: 1000, embedding_dim: 64, pooling_factor: 3, zipf_exponent: 1.05}
  - {name: goods, num_embeddings: 2000, embedding_dim: 64, pooling_factor: 3, zipf_exponent: 1.05}
topology: {hosts: [{num_devices: 2, device: h100-sxm}]}
global_batch_size: 1024
"""


def bags(*names):
    tables = [EmbeddingBagConfig(name=name, num_embeddings=1000 * (1 + (name == "goods")), embedding_dim=64, feature_names=[f"f_{name}"]) for name in names]
    return EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def model(**parts):
    found = nn.Module()
    for name, part in parts.items():
        setattr(found, name, part)
    return found


class NoModuleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.request, self.plan = os.path.join(folder.name, "request.yaml"), os.path.join(folder.name, "plan.json")
        with open(self.request, "w", encoding="utf-8") as file:
            file.write(REQUEST)
        self.topology = Topology(world_size=2, local_world_size=2, compute_device="cuda")

    def run_client(self, *arguments):
        return subprocess.run([CLIENT, *arguments, "--planner", ADDRESS], capture_output=True, text=True)

    def test_torchrec_loads_the_plan_where_names_are_unique(self):
        done = self.run_client("plan", self.request, "--format", "torchrec", "--out", self.plan)
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = model(ebc=bags("users", "goods"))
        self.assertEqual(set(load_plan(self.plan, whole, self.topology).plan["ebc"]), {"users", "goods"})
        (row,) = NeuroShardPlanner(ADDRESS, self.topology, 512, debug=False, stats=[]).evaluate(self.plan, whole).plans
        self.assertEqual((list(row.violations), row.cost_ms is None, row.estimate_ms is None), ([], False, False))
        with self.assertRaises(PlannerError) as caught:
            load_plan(self.plan, model(one=bags("users", "goods"), other=bags("users")), self.topology)
        self.assertEqual(caught.exception.error_type, PlannerErrorType.MISSING_MODULE_IN_PLAN)
        self.assertIn("lacks one.users, other.users and has users", str(caught.exception).replace("other.users, one.users", "one.users, other.users"))

    def test_the_command_line_evaluates_torchrecs_plan(self):
        planner = NeuroShardPlanner(ADDRESS, self.topology, 512, debug=False, stats=[])
        save_plan(planner.plan(model(ebc=bags("users", "goods")), get_default_sharders()), self.plan)
        done = self.run_client("evaluate", self.request, self.plan)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "legal"), done.stdout + done.stderr)


class OtherDeviceTest(unittest.TestCase):
    def test_kernels_for_gpus_are_told_on_cpus(self):
        gpus, cpus = (Topology(world_size=2, local_world_size=2, compute_device=device) for device in ("cuda", "cpu"))
        uvm = {"users": ParameterConstraints(compute_kernels=["fused_uvm"], sharding_types=["table_wise"])}
        planner = NeuroShardPlanner(ADDRESS, gpus, 512, constraints=uvm, debug=False, stats=[])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            save_plan(planner.plan(model(ebc=bags("users", "goods")), get_default_sharders()), path)
            with self.assertNoLogs("neuroshard.torchrec", "WARNING"):
                load_plan(path, model(ebc=bags("users", "goods")), gpus)
            with self.assertLogs("neuroshard.torchrec", "WARNING") as logs:
                load_plan(path, model(ebc=bags("users", "goods")), cpus)
        self.assertIn("was made for GPUs, with rows in host memory (fused_uvm or fused_uvm_caching) of ebc.users", logs.output[0])


if __name__ == "__main__":
    CLIENT = sys.argv[2]
    with PlannerProcess(sys.argv[1]) as process:
        ADDRESS = process.address
        sys.argv = sys.argv[:1] + sys.argv[3:]
        unittest.main(verbosity=2)
