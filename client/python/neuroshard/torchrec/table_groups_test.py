"""Groups of tables against TorchRec's own `group_tables`, and their caches against those that FBGEMM makes, on random plans.

  table_groups_test.py [PLANNER CLIENT]
"""

import collections
import logging
import random
import sys
import unittest
from unittest import mock

import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from meta_lookup import lookup_on_meta
from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec.distributed import embedding, embeddingbag
from torchrec.distributed.embedding_sharding import group_tables
from torchrec.distributed.embedding_types import EmbeddingComputeKernel, ShardedEmbeddingTable
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import BoundsCheckMode, CacheParams, EmbeddingModuleShardingPlan, EnumerableShardingSpec, ParameterSharding, ShardingPlan
from torchrec.modules.embedding_configs import DataType, PoolingType
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from neuroshard.torchrec.layout import chosen_options, from_sharding_plan
from neuroshard.torchrec.module_tables import TableEnumerator
from neuroshard.torchrec.table_groups import TableGroup, cache_faults, table_groups

RANKS = 4
PLANS, CACHED_PLANS = 1000, 200
KERNELS = ["fused", "fused_uvm", "fused_uvm_caching", "fused_uvm_caching"]
COLS = [8, 16, 64, 128]
TYPES = ["table_wise", "table_wise", "row_wise", "column_wise", "table_row_wise", "table_column_wise", "grid_shard", "data_parallel"]


def make_module(draw, kind, tables):
    dtypes = draw.choice([[DataType.FP32], [DataType.FP32, DataType.FP16]])
    widths = [draw.choice(COLS)] if kind == "ids" else COLS  # an EmbeddingCollection has one width
    configs = []
    for index in range(tables):
        shape = dict(name=f"{kind}{index}", num_embeddings=int(10 ** draw.uniform(1, 6)), embedding_dim=draw.choice(widths), feature_names=[f"f{index}"])
        more = {} if kind == "ids" else {"pooling": draw.choice([PoolingType.SUM, PoolingType.SUM, PoolingType.MEAN])}
        configs.append((EmbeddingConfig if kind == "ids" else EmbeddingBagConfig)(**shape, **more, data_type=draw.choice(dtypes)))
        configs[-1].stash_weights = draw.random() < 0.1
        configs[-1].enable_embedding_update = draw.random() < 0.1
    meta = torch.device("meta")
    return EmbeddingCollection(tables=configs, device=meta) if kind == "ids" else EmbeddingBagCollection(tables=configs, device=meta)


def set_optimizers(draw, module):
    if draw.random() < 0.5:
        for parameter in module.parameters():
            apply_optimizer_in_backward(torch.optim.Adagrad if draw.random() < 0.8 else torch.optim.SGD, [parameter], {"lr": draw.choice([0.1, 0.1, 0.2])})


