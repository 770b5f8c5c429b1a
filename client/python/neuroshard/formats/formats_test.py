"""Plans for HugeCTR and distributed-embeddings: what their code makes of them is what the plan says, and files that are none are refused.

    formats_test.py NEUROSHARD_PLANNER NEUROSHARD
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest

from neuroshard import formats
from planner_process import PlannerProcess

PLANNER, NEUROSHARD = sys.argv[1:]

# As client/README.md shows them.
HUGECTR = {
    "format": "neuroshard-hugectr/1", "num_gpus": 4, "tables": ["users", "items", "countries"],
    "shard_matrix": [["items", "countries"], ["users", "countries"], ["users", "countries"], ["items", "countries"]],
    "shard_strategy": [["mp", ["users", ["items", 2]]], ["dp", ["countries"]]],
}
HUGECTR_DIMS = {"users": 64, "items": 128, "countries": 16}
EMBEDDINGS = {
    "format": "neuroshard-distributed-embeddings/1", "world_size": 2, "tables": ["users", "queries", "items", "countries"],
    "data_parallel": [3], "row_slice": [1], "table_ids": [[2], [0, 2]], "columns": [[12], [8, 4]],
}
EMBEDDINGS_DIMS = {"users": 8, "queries": 32, "items": 16, "countries": 4}


class LoaderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "plan.json")

    def load(self, loader, document, dims=None):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(document if isinstance(document, str) else json.dumps(document))
        return loader(self.path, dims)

    def assert_faults(self, loader, document, *faults, dims=None):
        with self.assertRaises(formats.PlanFileError) as caught:
            self.load(loader, document, dims)
        self.assertEqual([f"{where}: {what}" for where, what in caught.exception.faults], list(faults))


class EveryFormatTest(LoaderTest):
    def test_what_is_no_plan(self):
        for loader, good in ((formats.load_hugectr, HUGECTR), (formats.load_distributed_embeddings, EMBEDDINGS)):
            kind = good["format"][:-2]
            for text in ("", json.dumps(good)[:-20], "[" * 100000, "\ud800".encode("utf-16", "surrogatepass").decode("latin-1")):
                with self.assertRaisesRegex(formats.PlanFileError, "is no JSON document"):
                    self.load(loader, text)
            for document in ([], 7, {}, {**good, "format": 1}):
                with self.assertRaisesRegex(formats.PlanFileError, f"has no format: .*; this is for {kind}/1"):
                    self.load(loader, document)
            for other in (f"{kind}/2", "neuroshard-plan/1"):
                with self.assertRaisesRegex(formats.PlanFileError, f"has another format or version: '{other}'; this is for {kind}/1"):
                    self.load(loader, {**good, "format": other})
            for key in set(good) - {"format"}:
                for value in (None, "text", -1, {}):
                    with self.assertRaisesRegex(formats.PlanFileError, key):
                        self.load(loader, {**good, key: value})
        with self.assertRaises(FileNotFoundError):
            formats.load_hugectr(self.path + ".none")

    def test_damage_anywhere_is_a_fault_or_a_plan(self):
        chance = random.Random(5)
        for loader, good in ((formats.load_hugectr, HUGECTR), (formats.load_distributed_embeddings, EMBEDDINGS)):
            for _ in range(400):
                text = bytearray(json.dumps(good), "ascii")
                for _ in range(chance.randint(1, 3)):
                    text[chance.randrange(len(text))] = chance.choice(b'0123456789[]{}",:a-')
                try:
                    self.load(loader, text.decode("ascii"))
                except formats.PlanFileError:
                    pass


def hugectr_shards(plan, dims):
    """What split_column_wise_sharding_config of HugeCTR makes of it: GPU -> {table: (first column, columns, row shard, of how many)}."""
    placed = [{} for _ in plan.shard_matrix]
    for _, group in plan.shard_strategy:
        for entry in group:
            name, factor = entry if isinstance(entry, tuple) else (entry, 1)
            holders = [gpu for gpu, tables in enumerate(plan.shard_matrix) if name in tables]
            each = len(holders) // factor
            for i, gpu in enumerate(holders):
                width = dims[name] // factor
                placed[gpu][name] = (i // each * width, width, i % each, each)
    return placed


class HugeCtrTest(LoaderTest):
    def test_a_plan_is_what_shard_takes(self):
        plan = self.load(formats.load_hugectr, HUGECTR, HUGECTR_DIMS)
        self.assertEqual(plan.shard_matrix, HUGECTR["shard_matrix"])
        # std::variant<std::string, std::tuple<std::string, int>>: a tuple, not a list.
        self.assertEqual(plan.shard_strategy, [("mp", ["users", ("items", 2)]), ("dp", ["countries"])])
        self.assertEqual(
            [{name: place for name, place in gpu.items() if name != "countries"} for gpu in hugectr_shards(plan, HUGECTR_DIMS)],
            [{"items": (0, 64, 0, 1)}, {"users": (0, 64, 0, 2)}, {"users": (0, 64, 1, 2)}, {"items": (64, 64, 0, 1)}],
        )
        self.assertEqual(self.load(formats.load_hugectr, HUGECTR), plan)

    def test_every_fault_is_named(self):
        bad = {
            "format": "neuroshard-hugectr/1", "num_gpus": 3, "tables": ["a", "b", "c", "d", "d_1", "e", "f"],
            "shard_matrix": [["a", "x", "b", "e", "f"], [], ["a", "a", "c", "d", "d_1"]],
            "shard_strategy": [["mp", ["a", "a", ["b", 2], "y", ["c", 0], ["d", 1]]], ["dp", ["e", ["d_1", 2]]], ["tp", []]],
        }
        self.assert_faults(
            formats.load_hugectr, bad,
            "shard_matrix[0][1]: there is no table 'x'", "shard_matrix[1]: is empty, and HugeCTR wants a table on every GPU",
            "shard_matrix[2][1]: 'a' is there twice", "shard_strategy[0][1][1]: 'a' is there twice",
            "shard_strategy[0][1][2]: 'b' is on 1 GPUs, not as many for each of 2 blocks of columns", "shard_strategy[0][1][3]: there is no table 'y'",
            "shard_strategy[0][1][4]: 'c' cannot be in 0 blocks of columns", "shard_strategy[1][1][0]: 'e' is on 1 of 3 GPUs, and a dp table is on all",
            "shard_strategy[1][1][1]: 'd_1' cannot be in 2 blocks of columns",
            'shard_strategy[2]: must be ["mp", [...]] or ["dp", [...]], got [\'tp\', []]', "shard_strategy: 'f' is missing",
        )

    def test_a_plan_of_another_model(self):
        self.assert_faults(
            formats.load_hugectr, HUGECTR, "tables[2]: the model has no table 'countries'", "tables: 'lands' of the model is missing",
            dims={"users": 64, "items": 128, "lands": 16},
        )
        self.assert_faults(
            formats.load_hugectr, HUGECTR, "shard_strategy[0][1][0]: 'users' would have 512 columns on a GPU, and HugeCTR takes at most 256",
            "shard_strategy[0][1][1]: the 129 columns of 'items' cannot be cut in 2 equal blocks",
            dims={"users": 512, "items": 129, "countries": 16},
        )

    def test_names_that_hugectr_would_give_to_blocks(self):
        clash = json.loads(json.dumps(HUGECTR).replace("users", "items_1"))
        self.assert_faults(formats.load_hugectr, clash, "tables: HugeCTR would name block 1 of 'items' as the table items_1")


class FakeStrategy:
    """Calls what a plan replaces as DistEmbeddingStrategy.__init__ of distributed-embeddings 1.0 does, and keeps what it would keep."""

    def __init__(self, embeddings, world_size, strategy="basic", input_table_map=None):
        configs = [embedding.get_config() for embedding in embeddings]
        input_table_map = input_table_map or list(range(len(embeddings)))
        self.table_groups = self.init_table_groups(configs)
        group = self.table_groups[1]
        self.inputs = [i for i, table in enumerate(input_table_map) if table in group]
        map_of_group = [group.index(input_table_map[i]) for i in self.inputs]
        sliced, self.sliced_out_ranges = self.create_col_sliced_configs([configs[table] for table in group], world_size, None, map_of_group)
        self.local_configs, self.worker_order = [], []
        for rank in self.apply_strategy(strategy, world_size, sliced):
            self.local_configs.append([(group[table], sliced[table].pop(0)["output_dim"]) for table in rank])
            for table, (_, columns) in zip(rank, self.local_configs[-1]):
                self.worker_order += [(i, columns) for i, mapped in enumerate(map_of_group) if mapped == table]
        assert not any(sliced), "slices that no rank has"

    def output_widths(self):
        """Columns of each input's output after the all-to-all: slices beside each other where sliced_out_ranges says so."""
        outputs = [[columns] for _, columns in sorted(self.worker_order, key=lambda entry: entry[0])]
        for first, end in self.sliced_out_ranges:
            outputs[first:end] = [list(itertools.chain(*outputs[first:end]))]
        return outputs


