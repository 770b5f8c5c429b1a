"""The modules of TorchRec's own planner tests, and others that its planner plans: planned here too, and what comes of it is sharded by TorchRec on two ranks.

  torchrec_modules_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import dataclasses
import logging
import unittest
from typing import Any, Callable, Dict, List, Mapping, Optional

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from planner_case import FREE, GIB, Model, Programs, bag, main
from ranks import run_on_ranks
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, EmbeddingConfig, PoolingType
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerCollectionSharder, EmbeddingTowerSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, EmbeddingBagSharder
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.itep_embeddingbag import ITEPEmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.types import CollectiveType, CustomTopologyData, GeneralizedCommsBandwidth, ParameterConstraints, PlannerError, Topology
from torchrec.distributed.quant_embedding import QuantEmbeddingCollectionSharder
from torchrec.distributed.quant_embeddingbag import QuantEmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.test_utils.test_model import TestSparseNN, TestTowerCollectionSparseNN, TestTowerSparseNN
from torchrec.distributed.types import CacheParams, KeyValueParams, PipelineType, ShardingPlan
from torchrec.models.dlrm import DLRM
from torchrec.modules.embedding_configs import DataType
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.itep_embedding_modules import ITEPEmbeddingBagCollection
from torchrec.modules.itep_modules import GenericITEPModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection, ManagedCollisionEmbeddingCollection
from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule
from torchrec.modules.pec_embedding_modules import PECEmbeddingCollection
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.quant.embedding_modules import EmbeddingBagCollection as QuantEmbeddingBagCollection, EmbeddingCollection as QuantEmbeddingCollection

from neuroshard.torchrec import NeuroShardPlanner

META, CPU = torch.device("meta"), torch.device("cpu")
RANKS = 2
LEAST_SHARE = 0.95  # of what TorchRec's planner plans
# What TorchRec's planner plans and this one refuses, with a word of the reason: the first three TorchRec does not train.
REFUSED = {
    ("tower", "cpu"): "TorchRec runs no sharding type of EmbeddingTower there",
    ("towers", "cpu"): "TorchRec runs no sharding type of EmbeddingTowerCollection there",
    ("ten columns", "cuda"): "multiples of 4",
    ("bandwidth per second", "cuda"): "bytes per millisecond",
}


def bags(*tables, weighted=False):
    return lambda device: EmbeddingBagCollection(tables=list(tables), is_weighted=weighted, device=device)


def model(**parts):
    """Of modules by name, each made on the device."""
    return lambda device: Model(**{name: make(device) for name, make in parts.items()})


def sequence(name, rows=400, cols=16, **more):
    return EmbeddingConfig(**{"name": name, "num_embeddings": rows, "embedding_dim": cols, "feature_names": [f"f_{name}"], **more})


def sequences(*tables):
    return lambda device: EmbeddingCollection(tables=list(tables), device=device)


def tables(count, rows=100, cols=64, **more):
    """As TorchRec's tests name them."""
    return [bag(f"table_{i}", rows, cols, feature_names=[f"feature_{i}"], **more) for i in range(count)]


def sparse_nn(found, weighted=()):
    return lambda device: TestSparseNN(tables=list(found), weighted_tables=list(weighted), dense_device=CPU, sparse_device=device)


def weighted(count, **more):
    return [bag(f"weighted_{i}", 100, 64, feature_names=[f"weighted_feature_{i}"], **more) for i in range(count)]


def growing(count=4):
    """Of test_enumerators.py and test_shard_estimators.py."""
    return [bag(f"table_{i}", 100 + 10 * i, 20 + 20 * i, feature_names=[f"feature_{i}"]) for i in range(count)]


