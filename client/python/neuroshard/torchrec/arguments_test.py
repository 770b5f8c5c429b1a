"""Arguments that are none: one sentence that begins with the argument's name, before anything is asked or planned.

  arguments_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import collections
import sys
import unittest

import torch
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan

from neuroshard.torchrec import NeuroShardPlanner, load_plan, save_plan, statistics

ADDRESS = ""


def model(cols=64):
    tables = [EmbeddingBagConfig(name=name, num_embeddings=1000, embedding_dim=cols, feature_names=[f"f_{name}"]) for name in ("users", "goods")]
    found = nn.Module()
    found.ebc = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return found


def gpus(**more):
    return Topology(**{"world_size": 4, "local_world_size": 2, "compute_device": "cuda", **more})


def made(*arguments, **more):
    return NeuroShardPlanner(*(arguments or (ADDRESS,)), **{"topology": gpus(), "debug": False, "stats": [], **more})


class ArgumentsTest(unittest.TestCase):
    def test_the_planners(self):
        batch = KeyedJaggedTensor(keys=["x"], values=torch.tensor([1]), lengths=torch.tensor([1]))
        one = ParameterConstraints
        for more, kind, text in (
            ({"topology": 512}, TypeError, "topology: must be torchrec's Topology, got int"),
            ({"topology": None}, ValueError, "topology: must be given where there is no process group"),
            ({"batch_size": 512.0}, TypeError, "batch_size: must be an integer, the samples of one rank, got float"),
            ({"batch_size": "512"}, TypeError, "batch_size: must be an integer"),
            ({"batch_size": True}, TypeError, "batch_size: must be an integer"),
            ({"batch_size": 0}, ValueError, "batch_size: must be at least 1"),
            ({"constraints": [one()]}, TypeError, "constraints: must be a dict of ParameterConstraints by table, got list"),
            ({"constraints": {"users": {}}}, TypeError, "constraints: must be a dict of ParameterConstraints by table, has {} for 'users'"),
            ({"constraints": {"users": one(sharding_types="table_wise")}}, TypeError, "constraints for users: sharding_types: must be a list of"),
            ({"constraints": {"users": one(compute_kernels="fused")}}, TypeError, "constraints for users: compute_kernels: must be a list of"),
            ({"constraints": {"users": one(pooling_factors=20.0)}}, TypeError, "constraints for users: pooling_factors: must be a list of numbers"),
            ({"constraints": {"users": one(pooling_factors=["a"])}}, TypeError, "constraints for users: pooling_factors: must be a list of numbers"),
            ({"statistics": batch}, TypeError, "statistics: must be what neuroshard.torchrec.statistics(batches) gives, got KeyedJaggedTensor"),
            ({"previous": 3}, TypeError, "previous: must be a ShardingPlan or the path"),
            ({"device": "cuda"}, ValueError, "device: must be a name that `neuroshard devices` lists, such as 'h100-sxm'; 'cuda' is the Topology's"),
            ({"device": 3}, TypeError, "device: must be a name"),
            ({"optimizer": 3}, TypeError, "optimizer: must be the name"),
        ):
            with self.subTest(text), self.assertRaises(kind) as caught:
                made(**more)
            self.assertTrue(str(caught.exception).startswith(text), caught.exception)
        with self.assertRaisesRegex(TypeError, "^address: must be a text such as 'planner:50051', got Topology"):
            NeuroShardPlanner(gpus(), 512)
        for right in ({"batch_size": None}, {"constraints": {"users": one(pooling_factors=(2, 3.5), sharding_types=["row_wise"])}}, {"device": "h100-sxm"}):
            made(**right)

    def test_other_plans(self):
        with self.assertRaisesRegex(TypeError, "^other: must be a planner, a ShardingPlan or the path of a file of save_plan, got int"):
            made().compare(3)
        with self.assertRaisesRegex(TypeError, "^plan: must be a ShardingPlan or the path of a file of save_plan, got NoneType"):
            made().evaluate(None)

    def test_files(self):
        with self.assertRaisesRegex(TypeError, r"^plan: must be a ShardingPlan, got str; save_plan\(plan, path\) is the order"):
            save_plan("plan.json", ShardingPlan({}))
        with self.assertRaisesRegex(TypeError, "^path: must be a path, got int"):
            save_plan(ShardingPlan({}), 3)
        with self.assertRaisesRegex(TypeError, "^topology: must be torchrec's Topology, got int"):
            load_plan("plan.json", model(), 4)
        with self.assertRaisesRegex(TypeError, "^module: must be a module, got Topology"):
            load_plan("plan.json", gpus(), model())

    def test_statistics(self):
        batch = KeyedJaggedTensor(keys=["x"], values=torch.tensor([1]), lengths=torch.tensor([1]))
        with self.assertRaisesRegex(TypeError, "^batches: must be a list of KeyedJaggedTensors, got one KeyedJaggedTensor"):
            statistics(batch)
        with self.assertRaisesRegex(TypeError, r"^batches\[1\]: must be a KeyedJaggedTensor, have one as sparse_features, or be a tuple of these, got Tensor"):
            statistics([batch, torch.tensor([1])])
        with self.assertRaisesRegex(ValueError, r"^batches\[0\]: its KeyedJaggedTensors have a feature in common: \[\['x'\], \['x'\]\]"):
            statistics([(batch, batch)])
        weighted = KeyedJaggedTensor(keys=["w"], values=torch.tensor([1, 2]), weights=torch.tensor([0.5, 0.5]), lengths=torch.tensor([1, 1]))
        mixed = statistics([(batch, weighted)])  # of other batch sizes, too
        self.assertEqual((["x", "w"], True, 2), (mixed.features, mixed.has_weights, mixed.samples))
        named = collections.namedtuple("Batch", ["dense", "sparse_features"])(torch.tensor([1.0]), batch)
        self.assertEqual(["x"], statistics([named]).features)
        other = KeyedJaggedTensor(keys=["y"], values=torch.tensor([1]), lengths=torch.tensor([1]))
        with self.assertRaisesRegex(ValueError, r"features \['y'\], those before had \['x'\]; .* a batch is a tuple of all of them"):
            statistics([batch, other])


class ConstraintsTest(unittest.TestCase):
    def refusal(self, cols=64, topology=None, **constraints):
        with self.assertRaises(PlannerError) as caught:
            made(topology=topology or gpus(), constraints=constraints).plan(model(cols), get_default_sharders())
        return caught.exception

    def test_an_empty_text_is_no_absent_argument(self):
        for name in ("previous", "cache_dir", "device", "optimizer", "tls_server_name"):
            with self.assertRaises(ValueError) as caught:
                NeuroShardPlanner(ADDRESS, Topology(world_size=2, compute_device="cpu"), 64, **{name: ""})
            self.assertTrue(str(caught.exception).startswith(f"{name}: must not be empty"), caught.exception)

    def test_names_that_are_nearly_right(self):
        for given, hint in (
            ("Users", "did you mean users"),
            ("f_goods", "it is a feature of goods"),
            ("ebc.users", "constraints go by the table's own name, users"),
        ):
            with self.assertLogs("neuroshard.torchrec.planner", "WARNING") as logs:
                made(topology=gpus(), constraints={given: ParameterConstraints()}).plan(model(), get_default_sharders())
            told = "\n".join(logs.output)
            self.assertIn(f"constraints for {given}: the module has no such table that the sharders shard", told)
            self.assertIn(hint, told)

    def test_misspelt_words_come_before_what_torchrec_says_of_them(self):
        with self.assertNoLogs("torchrec.distributed.planner.enumerators", "WARNING"):
            self.assertIn("compute_kernels has 'fusd', which TorchRec does not have; did you mean fused", str(self.refusal(users=ParameterConstraints(compute_kernels=["fusd"]))))

    def test_tables_of_one_fault_share_a_sentence_that_says_the_cause(self):
        text = str(self.refusal(cols=33))
        self.assertIn("ebc.users, ebc.goods: FBGEMM takes columns in multiples of 4: pad its embedding_dim from 33 to 36", text)
        cpus = Topology(world_size=2, compute_device="cpu")
        text = str(self.refusal(topology=cpus, users=ParameterConstraints(compute_kernels=["fused_uvm"])))
        self.assertIn("leave nothing on cpu, where compute_kernels may only be fused_uvm", text)


if __name__ == "__main__":
    with PlannerProcess(sys.argv[1]) as process:
        ADDRESS = process.address
        sys.argv = sys.argv[:1] + sys.argv[3:]
        unittest.main(verbosity=2)