def layers(dims):
    return [types.SimpleNamespace(get_config=lambda dim=dim: {"input_dim": 100, "output_dim": dim}) for dim in dims]


class DistributedEmbeddingsTest(LoaderTest):
    def test_a_plan_in_the_terms_of_the_strategy(self):
        plan = self.load(formats.load_distributed_embeddings, EMBEDDINGS, EMBEDDINGS_DIMS)
        self.assertEqual(plan.table_groups, [[3], [0, 2], [1]])
        self.assertEqual([[tuple(entry) for entry in rank] for rank in plan.slices], [[(2, 0, 12)], [(0, 0, 8), (2, 12, 4)]])
        self.assertEqual(self.load(formats.load_distributed_embeddings, EMBEDDINGS), plan)

    def test_the_strategy_follows_the_plan(self):
        plan = self.load(formats.load_distributed_embeddings, EMBEDDINGS)
        strategy_class = plan.strategy_class(FakeStrategy)
        strategy = strategy_class(layers(EMBEDDINGS_DIMS.values()), 2)
        self.assertEqual((strategy.table_groups, strategy.local_configs), ([[3], [0, 2], [1]], [[(2, 12)], [(0, 8), (2, 4)]]))
        self.assertEqual(strategy.output_widths(), [[8], [12, 4]])
        # Inputs 0 and 3 share `items`.
        shared = strategy_class(layers(EMBEDDINGS_DIMS.values()), 2, input_table_map=[2, 0, 3, 2, 1])
        self.assertEqual((shared.inputs, shared.output_widths()), ([0, 1, 3], [[12, 4], [8], [12, 4]]))

    def test_other_ranks_or_tables_are_refused(self):
        strategy_class = self.load(formats.load_distributed_embeddings, EMBEDDINGS).strategy_class(FakeStrategy)
        for dims, ranks, fault in (
            ([8, 32, 16, 4], 4, "for 2 ranks, and there are 4"), ([8, 32, 16], 2, "for 4 tables, and there are 3"),
            ([8, 32, 20, 4], 2, r"16 columns of table 2 \('items'\), and it has 20"),
        ):
            with self.assertRaisesRegex(ValueError, fault):
                strategy_class(layers(dims), ranks)

    def test_every_fault_is_named(self):
        bad = {
            "format": "neuroshard-distributed-embeddings/1", "world_size": 3, "tables": ["a", "b", "c", "d"], "data_parallel": [0, 9],
            "row_slice": [0, True], "table_ids": [[1, 1], [], [1, 2, "c"]], "columns": [[8, 8], [], [8, 0]],
        }
        self.assert_faults(
            formats.load_distributed_embeddings, bad,
            "data_parallel[1]: must be a table's id, 0 to 3, got 9", "row_slice[0]: table 0 ('a') is also data_parallel[0]",
            "row_slice[1]: must be a table's id, 0 to 3, got True", "table_ids[0][1]: table 1 ('b') is on rank 0 twice",
            "columns[2]: has 2 entries, and table_ids[2] 3", "columns[2][1]: must be an integer of at least 1, got 0",
            "table_ids[1]: is empty, and distributed-embeddings wants a table or slice on every rank",
            "table_ids: table 2 ('c') is nowhere", "table_ids: table 3 ('d') is nowhere",
        )
        alone = {**EMBEDDINGS, "world_size": 1, "table_ids": [[0, 2]], "columns": [[8, 16]]}
        self.assert_faults(formats.load_distributed_embeddings, alone, "data_parallel: one rank has no such tables", "row_slice: one rank has no such tables")

    def test_a_plan_of_another_model(self):
        self.assert_faults(
            formats.load_distributed_embeddings, EMBEDDINGS, "columns: of table 2 ('items') are 16, and the model has 20", dims={**EMBEDDINGS_DIMS, "items": 20}
        )
        self.assert_faults(
            formats.load_distributed_embeddings, EMBEDDINGS, "tables: are those of the model in another order, and ids are positions",
            dims=dict(reversed(list(EMBEDDINGS_DIMS.items()))),
        )