class Only(EmbeddingBagCollectionSharder):
    """As the sharders of TorchRec's tests: some types and kernels."""

    def __init__(self, types, kernels=("fused",), **more):
        super().__init__(**more)
        self._types, self._kernels = types, kernels

    def sharding_types(self, compute_device_type):
        return list(self._types)

    def compute_kernels(self, sharding_type, compute_device_type):
        return ["dense"] if sharding_type == "data_parallel" else list(self._kernels)


def codecs(**config):
    return get_qcomm_codecs_registry(QCommsConfig(**config))


HALVES = codecs(forward_precision=CommType.FP16, backward_precision=CommType.BF16)
BYTES = codecs(forward_precision=CommType.INT8, backward_precision=CommType.BF16)
MIXED = {**HALVES, "POOLED_EMBEDDINGS_REDUCE_SCATTER": BYTES["POOLED_EMBEDDINGS_REDUCE_SCATTER"]}


def optimizers(**kinds):
    """Of tables by name."""

    def make(device):
        made = bags(*(bag(name) for name in "abc"))(device)
        for name, kind in kinds.items():
            apply_optimizer_in_backward(kind, made.embedding_bags[name].parameters(), {"lr": 0.1})
        return Model(ebc=made)

    return make


def of_optimizer(kind):
    return [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType[kind]})]


def processed(device):
    inner = EmbeddingBagCollection(tables=[bag("a"), bag("b", 2000)], is_weighted=True, device=device)
    return Model(fp=FeatureProcessedEmbeddingBagCollection(inner, PositionWeightedModuleCollection({"f_a": 10, "f_b": 10}, device)))


def collisions(make_table, configs, collection, wrapper):
    def make(device):
        made = {config.name: make_table(config, device) for config in configs}
        return Model(mc=wrapper(collection(*configs)(device), ManagedCollisionCollection(made, list(configs))))

    return make


def hashed(buckets):
    return lambda config, device: HashZchManagedCollisionModule(zch_size=config.num_embeddings, device=device, total_num_buckets=buckets, input_hash_size=10000)


def sorted_ids(config, device):
    return MCHManagedCollisionModule(zch_size=config.num_embeddings, device=device, eviction_interval=2, eviction_policy=DistanceLFU_EvictionPolicy(), input_hash_size=10000)


def pruned(device):
    made = EmbeddingBagCollection(tables=[bag("a"), bag("b", 2000)], device=device)
    return Model(itep=ITEPEmbeddingBagCollection(made, GenericITEPModule(table_name_to_unpruned_hash_sizes={"a": 2000}, lookups=[], enable_pruning=True, pruning_interval=500)))


def quantised(kind):
    return lambda device: Model(q=QuantEmbeddingBagCollection(tables=[bag("a", data_type=kind), bag("b", 2000, data_type=kind)], is_weighted=False, device=META))


class Links(GeneralizedCommsBandwidth):
    intra_host_bw, inter_host_bw = 5e8, 1e7

    def get_bw(self, local_world_size, world_size, collective_type):
        if world_size <= local_world_size:
            return 5e8
        return {CollectiveType.ALL_TO_ALL: 1e7, CollectiveType.ALL_REDUCE: 8e7}.get(collective_type, 2e7)


def estimator(**more):
    def make(topology, constraints):
        estimators = [EmbeddingPerfEstimator(topology, constraints), EmbeddingStorageEstimator(topology, constraints, **more)]
        return {"enumerator": EmbeddingEnumerator(topology, 128, constraints, estimators)}

    return make


def limits(names, **more):
    return {name: ParameterConstraints(**more) for name in names}


def per_rank(**caps):
    return {"custom_topology_data": CustomTopologyData(caps, RANKS)}


@dataclasses.dataclass
class Case:
    make: Callable[[torch.device], nn.Module]
    sharders: Optional[List[Any]] = None
    constraints: Optional[Dict[str, ParameterConstraints]] = None
    topology: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arguments: Callable[[Topology, Any], Dict[str, Any]] = lambda topology, constraints: {}
    devices: tuple = ("cuda", "cpu")


