"""Plans for HugeCTR and distributed-embeddings: what their code makes of them is what the plan says, and files that are none are refused."""

import itertools
import json
import os
import random
import tempfile
import types
import unittest

from neuroshard import formats

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


class HugeCtrTest(LoaderTest):
    def columns_and_rows(self, plan, dims):
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

    def test_a_plan_is_what_shard_takes(self):
        plan = self.load(formats.load_hugectr, HUGECTR, HUGECTR_DIMS)
        self.assertEqual(plan.shard_matrix, HUGECTR["shard_matrix"])
        # std::variant<std::string, std::tuple<std::string, int>>: a tuple, not a list.
        self.assertEqual(plan.shard_strategy, [("mp", ["users", ("items", 2)]), ("dp", ["countries"])])
        self.assertEqual(
            [{name: place for name, place in gpu.items() if name != "countries"} for gpu in self.columns_and_rows(plan, HUGECTR_DIMS)],
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


if __name__ == "__main__":
    unittest.main()
