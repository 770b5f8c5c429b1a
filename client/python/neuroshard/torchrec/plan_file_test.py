"""Files of plans: written whole, read with every fault.

  plan_file_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile

from planner_case import Case, Model, Programs, bag, bags, gpus, main, make, small_model
from torchrec import EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.planner.types import ParameterConstraints, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan

from neuroshard.torchrec import load_plan, save_plan


class FilesTest(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = f"{folder.name}/plan.json"
        kinds = {"a": "row_wise", "b": "column_wise", "c": "data_parallel"}
        self.plan = make(constraints={name: ParameterConstraints(sharding_types=[kind]) for name, kind in kinds.items()}).plan(
            small_model(), get_default_sharders()
        )

    def load(self, model=None, topology=None, **more):
        return load_plan(self.path, model or small_model(), topology or gpus(), **more)

    def write(self, change):
        """The saved plan, changed as JSON."""
        save_plan(self.plan, self.path)
        with open(self.path, encoding="utf-8") as file:
            content = json.load(file)
        change(content)
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(content, file)

    def test_what_is_saved_is_loaded(self):
        save_plan(self.plan, self.path)
        self.assertEqual(self.load(), self.plan)
        self.assertEqual(os.listdir(self.folder), ["plan.json"])
        with open(self.path, "w", encoding="utf-8") as file:  # TorchRec's own form
            json.dump(self.plan._serialize(), file)
        self.assertEqual(self.load(), self.plan)

    def test_placements_are_those_of_the_topology(self):
        save_plan(self.plan, self.path)
        on_cpus = self.load(topology=Topology(world_size=4, local_world_size=2, compute_device="cpu"))
        self.assertEqual([str(shard.placement) for shard in on_cpus.plan["ebc"]["a"].sharding_spec.shards], [f"rank:{rank}/cpu" for rank in range(4)])

    def test_the_command_lines_plan_is_loaded(self):
        request = self.request(small_model())
        with open(f"{self.folder}/request.json", "w", encoding="utf-8") as file:
            from google.protobuf import json_format

            file.write(json_format.MessageToJson(request, preserving_proto_field_name=True))
        command = [Programs.client, "plan", f"{self.folder}/request.json", "--planner", Programs.address, "--format", "torchrec"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(printed)
        self.assertEqual(self.load(), make().plan(small_model(), get_default_sharders()))

    def test_unpooled_tables_have_columns_of_one_width(self):
        model = Model(ec=EmbeddingCollection(tables=[EmbeddingConfig(name=name, num_embeddings=400, embedding_dim=16, feature_names=[name]) for name in "st"]))
        constraints = {name: ParameterConstraints(sharding_types=["column_wise"], min_partition=8) for name in "st"}
        save_plan(make(constraints=constraints).plan(model, get_default_sharders()), self.path)
        self.load(model)

        def table(name, *blocks):
            ranks = list(range(len(blocks)))
            shards = [
                {"shard_offsets": [0, sum(blocks[:rank])], "shard_sizes": [400, blocks[rank]], "placement": f"rank:{rank}/cuda:{rank % 2}"} for rank in ranks
            ]
            return {name: {"sharding_type": "column_wise", "compute_kernel": "fused", "ranks": ranks, "shards": shards}}

        for s, t, part in (((8, 8), (8, 8), ""), ((8, 8), (16,), "ec.t: has a block of 16 columns beside one of 8 of ec.s"), ((4, 12), (4, 12), "ec.s")):
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump({"plan": {"ec": {**table("s", *s), **table("t", *t)}}}, file)
            with self.refused(PlannerErrorType.INVALID_RANK_ASSIGNMENT, part) if part else contextlib.nullcontext():
                self.load(model)

    def test_files_that_are_no_plan_say_where(self):
        kind = PlannerErrorType.PLAN_LOADING_FAILED
        with self.refused(kind, self.path, "No such file"):
            self.load()
        save_plan(self.plan, self.path)
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        for length in range(0, len(text.rstrip()), 97):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text[:length])
            with self.refused(kind, self.path, "cut off"):
                self.load()

        def shard(content):
            return content["plan"]["ebc"]["a"]["shards"][1]

        for change, part in (
            (lambda content: content.update(format="neuroshard-torchrec/2"), "'neuroshard-torchrec/2', this version reads 'neuroshard-torchrec/1'"),
            (lambda content: content.update(format=None), "has the format None"),
            (lambda content: content.pop("plan"), "has no plan"),
            (lambda content: content.update(plan=[]), "plan is not an object"),
            (lambda content: content["plan"]["ebc"]["a"].update(new_field=1), "plan['ebc']['a'] has new_field"),
            (lambda content: content["plan"]["ebc"]["a"].pop("sharding_type"), "has no sharding_type"),
            (lambda content: shard(content).update(shard_sizes=[1]), "shards[1].shard_sizes is not a list of 2"),
            (lambda content: shard(content).update(shard_sizes=[1.5, 2]), "shards[1].shard_sizes is not a list of 2"),
            (lambda content: shard(content).update(shard_offsets=[-1, 0]), "shards[1].shard_offsets"),
            (lambda content: shard(content).update(placement="cuda:1"), "shards[1].placement is 'cuda:1'"),
            (lambda content: shard(content).update(placement="rank:3/cuda:1"), "ranks are"),
        ):
            self.write(change)
            with self.refused(kind, self.path, part):
                self.load()

    def test_plans_of_other_modules_and_jobs_say_which(self):
        save_plan(self.plan, self.path)
        with self.refused(PlannerErrorType.MISSING_MODULE_IN_PLAN, self.path, "lacks ebc.d and has ebc.c"):
            self.load(Model(ebc=bags(bag("a"), bag("b", 2000), bag("d"))))
        with self.refused(PlannerErrorType.MISSING_MODULE_IN_PLAN, "lacks other.a"):
            self.load(Model(other=bags(bag("a"), bag("b", 2000), bag("c", 3000, 32))))
        broken = PlannerErrorType.INVALID_RANK_ASSIGNMENT
        with self.refused(broken, "ebc.a: its shards do not tile 999 x 64"):
            self.load(Model(ebc=bags(bag("a", 999), bag("b", 2000), bag("c", 3000, 32))))
        with self.refused(broken, "not one of 2", "on each of 2 ranks, not on 4"):
            self.load(topology=gpus(2, 2))
        with self.refused(broken, "row_wise has a block of rows on every rank", "on each of 8 ranks, not on 4"):
            self.load(topology=gpus(8, 4))

        def shard(content, index):
            return content["plan"]["ebc"]["a"]["shards"][index]

        def swap(content):
            table = content["plan"]["ebc"]["a"]
            shard(content, 0)["placement"], shard(content, 1)["placement"] = "rank:1/cuda:1", "rank:0/cuda:0"
            table["ranks"][:2] = [1, 0]

        def shift(content):
            shard(content, 0).update(shard_sizes=[251, 64])
            shard(content, 1).update(shard_offsets=[251, 0], shard_sizes=[249, 64])

        for change, part in (
            (lambda content: shard(content, 1).update(shard_offsets=[251, 0]), "rows 251 to 501 of rank 1 follow row 250"),
            (lambda content: shard(content, 3).update(shard_sizes=[249, 64]), "end at 999 of 1000"),
            (swap, "row_wise has a block of rows on every rank in order, not on [[1, 0, 2, 3]]"),
            (shift, "row_wise has rows in blocks of [250, 250, 250, 250], not [251, 249, 250, 250]"),
            (lambda content: content["plan"]["ebc"]["a"].update(sharding_type="grid"), "no sharding type 'grid'"),
            (lambda content: content["plan"]["ebc"]["a"].update(sharding_type="table_row_wise"), "on every rank of a host in order"),
            (lambda content: content["plan"]["ebc"]["a"].update(compute_kernel="dense"), "has to be 'fused'"),
            (lambda content: content["plan"]["ebc"]["a"].update(compute_kernel="offload"), "is 'offload' and has to be 'fused'"),
            (lambda content: content["plan"]["ebc"]["a"].update(compute_kernel="fused_uvm", cache_load_factor=0.5), "which has no cache"),
        ):
            self.write(change)
            with self.refused(broken, part):
                self.load()

    def test_a_writer_that_is_killed_leaves_the_whole_old_file_or_the_whole_new_one(self):
        program = (
            "import sys, pickle\nfrom neuroshard.torchrec import save_plan\nplan = pickle.load(open(sys.argv[1], 'rb'))\n"
            "print('writing', flush=True)\nwhile True: save_plan(plan, sys.argv[2])\n"
        )
        import pickle

        with open(f"{self.folder}/pickle", "wb") as file:
            pickle.dump(self.plan, file)
        with subprocess.Popen([sys.executable, "-c", program, f"{self.folder}/pickle", self.path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
            try:
                writer.stdout.readline()
                while not os.path.exists(self.path):
                    self.assertIsNone(writer.poll())
                for _ in range(50):
                    self.assertEqual(self.load(), self.plan)
            finally:
                writer.kill()
        self.assertEqual(self.load(), self.plan)

    def test_a_plan_that_cannot_be_written_leaves_nothing(self):
        with self.assertRaises(OSError):
            save_plan(self.plan, f"{self.folder}/no/such/folder/plan.json")
        self.assertIsInstance(self.plan, ShardingPlan)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    main()