BY_ROWS = [ManagedCollisionEmbeddingBagCollectionSharder(ebc_sharder=Only(["row_wise"]))]
SMALL = model(ebc=bags(bag("a"), bag("b", 2000), bag("c", 3000, 32)))
BIG = {"hbm_cap": 2 * GIB, "ddr_cap": 8 * GIB}
CASES = {
    # test_planners.py
    "four tables": Case(sparse_nn(tables(4)), [Only(["row_wise", "table_wise"])], topology={"hbm_cap": 2 << 20}),
    "three tables": Case(sparse_nn(tables(3)), [Only(["row_wise", "table_wise"])], topology={"hbm_cap": 2 << 20}),
    "never fits": Case(sparse_nn(tables(2, 10**6, 10**6)), [Only(["row_wise", "table_wise"])], devices=("cuda",)),
    "fits by rows": Case(sparse_nn(tables(1, 4096, 128)), [Only(["row_wise", "table_wise"])], topology={"hbm_cap": 2 << 20}),
    "no sharders": Case(sparse_nn(tables(1)), []),
    "no tables": Case(lambda device: nn.Linear(2, 2)),
    "default sharders": Case(sparse_nn(tables(4), weighted(2))),
    "pass through": Case(sparse_nn(tables(4)), constraints=limits(["table_0"], cache_params=CacheParams(load_factor=0.5), enforce_hbm=True, stochastic_rounding=False)),
    "virtual table": Case(model(ebc=bags(bag("a", use_virtual_table=True, total_num_buckets=8))), devices=("cuda",),
                          constraints=limits("a", sharding_types=["row_wise"], compute_kernels=["dram_virtual_table"], use_virtual_table=True)),
    # test_enumerators.py
    **{f"only {kind}": Case(sparse_nn(growing(), weighted(4)), [Only([kind])]) for kind in ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise")},
    "grid": Case(sparse_nn(growing()), [Only(["grid_shard"])], constraints=limits([f"table_{i}" for i in range(4)], sharding_types=["grid_shard"], min_partition=20)),
    "uvm caching row wise": Case(sparse_nn(growing()), [Only(["row_wise"], ["fused_uvm_caching"])], devices=("cuda",)),
    "tower": Case(lambda device: TestTowerSparseNN(tables=tables(5), weighted_tables=weighted(3), dense_device=CPU, sparse_device=device), [EmbeddingTowerSharder(), EmbeddingBagCollectionSharder()]),
    "towers": Case(lambda device: TestTowerCollectionSparseNN(tables=tables(5), weighted_tables=weighted(3), dense_device=CPU, sparse_device=device),
                   [EmbeddingTowerCollectionSharder(), EmbeddingBagCollectionSharder()]),
    "min partition": Case(sparse_nn(growing()), [Only(["column_wise"])], constraints=limits([f"table_{i}" for i in range(4)], min_partition=20)),
    "device group": Case(SMALL, constraints={"a": ParameterConstraints(device_group="cpu"), "b": ParameterConstraints(device_group="cuda")}),
    # test_partitioners.py
    "partitioned by hosts": Case(sparse_nn([bag(f"table_{i}", 64, 4 * (10 + i), feature_names=[f"feature_{i}"]) for i in range(4)]), [Only(["table_row_wise"])]),
    "columns on a host": Case(sparse_nn([bag(f"table_{i}", 64, 80 * (i + 1), feature_names=[f"feature_{i}"]) for i in range(3)]), [Only(["table_column_wise"])],
                              constraints={f"table_{i}": ParameterConstraints(min_partition=width) for i, width in enumerate((20, 40, 20))}),
    "two modules": Case(sparse_nn(tables(1), weighted(3)), [Only(["table_wise"])]),
    # test_proposers.py
    "ten columns": Case(sparse_nn([bag(f"table_{i}", 100 * i, 10 * i, feature_names=[f"feature_{i}"]) for i in range(1, 5)]), devices=("cuda",)),
    "offloaded": Case(sparse_nn(tables(3, 10_000, 64)), constraints=limits([f"table_{i}" for i in range(3)], compute_kernels=["fused", "fused_uvm_caching"]), devices=("cuda",)),
    # test_shard_estimators.py
    "sequences": Case(lambda device: TestSparseNN(tables=[sequence(f"table_{i}", 128, 32, feature_names=[f"feature_{i}"]) for i in range(3)], dense_device=CPU, sparse_device=device)),
    "prefetching": Case(sparse_nn(tables(2)), constraints=limits(["table_0"], compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=0.1, prefetch_pipeline=True)), devices=("cuda",)),
    "quantised": Case(quantised(DataType.INT8), [QuantEmbeddingBagCollectionSharder()], arguments=estimator(is_inference=True), devices=("cuda",)),
    "weighted by constraint": Case(SMALL, constraints=limits("a", is_weighted=True)),
    "weighted sequences by constraint": Case(model(ec=sequences(sequence("s"))), constraints=limits("s", is_weighted=True)),
    "peak memory": Case(SMALL, arguments=estimator(pipeline_type=PipelineType.TRAIN_SPARSE_DIST, run_embedding_at_peak_memory=True)),
    "variable batches": Case(SMALL, constraints=limits("a", pooling_factors=[2.0], num_poolings=[3.0], batch_sizes=[64])),
    # test_storage_reservations.py, test_utils.py, test_types.py
    "dense beside": Case(lambda device: Model(ebc=bags(bag("a"))(device), over=nn.Linear(64, 8))),
    "own caps of host memory": Case(SMALL, topology=per_rank(ddr_cap=[GIB, 2 * GIB])),
    "own caps of devices": Case(SMALL, topology=per_rank(hbm_cap=[GIB, 2 * GIB]), devices=("cuda",)),
    "a rank without memory": Case(SMALL, topology=per_rank(hbm_cap=[GIB, 0]), devices=("cuda",)),
    "own bandwidths": Case(SMALL, topology={"generalized_comms_bandwidths": Links(), "local_world_size": 1}),
    "own multipliers": Case(SMALL, topology={"bwd_compute_multiplier": 3.0, "uneven_sharding_perf_multiplier": 2.0}),
    "bandwidth per second": Case(SMALL, topology={"intra_host_bw": 450}, devices=("cuda",)),
    "hosts larger than the job": Case(SMALL, topology={"local_world_size": 8}),
    "an uneven host": Case(SMALL, topology={"world_size": 3, "local_world_size": 2}, devices=("cuda",)),
    "mtia": Case(SMALL, topology={"compute_device": "mtia"}, devices=("cuda",)),
    # Modules of other kinds, types of values.
    "mean": Case(model(ebc=bags(bag("a", pooling=PoolingType.MEAN)))),
    "a bag": Case(lambda device: Model(a=nn.EmbeddingBag(64, 8, mode="sum", include_last_offset=True, device=device), over=nn.Linear(8, 1)), [EmbeddingBagSharder()]),
    "feature processors": Case(processed),
    "feature processors by rows": Case(processed, [FeatureProcessedEmbeddingBagCollectionSharder(Only(["row_wise"]))], constraints=limits("ab", sharding_types=["row_wise"])),
    "fused by itself": Case(lambda device: Model(fused=FusedEmbeddingBagCollection(tables=[bag("a"), bag("b", 2000)], optimizer_type=torch.optim.SGD, optimizer_kwargs={"lr": 0.1}, device=CPU))),
    "two ways of looking up": Case(lambda device: Model(pec=PECEmbeddingCollection(sequences(sequence("s"), sequence("t", 500))(device)))),
    "pruned": Case(pruned, [ITEPEmbeddingBagCollectionSharder()]),
    "dlrm": Case(lambda device: DLRM(bags(*tables(4, 1000, 16))(device), dense_in_features=4, dense_arch_layer_sizes=[8, 16], over_arch_layer_sizes=[8, 1])),
    "quantised sequences": Case(lambda device: Model(q=QuantEmbeddingCollection(tables=[sequence("s", data_type=DataType.INT8)], device=META)), [QuantEmbeddingCollectionSharder()], devices=("cuda",)),
    "pooled and not": Case(model(ebc=bags(bag("a"), bag("b", 2000)), ec=sequences(sequence("s"), sequence("t", 500)))),
    **{str(kind.value).lower(): Case(model(ebc=bags(bag("a", data_type=kind), bag("b", 2000)))) for kind in (DataType.FP16, DataType.BF16)},
    **{str(kind.value).lower(): Case(model(ebc=bags(bag("a", data_type=kind), bag("b", 2000))), devices=("cuda",)) for kind in (DataType.INT8, DataType.INT4, DataType.INT2, DataType.NFP8)},
    "int2 vectors": Case(SMALL, constraints=limits("a", output_dtype=DataType.INT2), devices=("cuda",)),
    "quantised int4": Case(quantised(DataType.INT4), [QuantEmbeddingBagCollectionSharder()], devices=("cuda",)),
    "sorted ids": Case(collisions(sorted_ids, [bag("a", 1024), bag("b", 2048)], bags, ManagedCollisionEmbeddingBagCollection), BY_ROWS),
    "hashed ids": Case(collisions(hashed(4), [bag("a", 1024)], bags, ManagedCollisionEmbeddingBagCollection), BY_ROWS),
    "hashed ids in uneven buckets": Case(collisions(hashed(3), [bag("a", 1023)], bags, ManagedCollisionEmbeddingBagCollection), BY_ROWS),
    "hashed sequences": Case(collisions(hashed(4), [sequence("s", 1024)], sequences, ManagedCollisionEmbeddingCollection)),
    # Optimizers.
    "optimizers by table": Case(optimizers(a=RowWiseAdagrad, b=torch.optim.Adagrad)),
    "others by table": Case(optimizers(a=RowWiseAdagrad, b=torch.optim.Adam), devices=("cuda",)),
    "an optimizer of rows": Case(SMALL, of_optimizer("EXACT_ROWWISE_ADAGRAD")),
    **{f"optimizer {kind}": Case(SMALL, of_optimizer(kind), devices=("cuda",)) for kind in ("ADAM", "LAMB", "PARTIAL_ROWWISE_LAMB", "ENSEMBLE_ROWWISE_ADAGRAD", "NONE")},
    # The wire.
    "halves": Case(SMALL, [EmbeddingBagCollectionSharder(qcomm_codecs_registry=HALVES)]),
    "mx4": Case(SMALL, [EmbeddingBagCollectionSharder(qcomm_codecs_registry=codecs(forward_precision=CommType.MX4))], devices=("cuda",)),
    "mixed collectives": Case(SMALL, [EmbeddingBagCollectionSharder(qcomm_codecs_registry=MIXED)]),
    "mixed modules": Case(model(ebc=bags(bag("a")), ec=sequences(sequence("s"))), [EmbeddingBagCollectionSharder(qcomm_codecs_registry=HALVES), EmbeddingCollectionSharder()]),
    # Kernels and constraints.
    "triton": Case(SMALL, [Only(["table_wise"], ["fused_triton"])], devices=("cuda",)),
    "on ssd": Case(SMALL, constraints=limits("a", compute_kernels=["key_value"], key_value_params=KeyValueParams(max_l1_cache_size=1)), devices=("cuda",)),
    "a cache of all rows": Case(SMALL, [EmbeddingBagCollectionSharder(fused_params={"cache_load_factor": 1.0})]),
    "constraints of no table": Case(SMALL, constraints=limits(["a", "elsewhere"], sharding_types=["table_wise"])),
    "a word too many": Case(SMALL, constraints=limits("a", sharding_types=["table_wise", "diagonal_wise"])),
    "more pooling factors than features": Case(SMALL, constraints=limits("a", pooling_factors=[2.0, 3.0])),
    "one pooling factor for two features": Case(model(ebc=bags(bag("a", feature_names=["x", "y"]))), constraints=limits("a", pooling_factors=[2.0])),
}  # fmt: skip


