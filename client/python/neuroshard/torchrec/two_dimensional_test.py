"""Arguments of DMPCollection from a real what-if answer, and that TorchRec forms the groups that were priced.

  two_dimensional_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch
from planner_process import PlannerProcess
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec.distributed import model_parallel
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingCollection
from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule

from neuroshard.torchrec import dmp_collection_arguments

REQUEST = {
    "tables": [{"name": f"t{i}", "num_embeddings": 100000, "embedding_dim": 64, "pooling_factor": 4, "zipf_exponent": 1} for i in range(8)],
    "topology": {"hosts": [{"num_devices": 1, "memory_bytes": 1}]},
}
WHAT_IF = {
    "topologies": [
        {
            "name": "two hosts",
            "topology": {"hosts": [{"count": 2, "num_devices": 4, "device": "h100-sxm"}]},
            "two_dimensional": {"sharding_group_sizes": [4, 8], "sync_interval_batches": 1000000},
        }
    ]
}
# Large pooled tables, whose average is dear, and small unpooled ones, whose exchange between hosts is.
BOTH_KINDS = {
    **REQUEST,
    "tables": [{**REQUEST["tables"][0], "name": f"t{i}", "num_embeddings": 4000000} for i in range(4)]
    + [{**REQUEST["tables"][0], "name": f"s{i}", "kind": "embedding", "num_embeddings": 1000, "pooling_factor": 200} for i in range(4)],
    "global_batch_size": 8192,
}


class BothKinds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        pooled, unpooled = (
            [config(name=t["name"], num_embeddings=t["num_embeddings"], embedding_dim=64, feature_names=[t["name"]]) for t in tables]
            for config, tables in ((EmbeddingBagConfig, BOTH_KINDS["tables"][:4]), (EmbeddingConfig, BOTH_KINDS["tables"][4:]))
        )
        self.ebc = EmbeddingBagCollection(tables=pooled, device=torch.device("meta"))
        self.ec = EmbeddingCollection(tables=unpooled, device=torch.device("meta"))


def collection_on(rank, arguments):
    """DMPCollection as it is made on a rank, without process groups and sharded modules: its plan, and the groups of its contexts."""
    left_out, fake = mock.patch.multiple, mock.DEFAULT
    with left_out(model_parallel.dist, get_rank=lambda _: rank, get_world_size=lambda: 8), left_out(
        model_parallel.DMPCollection, _group_sharded_modules=fake, _cache_sync_tensors=fake
    ), left_out(model_parallel, DeviceMesh=fake, ShardingEnv2D=fake) as patched, mock.patch.object(model_parallel.DistributedModelParallel, "__init__") as made:
        model_parallel.DMPCollection(module=BothKinds(), device=torch.device("cuda"), global_pg=None, **arguments)
    return made.call_args.args[3], [call.kwargs["mesh"] for call in patched["DeviceMesh"].call_args_list]


def torchrec_groups(world_size, sharding_group_size, use_inter_host_allreduce, **_):
    """The ranks of each group, by DMPCollection's own code."""
    with mock.patch.object(model_parallel, "DeviceMesh") as mesh:
        model_parallel.DMPCollection._create_process_groups(
            types.SimpleNamespace(_device=types.SimpleNamespace(type="cuda")), 0, world_size, sharding_group_size, use_inter_host_allreduce
        )
    return mesh.call_args.kwargs["mesh"]


class DmpCollectionArgumentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder, PlannerProcess(PLANNER) as planner:
            paths = [os.path.join(folder, name) for name in ("request.json", "what_if.json")]

            def ask(request, interval):
                what_if = json.loads(json.dumps(WHAT_IF))
                what_if["topologies"][0]["two_dimensional"]["sync_interval_batches"] = interval
                for path, content in zip(paths, (request, what_if)):
                    with open(path, "w", encoding="utf-8") as file:
                        json.dump(content, file)
                command = [CLIENT, "plan", paths[0], "--what-if", paths[1], "--planner", planner.address, "--format", "json"]
                return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)

            cls.answer = ask(REQUEST, 1000000)
            cls.by_class = ask(BOTH_KINDS, 1)
            cls.pooled = ask({**BOTH_KINDS, "tables": BOTH_KINDS["tables"][:4]}, 1000000)

    def test_are_arguments_of_torchrec_and_groups_on_the_hosts_that_were_priced(self):
        taken = inspect.signature(model_parallel.DMPCollection.__init__).parameters
        alternating = dmp_collection_arguments(self.answer, "two hosts in groups of 4")
        contiguous = dmp_collection_arguments(self.answer, "two hosts in contiguous groups of 4")
        self.assertLessEqual(set(alternating), set(taken))
        self.assertEqual(torchrec_groups(**alternating), [[0, 2, 4, 6], [1, 3, 5, 7]])
        self.assertEqual(alternating["node_group_size"], 2)
        self.assertEqual(torchrec_groups(**contiguous), [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(contiguous["node_group_size"], 4)

    def test_the_fastest_without_a_name(self):
        fastest = max(self.answer["rows"], key=lambda row: row["samples_per_second"])
        self.assertEqual(dmp_collection_arguments(self.answer), dmp_collection_arguments(self.answer, fastest["name"]))

    def test_embedding_collections_have_groups_of_their_own(self):
        row = self.by_class["rows"][-1]
        self.assertEqual(row["name"], "two hosts in groups of 8, EmbeddingCollection in contiguous groups of 4")
        uniform = max(row["samples_per_second"] for row in self.by_class["rows"][:-1])
        self.assertGreater(row["samples_per_second"], 1.05 * uniform)
        with self.assertRaisesRegex(ValueError, "say the module"):
            dmp_collection_arguments(self.by_class)
        for rank, ranks_of_small in ((1, {0, 1, 2, 3}), (6, {4, 5, 6, 7})):
            arguments = dmp_collection_arguments(self.by_class, module=BothKinds())
            (config,) = arguments["submodule_configs"]
            self.assertIs(config.module, EmbeddingCollection)
            self.assertEqual((config.sharding_group_size, config.use_inter_host_allreduce), (4, True))
            self.assertEqual((list(arguments["plan"].plan), list(config.plan.plan)), (["ebc"], ["ec"]))
            plan, groups = collection_on(rank, arguments)
            self.assertEqual(groups, [[list(range(8))], [[0, 1, 2, 3], [4, 5, 6, 7]]])
            self.assertEqual(set(plan.plan["ebc"]) | set(plan.plan["ec"]), {table["name"] for table in BOTH_KINDS["tables"]})
            ranks = {rank for table in plan.plan["ec"].values() for rank in table.ranks}
            self.assertLessEqual(ranks, ranks_of_small)

    def test_unpooled_modules_of_other_classes_and_wrong_arguments_are_refused(self):
        model = BothKinds()
        collisions = {
            config.name: MCHManagedCollisionModule(
                zch_size=config.num_embeddings,
                device=torch.device("meta"),
                eviction_interval=2,
                eviction_policy=DistanceLFU_EvictionPolicy(),
                input_hash_size=10000,
            )
            for config in model.ec.embedding_configs()
        }
        model.ec = ManagedCollisionEmbeddingCollection(model.ec, ManagedCollisionCollection(collisions, model.ec.embedding_configs()))
        with self.assertRaisesRegex(ValueError, "alone, ec is a ManagedCollisionEmbeddingCollection: take another"):
            dmp_collection_arguments(self.by_class, module=model)
        with self.assertRaisesRegex(TypeError, "^module: must be a module, got str"):
            dmp_collection_arguments(self.by_class, module="ebc")
        with self.assertRaisesRegex(TypeError, "^module: must be a module, got type"):
            dmp_collection_arguments(self.by_class, module=torch.nn.Linear)
        with self.assertRaisesRegex(TypeError, "^constraints: must be a dict"):
            dmp_collection_arguments(self.by_class, module=BothKinds(), constraints=3)

    def test_plans_of_a_module(self):
        model = BothKinds()
        del model.ec
        plan = dmp_collection_arguments(self.pooled, module=model)["plan"]
        self.assertEqual(set(plan.plan["ebc"]), {f"t{i}" for i in range(4)})
        self.assertLessEqual({rank for table in plan.plan["ebc"].values() for rank in table.ranks}, {0, 1, 2, 3})
        other = next(row["name"] for row in self.pooled["rows"] if not row["two_dimensional"]["fastest"] and row["two_dimensional"]["replicas"] > 1)
        with self.assertRaisesRegex(ValueError, "has no plan"):
            dmp_collection_arguments(self.pooled, other, module=model)

    def test_one_group_and_unknown_rows_are_refused(self):
        with self.assertRaisesRegex(ValueError, "DistributedModelParallel"):
            dmp_collection_arguments(self.answer, "two hosts in groups of 8")
        with self.assertRaisesRegex(ValueError, "0 rows .* 'two hosts in groups of 4'"):
            dmp_collection_arguments(self.answer, "three hosts")


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    PLANNER = sys.argv.pop()
    unittest.main()