def shards_of(draw, kind, rows, cols):
    if kind == "table_wise":
        return [([0, 0], [rows, cols], draw.randrange(RANKS))]
    if kind == "row_wise":
        block = -(-rows // RANKS)
        return [([min(rows, rank * block), 0], [max(0, min(block, rows - rank * block)), cols], rank) for rank in range(RANKS)]
    first = draw.randrange(0, RANKS, 2)  # of a host of two
    if kind == "table_row_wise":
        return [([0, 0], [rows // 2, cols], first), ([rows // 2, 0], [rows - rows // 2, cols], first + 1)]
    cut = draw.choice([4, cols // 2])
    if kind == "grid_shard":
        halves, blocks = ((0, rows // 2), (rows // 2, rows - rows // 2)), ((0, cut), (cut, cols - cut))
        return [([row, col], [size, width], first + half) for col, width in blocks for half, (row, size) in enumerate(halves)]
    return [([0, 0], [rows, cut], draw.randrange(RANKS)), ([0, cut], [rows, cols - cut], draw.randrange(RANKS))]


def sharding_of(draw, rows, cols, prefetch, alike):
    kind = draw.choice(TYPES)
    if kind == "data_parallel":
        return ParameterSharding(kind, "dense", list(range(RANKS)))
    shards = shards_of(draw, kind, rows, cols)
    spec = EnumerableShardingSpec([ShardMetadata(offset, size, f"rank:{rank}/cuda:{rank}") for offset, size, rank in shards])
    cache = CacheParams(load_factor=draw.choice([0.05, 0.2, 0.5, 0.9]), prefetch_pipeline=prefetch[-1])
    if not alike:
        cache = CacheParams(
            load_factor=draw.choice([None, 0.05, 0.2, 0.5, 0.9]),
            prefetch_pipeline=draw.choice(prefetch),
            precision=draw.choice([None, None, None, DataType.FP16]),
            reserved_memory=draw.choice([None, None, 1.0]),
        )
    return ParameterSharding(
        kind,
        draw.choice(KERNELS),
        [rank for _, _, rank in shards],
        spec,
        cache_params=cache,
        enforce_hbm=None if alike else draw.choice([None, None, None, True]),
        bounds_check_mode=None if alike else draw.choice([None, None, None, BoundsCheckMode.WARNING]),
    )


class Case:
    """A random model with a random plan, and TorchRec's groups of it."""

    def __init__(self, seed, prefetch=(None, False, True)):
        draw = random.Random(seed)
        self.modules, self.fused_params, entries = {}, {}, {}
        for kind in draw.choice([("bags",), ("ids",), ("bags", "more", "ids")]):
            self.modules[kind] = make_module(draw, kind, draw.randint(1, 12))
            set_optimizers(draw, self.modules[kind])
        for cls in (EmbeddingBagCollection, EmbeddingCollection):
            choices = [{}, {}, {"cache_load_factor": 0.3}, {"use_one_tbe_per_table": True}, {"prefetch_pipeline": prefetch[-1] or False}]
            self.fused_params[cls] = draw.choice(choices)
        alike = draw.random() < 0.6  # settings of all tables but their load factors
        for path, module in self.modules.items():
            configs = module.embedding_configs() if isinstance(module, EmbeddingCollection) else module.embedding_bag_configs()
            shardings = {each.name: sharding_of(draw, each.num_embeddings, each.embedding_dim, prefetch, alike) for each in configs}
            entries[path] = EmbeddingModuleShardingPlan(shardings)
        self.plan = ShardingPlan(entries)
        sharders = [
            embeddingbag.EmbeddingBagCollectionSharder(fused_params=dict(self.fused_params[EmbeddingBagCollection])),
            embedding.EmbeddingCollectionSharder(fused_params=dict(self.fused_params[EmbeddingCollection])),
        ]
        topology = Topology(world_size=RANKS, compute_device="cuda")
        self.model = nn.ModuleDict(self.modules)
        self.topology = topology
        self.tables = TableEnumerator(topology, 16).tables(self.model, sharders, topology)

    def torchrecs(self):
        """(rank, module, sharding type, GroupedEmbeddingConfig) of the real runtime's functions."""
        for path, module in self.modules.items():
            unpooled = isinstance(module, EmbeddingCollection)
            library = embedding if unpooled else embeddingbag
            prefix = () if unpooled else ("embedding_bags.",)
            # ShardedEmbeddingCollection hands it on, which the function below, shared with serving, does not.
            written = {each.name for each in module.embedding_configs() if each.enable_embedding_update} if unpooled else set()
            # The function below, shared with serving, knows devices by shards, which copies on all ranks do not have.
            with mock.patch.object(library, "get_device_from_parameter_sharding", lambda _: "cuda"):
                infos = library.create_sharding_infos_by_sharding_device_group(module, self.plan.plan[path], *prefix, dict(self.fused_params[type(module)]))
            for (kind, _), members in infos.items():
                ranks = [[] for _ in range(RANKS)]
                for info in members:
                    config = info.embedding_config
                    spec, whole = info.param_sharding.sharding_spec, (config.num_embeddings, config.embedding_dim)
                    places = [(*whole, rank) for rank in info.param_sharding.ranks] if spec is None else [
                        (*shard.shard_sizes, shard.placement.rank()) for shard in spec.shards
                    ]
                    for rows, cols, rank in places:
                        table = ShardedEmbeddingTable(
                            num_embeddings=config.num_embeddings,
                            embedding_dim=config.embedding_dim,
                            name=config.name,
                            data_type=config.data_type,
                            pooling=config.pooling,
                            is_weighted=config.is_weighted,
                            has_feature_processor=config.has_feature_processor,
                            local_rows=rows,
                            local_cols=cols,
                            compute_kernel=EmbeddingComputeKernel(info.param_sharding.compute_kernel),
                            fused_params=info.fused_params,
                            stash_weights=config.stash_weights,
                            enable_embedding_update=config.name in written,
                        )
                        ranks[rank].append(table)
                for rank, groups in enumerate(group_tables(ranks)):
                    for group in groups:
                        yield rank, path, kind, group


def names_of(group):
    return tuple(table.name for table in group.embedding_tables)


def fbgemm_cache_bytes(group):
    """Of the lookup that FBGEMM builds for a group, on a device without memory."""
    cached = EmbeddingComputeKernel.FUSED_UVM_CACHING
    if all(table.compute_kernel != cached for table in group.embedding_tables):
        return 0
    places = {cached: EmbeddingLocation.MANAGED_CACHING, EmbeddingComputeKernel.FUSED_UVM: EmbeddingLocation.MANAGED}
    tables = [(table.local_rows, table.local_cols, places.get(table.compute_kernel, EmbeddingLocation.DEVICE)) for table in group.embedding_tables]
    settings = {name: value for name, value in group.fused_params.items() if name in ("cache_load_factor", "cache_precision")}
    dtype = SparseType.FP16 if group.data_type == DataType.FP16 else SparseType.FP32
    lookup = lookup_on_meta(tables, weights_precision=dtype, **settings)
    return lookup.lxu_cache_weights.numel() * lookup.lxu_cache_weights.element_size()


def cached_of(layout, groups):
    """The cached tables of each group."""
    return [{name for name in group.tables if layout[(group.module, name)].compute_kernel == "fused_uvm_caching"} for group in groups if group.cache_bytes]


class TableGroupsTest(unittest.TestCase):
    def test_groups_are_torchrecs(self):
        several = 0
        for seed in range(PLANS):
            case = Case(seed)
            found = collections.Counter((group.rank, group.module, group.sharding_type, group.tables) for group in table_groups(case.plan, case.tables))
            expected = collections.Counter((rank, path, kind, names_of(group)) for rank, path, kind, group in case.torchrecs())
            self.assertEqual(found, expected, seed)
            several += any(len(names) > 1 for *_, names in expected)
        self.assertGreater(several, PLANS // 4)

    def test_caches_are_fbgemms(self):
        shared = 0
        for seed in range(CACHED_PLANS):
            case = Case(seed, prefetch=(True,) if seed % 2 else (None,))
            groups = table_groups(case.plan, case.tables)
            found = collections.Counter((group.rank, group.module, group.sharding_type, group.tables, group.cache_bytes) for group in groups)
            expected = collections.Counter((rank, path, kind, names_of(group), fbgemm_cache_bytes(group)) for rank, path, kind, group in case.torchrecs())
            self.assertEqual(found, expected, seed)
            shared += any(group.cache_bytes > 1.5 * group.counted_cache_bytes > 0 for group in groups)
        self.assertGreater(shared, CACHED_PLANS // 10)

    def test_tables_of_a_plan_have_caches_of_their_own(self):
        shared = 0
        for seed in range(CACHED_PLANS):
            case = Case(seed)
            layout = from_sharding_plan(case.plan)
            shared += any(len(names) > 1 for names in cached_of(layout, table_groups(case.plan, case.tables)))
            plan = to_sharding_plan(chosen_options(layout, case.tables, case.topology, 16), case.topology)
            groups = table_groups(plan, case.tables)
            for names in cached_of(layout, groups):
                self.assertEqual(len(names), 1, seed)
            for group in groups:
                cached = sorted({name for name in group.tables if layout[(group.module, name)].compute_kernel == "fused_uvm_caching"})
                stated = layout[(group.module, cached[0])].cache_load_factor if cached else None
                if stated is not None:
                    self.assertAlmostEqual(group.load_factor, stated)
                if group.sharding_type not in ("column_wise", "table_column_wise", "grid_shard"):  # blocks of one table on a rank share its cache
                    self.assertLessEqual(group.cache_bytes - group.counted_cache_bytes, 32 * 128 * 4 * bool(cached), seed)
        self.assertGreater(shared, 10)  # of plans made here, whose tables differ by more than others do

    def test_a_table_whose_settings_cannot_be_merged_is_named(self):
        case = Case(1)
        name = case.tables[0].label
        with mock.patch("neuroshard.torchrec.table_groups.merge_fused_params", side_effect=AssertionError("two optimizers")):
            with self.assertRaisesRegex(ValueError, f"^{name}: two optimizers$"):
                table_groups(case.plan, case.tables)

    def test_ranks_whose_caches_take_more_are_named(self):
        groups = [
            TableGroup(0, "ebc", "table_wise", "fused", ("a",), 0.5, (64 << 20) + 4096, 64 << 20),
            TableGroup(1, "ebc", "column_wise", "fused", ("b", "b"), 0.5, 96 << 20, 64 << 20),
            TableGroup(2, "ebc", "table_wise", "fused", ("c",), 0.0, 0, 0),
        ]
        (line,) = cache_faults(groups)
        for part in ("rank 1: ", f"{96 << 20} bytes", f"{64 << 20} are counted", "for b of ebc, column_wise"):
            self.assertIn(part, line)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    unittest.main(argv=sys.argv[:1])