def planned(kind, case: Case, device: str) -> ShardingPlan:
    topology = Topology(**{"world_size": RANKS, "compute_device": device, **BIG, **case.topology})
    more = {"topology": topology, "batch_size": 128, "constraints": case.constraints, "storage_reservation": FREE, "stats": [], "debug": False}
    planner = kind(**more, **case.arguments(topology, case.constraints))
    return planner.plan(case.make(META), get_default_sharders() if case.sharders is None else case.sharders)


def sharded(case: Case, plan: ShardingPlan) -> Callable[[], None]:
    def shard():
        logging.disable(logging.CRITICAL)
        made = DistributedModelParallel(case.make(CPU), device=CPU, plan=plan, sharders=get_default_sharders() if case.sharders is None else case.sharders)
        assert made.plan.plan.keys() == plan.plan.keys()

    return shard


def on_ranks(functions) -> Dict[str, List[str]]:
    """run_on_ranks, again for those that did not run since one before them ended the job."""
    faults: Dict[str, List[str]] = {}
    while functions:
        found = run_on_ranks(functions, RANKS, RANKS)
        ran = [name for name in functions if not (found[name] and "did not run" in found[name][0])] or list(functions)[:1]
        faults.update((name, found[name]) for name in ran)
        functions = {name: function for name, function in functions.items() if name not in ran}
    return faults