class CommandLineTest(unittest.TestCase):
    """What `neuroshard plan --format ...` writes, loaded: every rank has as much of every table as in the plan in JSON."""

    # What each format can say, as constraints.sharding_types; cut evenly, since both cut evenly.
    TYPES = {
        "hugectr": ["table_wise", "column_wise", "row_wise", "data_parallel"],
        "distributed_embeddings": ["table_wise", "column_wise", "row_wise", "data_parallel"],
    }

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.planner = PlannerProcess(PLANNER)
        cls.addClassCleanup(cls.planner.stop)

    def plan(self, request, form):
        """(path of the plan in `form`, the plan in JSON); None for the path and the reason where the form cannot say it."""
        path = os.path.join(self.folder, "request.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(request, file)
        out = os.path.join(self.folder, "plan." + form)
        command = [NEUROSHARD, "plan", path, "--planner", self.planner.address, "--format"]
        answered = subprocess.run([*command, "json"], capture_output=True, text=True)
        self.assertEqual(answered.returncode, 0, answered.stderr)
        written = subprocess.run([*command, form, "--out", out], capture_output=True, text=True)
        self.assertIn(written.returncode, (0, 1), written.stderr)
        return (out, json.loads(answered.stdout)["plan"]) if written.returncode == 0 else (None, written.stderr)

    @staticmethod
    def request(form, seed):
        chance = random.Random(seed)
        num_ranks = chance.choice([2, 4])
        tables = [
            {"name": f"t{t}", "num_embeddings": chance.choice([1000, 50000, 400001]), "embedding_dim": chance.choice([8, 16, 64, 128]),
             "pooling_factor": chance.choice([1, 4, 20])}
            for t in range(chance.randint(num_ranks + 2, 12))
        ]
        # Of each type one table at least, so that it is seen; the others go where they are cheapest.
        rules = [
            {"tables": [tables[0]["name"]], "sharding_types": ["row_wise"]}, {"tables": [tables[1]["name"]], "sharding_types": ["data_parallel"]},
            {"tables": [tables[2]["name"]], "sharding_types": ["column_wise"], "min_column_width": tables[2]["embedding_dim"] // num_ranks},
        ]
        return {
            "tables": tables, "global_batch_size": 4096, "cost_model": {"name": "analytic"},
            "topology": {"hosts": [{"count": 1, "num_devices": num_ranks, "memory_bytes": 4 << 30}]},
            "constraints": {"sharding_types": CommandLineTest.TYPES[form], "column_rule": "torchrec", "tables": rules},
        }

    def loaded_plans(self, form, load):
        """(request's dims, plan in JSON, loaded plan) of the requests whose plan the form can say, more than half of them."""
        dims_of, found, reasons = {}, 0, []
        for seed in range(12):
            request = self.request(form, seed)
            dims_of = {table["name"]: table["embedding_dim"] for table in request["tables"]}
            path, plan = self.plan(request, form)
            if path is None:
                reasons.append(plan)
                self.assertIn("cannot be written for", plan)
                continue
            found += 1
            yield dims_of, plan, load(path, dims_of)
        self.assertGreater(found, 6, reasons)

    @staticmethod
    def shares(plan, rank):
        """Table -> (columns, rows) that the rank has; of data_parallel all."""
        found = {}
        for table in plan["tables"]:
            shards = [shard for shard in table["shards"] if shard["rank"] == rank and int(shard.get("rows", 0)) > 0]
            if shards:
                rows = {int(shard["rows"]) for shard in shards}
                assert len(rows) == 1
                found[table["name"]] = (sum(int(shard["cols"]) for shard in shards), rows.pop())
        return found

    def test_hugectr(self):
        types = set()
        for dims, plan, loaded in self.loaded_plans("hugectr", formats.load_hugectr):
            types |= {table["sharding_type"] for table in plan["tables"]}
            rows_of = {table["name"]: max(int(s.get("row_offset", 0)) + int(s["rows"]) for s in table["shards"]) for table in plan["tables"]}
            data_parallel = {name for kind, group in loaded.shard_strategy if kind == "dp" for name in group}
            self.assertEqual(data_parallel, {table["name"] for table in plan["tables"] if table["sharding_type"] == "data_parallel"})
            for rank, placed in enumerate(hugectr_shards(loaded, dims)):
                shares = self.shares(plan, rank)
                self.assertEqual(set(placed), set(shares))
                for name, (_, columns, part, of) in placed.items():
                    self.assertEqual(columns, shares[name][0], name)
                    if name not in data_parallel:  # keys modulo `of`
                        self.assertAlmostEqual(len(range(part, rows_of[name], of)), shares[name][1], delta=of)
        self.assertEqual(types, set(self.TYPES["hugectr"]))

    def test_distributed_embeddings(self):
        types = set()
        for dims, plan, loaded in self.loaded_plans("distributed_embeddings", formats.load_distributed_embeddings):
            types |= {table["sharding_type"] for table in plan["tables"]}
            names = list(dims)
            self.assertEqual(loaded.tables, names)
            of_type = lambda kind: [t for t, table in enumerate(plan["tables"]) if table["sharding_type"] == kind]  # noqa: E731
            self.assertEqual((loaded.table_groups[0], loaded.table_groups[2]), (of_type("data_parallel"), of_type("row_wise")))
            strategy = loaded.strategy_class(FakeStrategy)(layers(dims.values()), plan["world_size"])
            for rank, local in enumerate(strategy.local_configs):
                shares = {name: share[0] for name, share in self.shares(plan, rank).items() if names.index(name) in loaded.table_groups[1]}
                self.assertEqual({names[t]: columns for t, columns in local}, shares)
        self.assertEqual(types, set(self.TYPES["distributed_embeddings"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