class TorchRecModulesTest(unittest.TestCase):
    maxDiff = None

    def test_what_torchrecs_planner_plans_is_planned_and_what_it_shards_is_sharded(self):
        theirs: Dict[Any, ShardingPlan] = {}
        ours: Dict[Any, ShardingPlan] = {}
        refused: Dict[Any, str] = {}
        for name, case in CASES.items():
            for device in case.devices:
                try:
                    theirs[name, device] = planned(EmbeddingShardingPlanner, case, device)
                except Exception:  # of whatever kind: PlannerError, RuntimeError, AssertionError
                    pass
                try:
                    ours[name, device] = planned(lambda **more: NeuroShardPlanner(Programs.address, **more), case, device)
                except PlannerError as fault:
                    refused[name, device] = str(fault)
        missed = {key: refused[key] for key in theirs if key in refused}
        print(f"TorchRec's planner plans {len(theirs)}, of which {len(theirs) - len(missed)} are planned")
        for key, reason in missed.items():
            self.assertIn(REFUSED.get(key, "no reason to refuse it"), reason, key)
        self.assertGreaterEqual(len(theirs) - len(missed), LEAST_SHARE * len(theirs))
        for key, plan in ours.items():
            if key in theirs:
                self.assertEqual({path: set(tables) for path, tables in plan.plan.items()}, {path: set(tables) for path, tables in theirs[key].plan.items()}, key)

        on_cpus = [key for key in ours if key[1] == "cpu"]
        of_theirs = on_ranks({key: sharded(CASES[key[0]], theirs[key]) for key in on_cpus if key in theirs})
        of_ours = on_ranks({key: sharded(CASES[key[0]], ours[key]) for key in on_cpus})
        rejected = [key for key, faults in of_theirs.items() if faults]
        print(f"TorchRec shards {len(of_theirs) - len(rejected)} of its {len(of_theirs)} plans for CPUs, and {sum(not faults for faults in of_ours.values())} of {len(of_ours)} of these")
        self.assertEqual({key: faults for key, faults in of_ours.items() if faults and key not in rejected}, {})


if __name__ == "__main__":
    main()
