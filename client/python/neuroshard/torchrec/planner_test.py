"""NeuroShardPlanner in one process: modules read, requests made, plans checked, cached and kept in files; errors.

  planner_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import concurrent.futures
import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings

import grpc
import torch
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerSharder
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, EmbeddingBagSharder
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation, HeuristicalStorageReservation
from torchrec.distributed.planner.types import CustomTopologyData, ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams, DataType, KeyValueParams, PipelineType, ShardingPlan
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import LFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

import neuroshard
from neuroshard import v1
from neuroshard.torchrec import NeuroShardPlanner, RowPositions, load_plan, save_plan, statistics
from neuroshard.torchrec.layout import from_message, from_sharding_plan
from neuroshard.v1 import planner_pb2_grpc

GIB = 1 << 30
FREE = FixedPercentageStorageReservation(0.0)
ADDRESS = ""


def bag(name, rows=1000, cols=64, **more):
    return EmbeddingBagConfig(**{"name": name, "num_embeddings": rows, "embedding_dim": cols, "feature_names": [f"f_{name}"], **more})


def bags(*tables, weighted=False):
    return EmbeddingBagCollection(tables=list(tables), is_weighted=weighted, device=torch.device("meta"))


class Model(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def small_model():
    return Model(ebc=bags(bag("a"), bag("b", 2000), bag("c", 3000, 32)))


def gpus(ranks=4, local=2, **more):
    return Topology(world_size=ranks, local_world_size=local, compute_device="cuda", **more)


def make(address=None, topology=None, batch_size=128, **more):
    more.setdefault("storage_reservation", FREE)
    return NeuroShardPlanner(address or ADDRESS, topology or gpus(), batch_size, debug=False, stats=[], **more)


class Relay(planner_pb2_grpc.PlannerServiceServicer):
    """A planner's answers, changed by `tamper` on their way. `calls`: names of the RPCs; `requests`: those of ShardPlan."""

    def __init__(self, tamper, model_types):
        self.calls, self.requests, self._tamper, self._model_types = [], [], tamper, model_types
        self._client = neuroshard.PlannerClient(ADDRESS)

    def GetCostModel(self, request, context):
        self.calls.append("GetCostModel")
        model = self._client.model(request.cost_model.name, request.cost_model.version)
        if self._model_types:
            model.sharding_types[:] = self._model_types
        return model

    def EvaluatePlan(self, request, context):
        self.calls.append("EvaluatePlan")
        return self._client.evaluate(request.request, request.plan)

    def ShardPlan(self, request, context):
        self.calls.append("ShardPlan")
        self.requests.append(request)
        response = self._client.plan(request)
        self._tamper(response)
        return response


@contextlib.contextmanager
def relay(tamper=lambda response: None, model_types=()):
    """(address, Relay) in front of the real planner, whose cost model is made for `model_types` if they are given."""
    service = Relay(tamper, model_types)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    planner_pb2_grpc.add_PlannerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", service
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def nobody():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextlib.contextmanager
def silence():
    """An address where connections are taken and nothing is answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


class Case(unittest.TestCase):
    def refused(self, kind, *parts):
        """A context in which a PlannerError of `kind` is raised whose text has all of `parts`."""

        @contextlib.contextmanager
        def context():
            with self.assertRaises(PlannerError) as caught:
                yield
            for part in parts:
                self.assertIn(part, str(caught.exception))
            self.assertEqual(caught.exception.error_type, kind)

        return context()

    def request(self, model, sharders=None, model_types=(), **more):
        """The request that the planner gets."""
        with relay(model_types=model_types) as (address, service):
            make(address, **more).plan(model, get_default_sharders() if sharders is None else sharders)
            return service.requests[-1]

    def tables(self, request):
        return {(table.module, table.name): table for table in request.tables}

    def types(self, request):
        """By table, which have names of their own here."""
        return {name.rpartition(".")[2]: set(rule.sharding_types) for rule in request.constraints.tables for name in rule.tables}


class ModulesTest(Case):
    def test_tables_are_those_of_the_module(self):
        model = Model(
            ebc=bags(bag("a", 1000, 64, feature_names=["x", "y"]), bag("b", 2000, 32, pooling=PoolingType.MEAN, data_type=DataType.FP16)),
            inner=Model(weighted=bags(bag("c", 3000, 16), weighted=True)),
            ec=EmbeddingCollection(tables=[EmbeddingConfig(name="s", num_embeddings=400, embedding_dim=8, feature_names=["z"])], device=torch.device("meta")),
        )
        request = self.request(model)
        found = self.tables(request)
        self.assertEqual(set(found), {("ebc", "a"), ("ebc", "b"), ("inner.weighted", "c"), ("ec", "s")})
        a, b, c, s = found["ebc", "a"], found["ebc", "b"], found["inner.weighted", "c"], found["ec", "s"]
        self.assertEqual((a.num_embeddings, a.embedding_dim, list(a.features), a.weight_dtype, a.pooling_mode), (1000, 64, ["x", "y"], "fp32", "sum"))
        self.assertEqual((b.weight_dtype, b.pooling_mode, b.weighted), ("fp16", "mean", False))
        self.assertEqual((c.weighted, c.kind), (True, "embedding_bag"))
        self.assertEqual((s.kind, s.pooling_mode, list(s.features)), ("embedding", "", ["z"]))
        self.assertEqual((request.global_batch_size, request.optimizer, request.topology.compute_device), (128 * 4, "sgd", "cuda"))
        self.assertEqual(self.types(request)["s"] - {"table_wise", "column_wise", "row_wise"}, set())

    def test_kinds_of_modules_get_only_types_that_torchrec_runs(self):
        def bare():
            return Model(bag=nn.EmbeddingBag(1000, 16, mode="sum", include_last_offset=True, device="meta"))

        request = self.request(bare(), [EmbeddingBagSharder()])
        self.assertEqual(self.types(request)["weight"], {"data_parallel", "row_wise", "table_row_wise"})
        constraints = {"weight": ParameterConstraints(sharding_types=["table_wise", "column_wise"])}
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "bag.weight", "TorchRec runs data_parallel, row_wise", "of EmbeddingBag there"):
            make(constraints=constraints).plan(bare(), [EmbeddingBagSharder()])

        class Derived(nn.EmbeddingBag):
            pass

        class Sharder(EmbeddingBagSharder):
            @property
            def module_type(self):
                return Derived

        request = self.request(Model(bag=Derived(1000, 16, device="meta")), [Sharder()])
        self.assertEqual(self.types(request)["weight"], {"data_parallel", "row_wise", "table_row_wise"})

    def test_towers_stay_on_a_host(self):
        tower = EmbeddingTower(bags(bag("a"), bag("b", 2000)), nn.Linear(8, 8))
        request = self.request(Model(tower=tower), [EmbeddingTowerSharder()])
        self.assertEqual([(sorted(group.tables), group.level) for group in request.constraints.colocate], [(["tower.a", "tower.b"], "host")])
        for types in self.types(request).values():
            self.assertEqual(types, {"table_row_wise", "table_column_wise"})

    def test_feature_processed_collections_cut_no_rows_unless_asked_to(self):
        def model():
            inner = bags(bag("a"), bag("b", 2000), weighted=True)
            return Model(fp=FeatureProcessedEmbeddingBagCollection(inner, PositionWeightedModuleCollection({"f_a": 10, "f_b": 10}, torch.device("meta"))))

        sharders = [FeatureProcessedEmbeddingBagCollectionSharder()]
        request = self.request(model(), sharders, constraints={"b": ParameterConstraints(sharding_types=["row_wise"])})
        self.assertTrue(all(table.weighted and table.module == "fp" for table in request.tables))
        self.assertFalse(self.types(request)["a"] & {"row_wise", "table_row_wise", "grid_shard"})
        self.assertEqual(self.types(request)["b"], {"row_wise"})

    def test_columns_that_fbgemm_has_no_kernels_for(self):
        def wide(**more):
            return make(topology=gpus(**more)).plan(Model(ebc=bags(bag("wide", 100, 3840), bag("b"))), get_default_sharders())

        for ranks, local in ((1, 1), (8, 4)):
            shards = wide(ranks=ranks, local=local).plan["ebc"]["wide"].sharding_spec.shards
            self.assertLessEqual(max(shard.shard_sizes[1] for shard in shards), 2048)
        for dim in (1, 2, 3, 5, 50):
            with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ebc.odd", "multiples of 4", f"from {dim} to {-(-dim // 4) * 4}"):
                make().plan(Model(ebc=bags(bag("odd", 100, dim), bag("b"))), get_default_sharders())
        cpu = Topology(world_size=2, compute_device="cpu")
        plan = make(topology=cpu).plan(Model(ebc=bags(bag("odd", 100, 5), bag("b"), bag("wide", 100, 3840))), get_default_sharders())
        self.assertEqual(plan.plan["ebc"]["odd"].sharding_type, "data_parallel")

        model = Model(ebc=bags(bag("wide", 100, 3840)))
        whole = {"plan": {"ebc": {"wide": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0], "shards": [
            {"shard_offsets": [0, 0], "shard_sizes": [100, 3840], "placement": "rank:0/cuda:0"}]}}}}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(whole, file)
            with self.assertRaisesRegex(PlannerError, "ebc.wide: a shard has 3840 columns, and FBGEMM takes at most 2048 on CUDA"):
                load_plan(path, model, gpus())

    def test_what_no_request_can_say_is_told_with_the_tables(self):
        def told(model, sharders, **more):
            with relay() as (address, _), self.assertLogs("neuroshard.torchrec.planner", "WARNING") as logs:
                planner = make(address, **more)
                planner.plan(model, sharders)
            found = [line.split(":", 2)[2] for line in logs.output]
            self.assertLessEqual(set(planner.response.warnings), set(found))
            return "\n".join(found)

        def unpooled():
            return Model(ec=EmbeddingCollection(tables=[EmbeddingConfig(name=name, num_embeddings=500, embedding_dim=16, feature_names=[name]) for name in "st"],
                                                device=torch.device("meta")))  # fmt: skip

        self.assertNotIn("dedup", told(unpooled(), [EmbeddingCollectionSharder()]))
        self.assertRegex(told(unpooled(), [EmbeddingCollectionSharder(use_index_dedup=True)]), "use_index_dedup: .*: ec.s, ec.t")

        plain = {"learning_rate": 0.1, "eps": 1e-8, "output_dtype": DataType.FP16}
        self.assertNotIn("fused_params", told(small_model(), [EmbeddingBagCollectionSharder(fused_params=plain)]))
        found = told(small_model(), [EmbeddingBagCollectionSharder(fused_params={**plain, "uvm_host_mapped": True, "a_later_option": 1})])
        self.assertRegex(found, "'uvm_host_mapped': .* not priced: ebc.a, ebc.b, ebc.c")
        self.assertRegex(found, "'a_later_option'")
        cache = {"b": ParameterConstraints(cache_params=CacheParams(precision=DataType.FP16))}
        self.assertRegex(told(small_model(), [EmbeddingBagCollectionSharder()], constraints=cache), "cache_params.precision: .*: ebc.b$|cache_params.precision: .*: ebc.b\n")

    def test_ids_with_weights_in_the_data_are_counted_and_told(self):
        def batch(weights):
            values = torch.arange(6)
            return KeyedJaggedTensor(keys=["f_a", "f_b", "f_c"], values=values, lengths=torch.ones(6, dtype=torch.int64), weights=torch.ones(6) if weights else None)

        for weights in (False, True):
            with relay() as (address, service):
                planner = make(address, statistics=statistics([batch(weights)]))
                planner.plan(small_model(), [EmbeddingBagCollectionSharder()])
            self.assertEqual([table.weighted for table in service.requests[0].tables], [weights] * 3)
            self.assertEqual("ids carry weights in the batches of the statistics" in "\n".join(planner.response.warnings), weights)

    def test_types_on_the_wire_of_a_sharder_that_the_request_overrules_are_told(self):
        def sharder(**config):
            return EmbeddingBagCollectionSharder(qcomm_codecs_registry=get_qcomm_codecs_registry(QCommsConfig(**config)))

        def told(sharders, comms):
            with relay() as (address, _), self.assertLogs("neuroshard.torchrec.planner", "WARNING") as logs:
                make(address, request={"quantized_comms": comms}).plan(small_model(), sharders)
            return "\n".join(logs.output)

        half = {"forward_precision": CommType.FP16, "backward_precision": CommType.BF16}
        self.assertIn("prices int8/fp32 on the wire, and its sharder has fp16/bf16: ebc.a, ebc.b, ebc.c", told([sharder(**half)], {"forward_dtype": "int8"}))
        self.assertNotIn("prices", told([sharder(**half)], {"forward_dtype": "fp16", "backward_dtype": "bf16"}))

    def test_options_of_a_sharder_within_a_sharder_are_those_that_train(self):
        inner = bags(bag("a"), bag("b", 2000), weighted=True)
        model = Model(fp=FeatureProcessedEmbeddingBagCollection(inner, PositionWeightedModuleCollection({"f_a": 10, "f_b": 10}, torch.device("meta"))))
        codecs = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16))
        within = EmbeddingBagCollectionSharder(fused_params={"output_dtype": DataType.FP16}, qcomm_codecs_registry=codecs)
        request = self.request(model, [FeatureProcessedEmbeddingBagCollectionSharder(ebc_sharder=within)])
        self.assertEqual((request.quantized_comms.forward_dtype, request.quantized_comms.backward_dtype), ("fp16", "bf16"))
        self.assertEqual([table.output_dtype for table in request.tables], ["fp16", "fp16"])

    def test_managed_collisions_have_their_tables_of_ids_beside_the_rows(self):
        config = bag("a", 1024, 16)

        def model(policy):
            return Model(mc=ManagedCollisionEmbeddingBagCollection(bags(config), ManagedCollisionCollection({"a": policy}, [config])))

        one_bucket = MCHManagedCollisionModule(zch_size=1024, device=torch.device("meta"), eviction_interval=2, eviction_policy=LFU_EvictionPolicy())
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "mc.a", "buckets that differ from rank to rank"):
            make().plan(model(one_bucket), [ManagedCollisionEmbeddingBagCollectionSharder()])
        policy = HashZchManagedCollisionModule(zch_size=1024, device=torch.device("meta"), total_num_buckets=4)
        request = self.request(model(policy), [ManagedCollisionEmbeddingBagCollectionSharder()])
        beside = sum(each.numel() * each.element_size() for each in policy.buffers())
        self.assertGreaterEqual(request.tables[0].extra_bytes_per_row, 8)
        self.assertEqual(request.tables[0].extra_bytes_per_row, -(-beside // 1024))
        self.assertEqual(self.types(request)["a"], {"row_wise"})

    def test_optimizers_are_those_of_the_parameters_then_of_the_sharder(self):
        model = small_model()
        apply_optimizer_in_backward(RowWiseAdagrad, model.parameters(), {"lr": 0.1})
        self.assertEqual(self.request(model).optimizer, "rowwise_adagrad")
        from fbgemm_gpu.split_embedding_configs import EmbOptimType

        sharders = [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.ADAM})]
        self.assertEqual(self.request(small_model(), sharders).optimizer, "adam")
        self.assertEqual(self.request(small_model(), sharders, optimizer="adagrad").optimizer, "adagrad")
        for kind, word in (("EXACT_SGD", "sgd"), ("LARS_SGD", "lars_sgd"), ("EXACT_ADAGRAD", "adagrad"), ("EXACT_ROWWISE_ADAGRAD", "rowwise_adagrad"),
                           ("PARTIAL_ROWWISE_ADAM", "partial_rowwise_adam"), ("LAMB", "lamb")):  # fmt: skip
            sharders = [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType[kind]})]
            self.assertEqual(self.request(small_model(), sharders).optimizer, word)
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "PARTIAL_ROWWISE_LAMB", "ebc.a", "'lars_sgd'"):
            make().plan(small_model(), [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.PARTIAL_ROWWISE_LAMB})])
        model = small_model()
        apply_optimizer_in_backward(RowWiseAdagrad, model.ebc.embedding_bags["a"].parameters(), {"lr": 0.1})
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "rowwise_adagrad of ebc.a", "sgd of ebc.b, ebc.c"):
            make().plan(model, get_default_sharders())

    def test_what_has_no_place_in_a_plan_is_refused_with_its_name(self):
        kind = PlannerErrorType.INPUT_VALIDATION
        sharders = get_default_sharders()
        with self.refused(kind, "no tables"):
            make().plan(nn.Linear(2, 2), sharders)
        with self.refused(kind, "no tables", "without a sharder: ebc"):
            make().plan(small_model(), [EmbeddingCollectionSharder()])
        with self.refused(kind, "constraints for nope, zero"):
            make(constraints={"nope": ParameterConstraints(), "zero": ParameterConstraints()}).plan(small_model(), sharders)
        with self.refused(kind, "ebc.b", "weights of INT4"):
            make().plan(Model(ebc=bags(bag("a"), bag("b", data_type=DataType.INT4))), sharders)
        with self.refused(kind, "ebc.a", "output_dtype is INT2"):
            make(constraints={"a": ParameterConstraints(output_dtype=DataType.INT2)}).plan(small_model(), sharders)
        with self.refused(kind, "ebc.a", "device_group is 'cpu'"):
            make(constraints={"a": ParameterConstraints(device_group="cpu")}).plan(small_model(), sharders)
        for kernel in (EmbeddingComputeKernel.SSD_VIRTUAL_TABLE.value, EmbeddingComputeKernel.DRAM_VIRTUAL_TABLE.value):
            with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ebc.a", f"table_wise with {kernel}", "fused, fused_uvm, fused_uvm_caching, key_value"):
                make(constraints={"a": ParameterConstraints(compute_kernels=[kernel])}).plan(small_model(), sharders)
        on_ssd = {"a": ParameterConstraints(compute_kernels=["key_value"])}
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ebc.a", "leave nothing on cpu"):
            make(topology=Topology(world_size=2, compute_device="cpu"), constraints=on_ssd).plan(small_model(), sharders)
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ebc.a", "leave nothing on cuda"):
            make(topology=gpus(ssd_cap=0), constraints=on_ssd).plan(small_model(), sharders)
        with self.refused(kind, "ebc.a", "use_virtual_table"):
            make(constraints={"a": ParameterConstraints(use_virtual_table=True)}).plan(small_model(), sharders)
        with self.refused(kind, "ebc.a", "2 pooling_factors for 1 features"):
            make(constraints={"a": ParameterConstraints(pooling_factors=[1.0, 2.0])}).plan(small_model(), sharders)
        with self.refused(kind, "constraints for a: sharding_types has 'no_such_type', which TorchRec does not have"):
            make(constraints={"a": ParameterConstraints(sharding_types=["no_such_type"])}).plan(small_model(), sharders)
        unpooled = Model(ec=EmbeddingCollection(tables=[EmbeddingConfig(name="s", num_embeddings=400, embedding_dim=8, feature_names=["z"])]))
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ec.s", "which unpooled tables cannot be"):
            make(constraints={"s": ParameterConstraints(sharding_types=["data_parallel"])}).plan(unpooled, sharders)

    def test_what_a_plan_does_not_decide_comes_from_the_constraints(self):
        cache = CacheParams(load_factor=0.3)
        constraints = {
            "a": ParameterConstraints(
                cache_params=cache, enforce_hbm=True, stochastic_rounding=False, bounds_check_mode=BoundsCheckMode.FATAL, output_dtype=DataType.FP16
            )
        }
        plan = make(constraints=constraints).plan(small_model(), get_default_sharders())
        with tempfile.TemporaryDirectory() as folder:
            save_plan(plan, f"{folder}/plan.json")
            loaded = load_plan(f"{folder}/plan.json", small_model(), gpus(), constraints=constraints)
        for found in (plan, loaded):
            a, b = found.plan["ebc"]["a"], found.plan["ebc"]["b"]
            self.assertEqual((a.cache_params, a.enforce_hbm, a.stochastic_rounding), (cache, True, False))
            self.assertEqual((a.bounds_check_mode, a.output_dtype), (BoundsCheckMode.FATAL, DataType.FP16))
            self.assertEqual((b.cache_params, b.enforce_hbm, b.output_dtype), (None, None, None))

    def test_types_and_widths_are_those_that_constraints_and_sharders_leave(self):
        constraints = {
            "a": ParameterConstraints(sharding_types=["table_wise", "grid_shard"]),
            "b": ParameterConstraints(sharding_types=["column_wise"], min_partition=32),
        }
        request = self.request(small_model(), model_types=["table_wise", "grid_shard", "row_wise_subset"], constraints=constraints)
        types = self.types(request)
        self.assertEqual(types["a"], {"table_wise", "grid_shard"})
        self.assertEqual(types["b"], {"column_wise"})
        self.assertEqual(types["c"], {"table_wise"})
        self.assertEqual([rule.min_column_width for rule in request.constraints.tables if "ebc.b" in rule.tables], [32])
        everything = self.request(small_model(), request={"cost_model": {"name": "analytic"}})
        self.assertEqual(self.types(everything)["c"], {"data_parallel", "table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise"})
        fewer = self.request(small_model(), request={"cost_model": {"name": "analytic"}, "constraints": {"sharding_types": ["row_wise", "table_wise"]}})
        self.assertEqual(self.types(fewer)["c"], {"row_wise", "table_wise"})

    def test_rows_of_mean_pooled_tables_are_cut_only_in_modules_of_their_own(self):
        mean = {"pooling": PoolingType.MEAN}
        analytic = {"cost_model": {"name": "analytic"}}
        request = self.request(Model(ebc=bags(bag("a", **mean), bag("b")), alone=bags(bag("c", **mean))), request=analytic)
        self.assertFalse(self.types(request)["a"] & {"row_wise", "table_row_wise", "grid_shard"})
        self.assertIn("row_wise", self.types(request)["b"])
        self.assertIn("row_wise", self.types(request)["c"])
        constraints = {"a": ParameterConstraints(sharding_types=["row_wise"]), "b": ParameterConstraints(sharding_types=["table_wise"])}
        with self.refused(PlannerErrorType.INVALID_RANK_ASSIGNMENT, "ebc.a", "wrong values for ebc.b"):
            make(constraints=constraints).plan(Model(ebc=bags(bag("a", **mean), bag("b"))), get_default_sharders())


class RequestsTest(Case):
    def test_bandwidths_are_per_second_and_memory_is_that_of_the_device(self):
        topology = gpus(8, 4, hbm_cap=10 * GIB, ddr_cap=7 * GIB, hbm_mem_bw=1e9, ddr_mem_bw=3e8, intra_host_bw=2e8, inter_host_bw=5e7)
        found = self.request(small_model(), topology=topology).topology
        self.assertEqual([(group.count, group.num_devices, group.memory_bytes) for group in found.hosts], [(2, 4, 10 * GIB)])
        bandwidths = found.bandwidths
        self.assertEqual((bandwidths.device_memory_bytes_per_s, bandwidths.intra_host_bytes_per_s, bandwidths.inter_host_bytes_per_s), (1e12, 2e11, 5e10))
        cpu = Topology(world_size=2, compute_device="cpu", ddr_cap=7 * GIB, ddr_mem_bw=3e8)
        found = self.request(small_model(), topology=cpu).topology
        self.assertEqual((found.hosts[0].num_devices, found.hosts[0].memory_bytes, found.compute_device), (2, 7 * GIB, "cpu"))
        self.assertEqual(found.bandwidths.device_memory_bytes_per_s, 3e11)

    def test_pods_are_hosts_and_devices_may_differ(self):
        pods = gpus(8, 2, pod_size=2)
        self.assertEqual([(group.count, group.num_devices) for group in self.request(small_model(), topology=pods).topology.hosts], [(2, 4)])
        sizes = [4 * GIB, 4 * GIB, 5 * GIB, 6 * GIB]
        uneven = gpus(custom_topology_data=CustomTopologyData({"hbm_cap": sizes}, 4))
        hosts = self.request(small_model(), topology=uneven, constraints=None).topology.hosts
        self.assertEqual([(list(group.device_memory_bytes), group.memory_bytes) for group in hosts], [([], 4 * GIB), ([5 * GIB, 6 * GIB], 0)])

    def test_reservations_are_torchrecs(self):
        model = Model(ebc=bags(bag("a"), bag("b", 2000)), over=nn.Linear(1000, 1000, device="meta"))
        constraints = {"a": ParameterConstraints(pooling_factors=[20.0])}
        for reservation in (FixedPercentageStorageReservation(0.25), HeuristicalStorageReservation(0.15)):
            left = reservation.reserve(gpus(), 128, model, get_default_sharders(), constraints).devices[0].storage.hbm
            request = self.request(model, storage_reservation=reservation, constraints=constraints)
            self.assertEqual(request.topology.hosts[0].memory_bytes - request.memory.reserve_bytes, left)
            self.assertEqual((request.topology.hosts[0].memory_bytes, request.memory.rule), (gpus().devices[0].storage.hbm, "torchrec"))
        with self.refused(PlannerErrorType.INSUFFICIENT_STORAGE, "rank 0"):
            make(topology=gpus(hbm_cap=0)).plan(model, get_default_sharders())

    def test_topologies_that_the_service_cannot_be_told_are_refused_with_the_parameter(self):
        for name in ("bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier", "uneven_sharding_perf_multiplier"):
            with self.refused(PlannerErrorType.INPUT_VALIDATION, name):
                make(topology=gpus(**{name: 7.0})).plan(small_model(), get_default_sharders())
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "world_size 4 is not a multiple of the 3"):
            make(topology=gpus(4, 3)).plan(small_model(), get_default_sharders())

    def test_pooling_factors_poolings_and_batch_sizes(self):
        model = Model(ebc=bags(bag("a", feature_names=["x", "y"]), bag("b", feature_names=["u", "v"])))
        constraints = {
            "a": ParameterConstraints(pooling_factors=[3.0, 5.0]),
            "b": ParameterConstraints(pooling_factors=[3.0, 8.0], num_poolings=[2.0, 1.0], batch_sizes=[128, 32]),
        }
        found = self.tables(self.request(model, constraints=constraints))
        self.assertEqual(list(found["ebc", "a"].pooling_factors), [3.0, 5.0])
        b = found["ebc", "b"]
        self.assertEqual((list(b.features), list(b.pooling_factors), list(b.num_poolings)), (["u", "v"], [3.0, 8.0], [2.0, 1.0]))
        self.assertEqual(list(b.feature_batch_sizes), [128 * 4, 32 * 4])
        plain = self.tables(self.request(model))["ebc", "a"]
        self.assertEqual((list(plain.pooling_factors), list(plain.num_poolings), list(plain.feature_batch_sizes)), ([1.0, 1.0], [], []))
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.b", "1 batch_sizes for 2 features"):
            self.request(model, constraints={"b": ParameterConstraints(pooling_factors=[3.0, 8.0], batch_sizes=[128])})

    def test_the_hosts_memory_is_told_where_a_kernel_may_use_it(self):
        topology = gpus(8, 4, hbm_cap=10 * GIB, ddr_cap=7 * GIB, ddr_mem_bw=3e8, hbm_to_ddr_mem_bw=2e7)
        request = self.request(small_model(), topology=topology)
        (host,) = request.topology.hosts
        self.assertEqual((host.count, host.host_memory_bytes, host.max_host_memory_bytes_per_device), (2, 4 * 7 * GIB, 7 * GIB))
        bandwidths = request.topology.bandwidths
        self.assertEqual(bandwidths.host_to_device_bytes_per_s, 2e10)
        self.assertEqual([list(rule.compute_kernels) for rule in request.constraints.tables], [[]])

        fused = {name: ParameterConstraints(compute_kernels=["fused", "dense"]) for name in "abc"}
        without = (
            {"topology": topology, "constraints": fused},
            {"topology": gpus(8, 4, ddr_cap=0)},
            {"topology": Topology(world_size=2, compute_device="cpu", ddr_cap=7 * GIB)},
        )
        for arguments in without:
            request = self.request(small_model(), **arguments)
            self.assertFalse(request.topology.hosts[0].host_memory_bytes or request.topology.hosts[0].max_host_memory_bytes_per_device)
            self.assertFalse(request.topology.bandwidths.HasField("host_to_device_bytes_per_s"))
            self.assertEqual([rule.compute_kernels[:] for rule in request.constraints.tables if rule.compute_kernels], [])
        uneven = gpus(custom_topology_data=CustomTopologyData({"ddr_cap": [GIB, GIB, GIB, 2 * GIB]}, 4))
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ddr_cap of ranks 2 to 3"):
            make(topology=uneven).plan(small_model(), get_default_sharders())
        self.request(small_model(), topology=uneven, constraints=fused)

    def test_kernels_and_load_factors_are_those_of_constraints_and_fused_params(self):
        def rules(**more):
            found = self.request(small_model(), **more).constraints.tables
            return {name[-1]: (list(rule.compute_kernels), rule.cache_load_factor) for rule in found for name in rule.tables}

        constraints = {
            "a": ParameterConstraints(compute_kernels=["fused_uvm", "fused"], cache_params=CacheParams(load_factor=0.5)),
            "b": ParameterConstraints(cache_params=CacheParams(load_factor=0.25)),
            "c": ParameterConstraints(compute_kernels=["fused", "fused_uvm_caching", "dense"], sharding_types=["data_parallel", "row_wise"]),
        }
        expected = {"a": (["fused", "fused_uvm"], 0), "b": ([], 0.25), "c": (["fused", "fused_uvm_caching", "dense"], 0)}
        self.assertEqual(rules(constraints=constraints, model_types=["row_wise", "data_parallel"]), expected)
        shared = [EmbeddingBagCollectionSharder(fused_params={"cache_load_factor": 0.125})]
        self.assertEqual(rules(constraints=constraints, sharders=shared, model_types=["row_wise"])["b"], ([], 0.25))
        self.assertEqual(rules(sharders=shared)["b"], ([], 0.125))

    def test_ssds_and_their_caches_are_told_where_constraints_name_key_value(self):
        topology = gpus(8, 4, ddr_cap=7 * GIB, ssd_cap=90 * GIB, ssd_mem_bw=5e6)
        plain = self.request(small_model(), topology=topology)
        self.assertFalse(plain.topology.hosts[0].ssd_bytes or plain.topology.hosts[0].max_ssd_bytes_per_device)
        self.assertFalse(plain.topology.bandwidths.HasField("ssd_bytes_per_s"))

        constraints = {
            "a": ParameterConstraints(compute_kernels=["fused", "key_value", "dense"], key_value_params=KeyValueParams(max_l1_cache_size=3, l2_cache_size=2)),
            "b": ParameterConstraints(compute_kernels=["key_value"], cache_params=CacheParams(load_factor=0.5)),
            "c": ParameterConstraints(key_value_params=KeyValueParams(max_l1_cache_size=3, l2_cache_size=2)),
        }
        request = self.request(small_model(), topology=topology, constraints=constraints, model_types=["row_wise", "data_parallel"])
        (host,) = request.topology.hosts
        self.assertEqual((host.count, host.ssd_bytes, host.max_ssd_bytes_per_device), (2, 4 * 90 * GIB, 90 * GIB))
        self.assertEqual(request.topology.bandwidths.ssd_bytes_per_s, 5e9)
        rules = {name[-1]: rule for rule in request.constraints.tables for name in rule.tables}
        self.assertEqual({name: list(rule.compute_kernels) for name, rule in rules.items()}, {"a": ["fused", "key_value", "dense"], "b": ["key_value"], "c": []})
        self.assertEqual([rules[name].cache_load_factor for name in "abc"], [0, 0.5, 0])
        tables = self.tables(request)
        a, b, c = (tables["ebc", name] for name in "abc")
        # A cache for several tables, of which one has no more than it is large.
        self.assertEqual((a.max_l1_cache_bytes, a.l2_cache_bytes), (3 << 20, 1000 * 64 * 4))
        self.assertFalse(b.HasField("max_l1_cache_bytes") or b.l2_cache_bytes or c.HasField("max_l1_cache_bytes") or c.l2_cache_bytes)

        uneven = gpus(custom_topology_data=CustomTopologyData({"ssd_cap": [GIB, GIB, GIB, 2 * GIB]}, 4))
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ssd_cap of ranks 2 to 3"):
            make(topology=uneven, constraints=constraints).plan(small_model(), get_default_sharders())
        self.request(small_model(), topology=uneven)

    def test_types_of_weights_and_outputs(self):
        parts = {"a": DataType.INT8, "b": DataType.NFP8, "c": DataType.BF16, "d": DataType.FP32}
        model = Model(ebc=bags(*(bag(name, data_type=kind) for name, kind in parts.items())))
        constraints = {"a": ParameterConstraints(output_dtype=DataType.FP16), "d": ParameterConstraints(output_dtype=DataType.BF16)}
        found = self.tables(self.request(model, constraints=constraints))
        self.assertEqual([found["ebc", name].weight_dtype for name in parts], ["int8", "fp8", "bf16", "fp32"])
        self.assertEqual([found["ebc", name].output_dtype for name in parts], ["fp16", "", "", "bf16"])
        from fbgemm_gpu.split_embedding_configs import SparseType

        found = self.tables(self.request(model, [EmbeddingBagCollectionSharder(fused_params={"output_dtype": SparseType.FP16})], constraints=constraints))
        self.assertEqual([found["ebc", name].output_dtype for name in parts], ["fp16", "fp16", "fp16", "bf16"])

    def test_types_on_the_wire_are_those_of_the_sharders_codecs(self):
        def sharders(**config):
            return [EmbeddingBagCollectionSharder(qcomm_codecs_registry=get_qcomm_codecs_registry(QCommsConfig(**config)))]

        def wire(sharders, **more):
            comms = self.request(small_model(), sharders, **more).quantized_comms
            return comms.forward_dtype, comms.backward_dtype

        for forward in CommType:
            for backward in (CommType.FP32, CommType.BF16):
                config = {"forward_precision": forward, "backward_precision": backward}
                if forward == CommType.MX4:
                    with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.a", "POOLED_EMBEDDINGS_ALL_TO_ALL in mx4"):
                        make().plan(small_model(), sharders(**config))
                elif forward == backward == CommType.FP32:
                    self.assertFalse(self.request(small_model(), sharders(**config)).HasField("quantized_comms"))
                else:
                    self.assertEqual(wire(sharders(**config)), (forward.value, backward.value))
        self.assertEqual(wire(sharders(forward_precision=CommType.FP16), request={"quantized_comms": {"forward_dtype": "int8"}}), ("int8", ""))

        halves = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.FP16))
        bytes_ = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.INT8, backward_precision=CommType.FP16))
        mixed = {**halves, "POOLED_EMBEDDINGS_REDUCE_SCATTER": bytes_["POOLED_EMBEDDINGS_REDUCE_SCATTER"]}
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "POOLED_EMBEDDINGS_ALL_TO_ALL in fp16/fp16 and POOLED_EMBEDDINGS_REDUCE_SCATTER in int8/fp16"):
            make().plan(small_model(), [EmbeddingBagCollectionSharder(qcomm_codecs_registry=mixed)])
        both = Model(ebc=bags(bag("a")), ec=EmbeddingCollection(tables=[EmbeddingConfig(name="s", num_embeddings=40, embedding_dim=8, feature_names=["z"])]))
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "fp16/fp16 of ebc.a", "the type of the lookup/the same of ec.s"):
            make().plan(both, [EmbeddingBagCollectionSharder(qcomm_codecs_registry=halves), EmbeddingCollectionSharder()])
        unpooled = [EmbeddingBagCollectionSharder(qcomm_codecs_registry=halves), EmbeddingCollectionSharder(qcomm_codecs_registry=halves)]
        self.assertEqual(self.request(both, unpooled).quantized_comms.forward_dtype, "fp16")
        for model, owns in ((small_model(), mixed), (both, halves)):  # what is stated decides where sharders disagree
            given = [EmbeddingBagCollectionSharder(qcomm_codecs_registry=owns), EmbeddingCollectionSharder()]
            self.assertEqual(self.request(model, given, request={"quantized_comms": {"backward_dtype": "bf16"}}).quantized_comms.backward_dtype, "bf16")

    def test_the_pipeline_is_the_storage_estimators(self):
        def pipeline(prefetch=None, **more):
            constraints = {"b": ParameterConstraints(cache_params=CacheParams(prefetch_pipeline=prefetch))} if prefetch else None
            return self.request(small_model(), constraints=constraints, enumerator=enumerator(**more)).pipeline_type

        def enumerator(**more):
            return EmbeddingEnumerator(gpus(), 128, estimator=[EmbeddingPerfEstimator(gpus()), EmbeddingStorageEstimator(gpus(), **more)])

        self.assertEqual(pipeline(), "")
        self.assertEqual(pipeline(pipeline_type=PipelineType.TRAIN_BASE), "")
        self.assertEqual(pipeline(pipeline_type=PipelineType.TRAIN_SPARSE_DIST), "train_sparse_dist")
        self.assertEqual(pipeline(pipeline_type=PipelineType.TRAIN_PREFETCH_SPARSE_DIST), "train_prefetch_sparse_dist")
        # Of no pipeline it counts for all; caches that are filled ahead of time are those of one.
        self.assertEqual(pipeline(prefetch=True), "train_prefetch_sparse_dist")
        self.assertEqual(pipeline(prefetch=True, pipeline_type=PipelineType.TRAIN_SPARSE_DIST), "train_sparse_dist")
        self.assertEqual(self.request(small_model(), request={"pipeline_type": "train_sparse_dist"}).pipeline_type, "train_sparse_dist")
        for part, more in (("is_inference", {"is_inference": True}),
                           ("run_embedding_at_peak_memory", {"run_embedding_at_peak_memory": True, "pipeline_type": PipelineType.TRAIN_SPARSE_DIST})):  # fmt: skip
            with self.refused(PlannerErrorType.INPUT_VALIDATION, part):
                make(enumerator=enumerator(**more)).plan(small_model(), get_default_sharders())

    def test_what_is_read_from_the_module_must_not_be_in_the_callers_request(self):
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "tables, global_batch_size"):
            make(request={"tables": [{"name": "a"}], "global_batch_size": 5})
        with self.assertRaises(neuroshard.InvalidRequest):
            make(request={"no_such_field": 1})
        request = self.request(small_model(), request={"search": {"seed": 7}, "constraints": {"tables": [{"tables": ["a"], "ranks": [3]}]}})
        self.assertEqual(request.search.seed, 7)

    def test_rows_in_proportion_need_a_sharder_that_knows_where_they_begin(self):
        class Sharder(RowPositions, EmbeddingBagCollectionSharder):
            pass

        kinds = {"a": ParameterConstraints(sharding_types=["row_wise"]), "b": ParameterConstraints(sharding_types=["table_wise"])}
        constraints = {**kinds, "c": ParameterConstraints(sharding_types=["row_wise", "table_wise"])}
        request = self.request(small_model(), [Sharder()], constraints=constraints, row_proportion="memory")
        found = {name: rule.row_proportion for rule in request.constraints.tables for name in rule.tables}
        self.assertEqual(found, {"ebc.a": "memory", "ebc.b": "", "ebc.c": "memory"})
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "row_proportion", "ebc.a", "RowPositions"):
            make(constraints=constraints, row_proportion="memory").plan(small_model(), get_default_sharders())
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "row_proportion", "must be one of memory, speed"):
            make(constraints=constraints, row_proportion="size").plan(small_model(), [Sharder()])
        # Of some tables, by the caller's request: 3/8 of the rows on ranks 0 and 1 each.
        caps = CustomTopologyData(data={"hbm_cap": [3 * GIB, 3 * GIB, GIB, GIB]}, world_size=4)
        rules = {"constraints": {"tables": [{"tables": ["a"], "row_proportion": "memory"}]}}
        more = {"constraints": kinds, "request": rules, "topology": gpus(custom_topology_data=caps)}
        spec = make(**more).plan(small_model(), [Sharder()]).plan["ebc"]["a"].sharding_spec
        self.assertEqual([shard.shard_sizes[0] for shard in spec.shards], [375, 375, 125, 125])
        with self.refused(PlannerErrorType.INVALID_RANK_ASSIGNMENT, "not [375, 375, 125, 125]", "RowPositions"):
            make(**more).plan(small_model(), get_default_sharders())

    def test_statistics_of_batches(self):
        batch = KeyedJaggedTensor(
            keys=["x", "y"], values=torch.tensor([1, 1, 1, 2, 2, 3, 9, 9, 1]), lengths=torch.tensor([3, 2, 1, 0, 2, 1]),
        )
        found = statistics([batch])
        self.assertEqual((found.features, found.samples), (["x", "y"], 3))
        self.assertEqual((found.pooling_factor("x"), found.pooling_factor("y")), (2.0, 1.0))
        # x: 1 three times, 2 twice, 3 once.
        self.assertEqual(found.reuse_histogram(["x"])[:4], [1 / 3, 1 / 3, 1 / 3, 0.0])
        # Together 1 occurs four times and 9 twice.
        self.assertEqual(found.reuse_histogram(["x", "y"])[:4], [1 / 4, 2 / 4, 1 / 4, 0.0])
        twice = statistics([batch, batch])
        self.assertEqual((twice.samples, twice.pooling_factor("x"), twice.reuse_histogram(["x"])[:4]), (6, 2.0, [0.0, 1 / 3, 1 / 3, 1 / 3]))
        with self.assertRaisesRegex(ValueError, "no samples"):
            statistics([])
        with self.assertRaisesRegex(ValueError, "'z'"):
            found.pooling_factor("z")

        model = Model(ebc=bags(bag("a", feature_names=["x", "y"])))
        table = self.request(model, statistics=found).tables[0]
        self.assertEqual((list(table.pooling_factors), list(table.reuse_histogram)[:3]), ([2.0, 1.0], [1 / 4, 2 / 4, 1 / 4]))
        self.assertFalse(table.hot_row_blocks)
        self.assertTrue(self.request(model, statistics=found, hot_row_blocks=True).tables[0].hot_row_blocks)
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.a", "f_a"):
            make(statistics=found).plan(small_model(), get_default_sharders())


class PlansTest(Case):
    def test_options_have_torchrecs_estimates(self):
        planner = make()
        self.assertEqual(planner.get_selected_options(), [])
        plan = planner.plan(small_model(), get_default_sharders())
        options = planner.get_selected_options()
        self.assertEqual({option.name for option in options}, set(plan.plan["ebc"]))
        for option in options:
            self.assertEqual(option.sharding_type, plan.plan["ebc"][option.name].sharding_type)
            self.assertTrue(all(shard.perf.total > 0 and shard.storage.hbm > 0 for shard in option.shards))
        self.assertGreater(planner.response.cost.embedding_cost_ms, 0)

    def test_the_plan_is_the_services(self):
        planner = make(constraints={"a": ParameterConstraints(sharding_types=["data_parallel"])})
        plan = planner.plan(small_model(), get_default_sharders())
        self.assertEqual(from_sharding_plan(plan), from_message(planner.response.plan))
        devices = [str(shard.placement) for tables in plan.plan.values() for p in tables.values() if p.sharding_spec for shard in p.sharding_spec.shards]
        self.assertTrue(devices)
        self.assertEqual([place for place in devices if not re.match(r"rank:(0/cuda:0|1/cuda:1|2/cuda:0|3/cuda:1)$", place)], [])

    def test_every_type_has_estimates_and_torchrecs_own_form(self):
        for kind in ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"):
            constraints = {name: ParameterConstraints(sharding_types=[kind]) for name in "abc"}
            planner = make(constraints=constraints)
            plan = planner.plan(small_model(), get_default_sharders())
            self.assertEqual({parameter.sharding_type for parameter in plan.plan["ebc"].values()}, {kind})
            theirs = EmbeddingShardingPlanner(topology=gpus(), batch_size=128, constraints=constraints, storage_reservation=FREE, debug=False, stats=[])
            expected = theirs.plan(small_model(), get_default_sharders()).plan["ebc"]["a"]
            found = plan.plan["ebc"]["a"]
            self.assertEqual((found.compute_kernel, type(found.sharding_spec)), (expected.compute_kernel, type(expected.sharding_spec)))
            if kind in ("row_wise", "data_parallel"):  # leave no choice
                self.assertEqual(found, expected)

    def test_kernels_and_load_factors_are_the_plans(self):
        def offload(response):
            for table in response.plan.tables:
                if table.name != "c":
                    table.compute_kernel = "fused_uvm_caching" if table.name == "a" else "fused_uvm"
                if table.name == "a":
                    table.cache_load_factor = 0.375

        constraints = {
            "a": ParameterConstraints(sharding_types=["row_wise"], cache_params=CacheParams(algorithm=CacheAlgorithm.LFU, load_factor=0.5)),
            "b": ParameterConstraints(sharding_types=["table_wise"]),
            "c": ParameterConstraints(sharding_types=["table_wise"], cache_params=CacheParams(load_factor=0.5)),
        }
        with relay(offload) as (address, _):
            planner = make(address, constraints=constraints)
            plan = planner.plan(small_model(), get_default_sharders())
        a, b, c = (plan.plan["ebc"][name] for name in "abc")
        self.assertEqual((a.compute_kernel, a.cache_params), ("fused_uvm_caching", CacheParams(algorithm=CacheAlgorithm.LFU, load_factor=0.375)))
        self.assertEqual((b.compute_kernel, b.cache_params), ("fused_uvm", None))
        self.assertEqual((c.compute_kernel, c.cache_params), ("fused", CacheParams(load_factor=0.5)))
        self.assertEqual(constraints["a"].cache_params.load_factor, 0.5)
        caches = [(group.rank, group.tables, group.load_factor, group.cache_bytes) for group in planner.groups if group.cache_bytes]
        self.assertEqual(caches, [(rank, ("a",), 0.375, 96 * 64 * 4) for rank in range(4)])  # 93.75 rows in sets of 32
        a, b, c = (next(option for option in planner.get_selected_options() if option.name == name) for name in "abc")
        self.assertEqual([shard.storage.ddr for shard in a.shards], [250 * 64 * 4] * 4)
        self.assertEqual([shard.storage.ddr for option in (b, c) for shard in option.shards], [2000 * 64 * 4, 0])

        with tempfile.TemporaryDirectory() as folder:
            save_plan(plan, f"{folder}/plan.json")
            self.assertEqual(load_plan(f"{folder}/plan.json", small_model(), gpus(), constraints=constraints), plan)
            previous = self.request(small_model(), constraints=constraints, previous=f"{folder}/plan.json").migration.previous
            with open(f"{folder}/plan.json", encoding="utf-8") as file:
                text = file.read()
            for change, part in (("1.5", "cache_load_factor is 1.5"), ("0", "cache_load_factor is 0"), ('"x"', "cache_load_factor is not a number")):
                with open(f"{folder}/plan.json", "w", encoding="utf-8") as file:
                    file.write(text.replace("0.375", change))
                with self.assertRaisesRegex(PlannerError, part):
                    load_plan(f"{folder}/plan.json", small_model(), gpus())
        found = {table.name: (table.compute_kernel, table.HasField("cache_load_factor") and table.cache_load_factor) for table in previous.tables}
        self.assertEqual(found, {"a": ("fused_uvm_caching", 0.375), "b": ("fused_uvm", False), "c": ("fused", False)})

        only_fused = {name: ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"]) for name in "abc"}
        with relay(offload) as (address, _), self.refused(PlannerErrorType.INVALID_RANK_ASSIGNMENT, "ebc.a: fused_uvm_caching is not one of fused"):
            make(address, constraints=only_fused).plan(small_model(), get_default_sharders())

        def stray(response):
            response.plan.tables[0].cache_load_factor = 0.5

        with relay(stray) as (address, _), self.refused(PlannerErrorType.INVALID_RANK_ASSIGNMENT, "'fused', which has no cache"):
            make(address, constraints=only_fused).plan(small_model(), get_default_sharders())

    def test_plans_that_lack_tables_or_do_not_tile_them_are_refused(self):
        def drop(response):
            del response.plan.tables[0]

        def move(response):
            response.plan.tables[0].shards[0].row_offset += 1

        def shrink(response):
            response.plan.tables[0].shards[0].cols -= 4

        def away(response):
            response.plan.tables[0].shards[0].rank = 4

        def rename(response):
            response.plan.tables[0].name = "z"

        def double(response):
            response.plan.tables.add().CopyFrom(response.plan.tables[0])

        def retype(response):
            response.plan.tables[0].sharding_type = "row_wise"

        for tamper, part in ((drop, "lacks ebc."), (move, "do not tile"), (shrink, "do not tile"), (away, "rank 4"), (rename, "z, which the module"),
                             (double, "twice"), (retype, "row_wise has a block of rows on every rank")):  # fmt: skip
            constraints = {name: ParameterConstraints(sharding_types=["table_wise"]) for name in "abc"}
            with relay(tamper) as (address, _), self.assertRaises(PlannerError) as caught:
                make(address, constraints=constraints).plan(small_model(), get_default_sharders())
            self.assertIn(part, str(caught.exception), tamper)

    def test_errors_of_the_service_have_torchrecs_types(self):
        with self.refused(PlannerErrorType.INSUFFICIENT_STORAGE, "no plan can exist"):
            make(topology=gpus(hbm_cap=100_000, ddr_cap=0)).plan(small_model(), get_default_sharders())
        pinned = {"constraints": {"tables": [{"tables": ["a"], "ranks": [0]}, {"tables": ["a"], "forbidden_ranks": [0]}]}}
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "a"):
            make(request=pinned).plan(small_model(), get_default_sharders())
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "search.beam_width"):
            make(request={"search": {"beam_width": 1000}}).plan(small_model(), get_default_sharders())
        with self.refused(PlannerErrorType.OTHER, "no-such-model"):
            make(request={"cost_model": {"name": "no-such-model"}}).plan(small_model(), get_default_sharders())

    def test_words_that_torchrec_does_not_have_are_named_with_those_that_were_meant(self):
        for field, word, meant in (
            ("sharding_types", "colum_wise", "column_wise"), ("sharding_types", "ShardingType.ROW_WISE", "row_wise"), ("sharding_types", "tw", "table_wise"),
            ("compute_kernels", "uvm_caching", "fused_uvm_caching"), ("compute_kernels", "FUSED", "fused"),
        ):  # fmt: skip
            with self.refused(PlannerErrorType.INPUT_VALIDATION, f"constraints for a: {field} has {word!r}", f"did you mean {meant}?"):
                make(constraints={"a": ParameterConstraints(**{field: [word]})}).plan(small_model(), get_default_sharders())
        for request, meant in (
            ({"search": {"steps": 9}}, "search.steps: unknown field; did you mean refine_steps?"),
            ({"optimizer": "EXACT_SGD"}, "did you mean sgd?"),
            ({"constraints": {"sharding_types": ["columwise"]}}, "did you mean column_wise?"),
        ):
            with self.assertRaisesRegex(Exception, re.escape(meant)):
                make(request=request).plan(small_model(), get_default_sharders())
        for address in ("localhost", "planner:http"):
            with self.assertRaisesRegex(ValueError, "must be HOST:PORT"):
                make(address)

    def test_plans_stand_beside_each_other(self):
        planner = make()
        with self.assertRaisesRegex(PlannerError, "nothing was planned yet"):
            planner.evaluate(ShardingPlan({}))
        own = planner.plan(small_model(), get_default_sharders())
        theirs = EmbeddingShardingPlanner(topology=gpus(), batch_size=128, storage_reservation=FREE, debug=False, stats=[])
        both = planner.compare(theirs)
        self.assertEqual([costs.name for costs in both.plans], ["NeuroShardPlanner", "EmbeddingShardingPlanner"])
        self.assertAlmostEqual(both.plans[0].cost_ms, planner.response.cost.embedding_cost_ms, places=9)
        estimates = [float(NoopPerfModel(gpus()).rate(each.get_selected_options())) for each in (planner, theirs)]
        for costs, estimate_ms in zip(both.plans, estimates):
            self.assertAlmostEqual(costs.estimate_ms, estimate_ms, places=9)
            self.assertAlmostEqual(costs.cost_ms, estimate_ms, delta=1e-4 * estimate_ms)  # by formulas
            self.assertEqual(costs.violations, [])
            self.assertTrue(0 < costs.memory_share < 1)
        self.assertGreater(both.moved_bytes, 0)
        self.assertRegex(str(both), r"plan +ms by analytic/1 +ms by TorchRec[^\n]*\nNeuroShardPlanner +[0-9.]+ +[0-9.]+ +\d+%\nEmbeddingShardingPlanner ")
        self.assertEqual(planner.compare(own).moved_bytes, 0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            save_plan(own, path)
            (alone,) = planner.evaluate(path).plans
            self.assertEqual(alone.cost_ms, both.plans[0].cost_ms)
            # Of another module: what is missing is named, and nothing is priced that is not there.
            (other,) = planner.evaluate(path, Model(ebc=bags(bag("a"), bag("d"))), get_default_sharders()).plans
        self.assertTrue(any("d" in fault for fault in other.violations), other)

    def test_a_plan_says_in_a_line_what_was_asked_and_done(self):
        def offload(response):
            response.plan.tables[0].compute_kernel = "fused_uvm"

        types = {name: ParameterConstraints(sharding_types=["table_wise"]) for name in "abc"}
        with tempfile.TemporaryDirectory() as folder, relay(offload) as (address, service):
            lines = []
            for _ in range(2):
                planner = make(address, constraints=types, cache_dir=folder)
                self.assertEqual(planner.summary, "")
                with self.assertLogs("neuroshard.torchrec", logging.INFO) as logged:
                    planner.plan(small_model(), get_default_sharders())
                self.assertIn(planner.summary, [record.getMessage() for record in logged.records])
                lines.append(planner.summary)
                cost = f"{planner.response.cost.embedding_cost_ms:.3f} ms" if planner.response else cost
                model = planner.response.cost_model if planner.response else model
                bound = planner.response.lower_bound if planner.response else bound
            self.assertEqual(service.calls.count("ShardPlan"), 1)
        # Whole tables, where four ranks could share them.
        self.assertTrue(all(rule.path.endswith(".sharding_types") for rule in bound.limit.rules) and bound.limit.rules, bound)
        held = f" (lower bound {bound.cost_ms:.4g} ms, {bound.limit.bound_without_ms:.4g} without {' and '.join(rule.path for rule in bound.limit.rules)})"
        moved = service.requests[0].tables[0].name  # the service answers in the request's order
        for line, origin in zip(lines, (f"{held}, from the service", ", from the cache")):
            self.assertEqual(
                line,
                f"plan of 3 tables on 4 ranks (cuda), batch 128 a rank and 512 in all: {cost} by cost model {model.name} version {model.version}{origin}; "
                f"1 table in host memory: ebc.{moved}",
            )

    def test_unreachable_planners_come_with_what_helps(self):
        with nobody() as address:
            with self.refused(PlannerErrorType.OTHER, "nothing listens there (Connection refused)", "cache_dir= keeps plans", "fallback= is a planner"):
                make(address, retries=0).plan(small_model(), get_default_sharders())
            with tempfile.TemporaryDirectory() as folder, self.refused(PlannerErrorType.OTHER, "cache_dir has no plan for this request yet"):
                make(address, retries=0, cache_dir=folder).plan(small_model(), get_default_sharders())
        with PlannerProcess(PLANNER) as planner, self.refused(PlannerErrorType.OTHER, "speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps"):
            make(planner.metrics_address, retries=0).plan(small_model(), get_default_sharders())

    def test_unreachable_silent_and_draining_planners(self):
        with nobody() as address, self.refused(PlannerErrorType.OTHER, address):
            make(address, retries=1, timeout_s=5).plan(small_model(), get_default_sharders())
        with silence() as address, self.refused(PlannerErrorType.OTHER, address):
            make(address, timeout_s=1, retries=0).plan(small_model(), get_default_sharders())
        with PlannerProcess(PLANNER) as draining:
            draining.drain()
            draining.process.wait()
            with self.refused(PlannerErrorType.OTHER, draining.address):
                make(draining.address, retries=0, timeout_s=5).plan(small_model(), get_default_sharders())

    def test_a_fallback_plans_where_the_service_does_not_answer_with_one_warning(self):
        def fallback():
            return EmbeddingShardingPlanner(topology=gpus(), batch_size=128, storage_reservation=FREE, debug=False, stats=[])

        with tempfile.TemporaryDirectory() as folder, nobody() as address, self.assertLogs("neuroshard.torchrec", logging.WARNING) as logged:
            planner = make(address, fallback=fallback(), retries=0, cache_dir=folder)
            plan = planner.plan(small_model(), get_default_sharders())
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual([record.getMessage().count("THE PLAN IS EmbeddingShardingPlanner'S") for record in logged.records], [1])
        self.assertEqual(set(plan.plan["ebc"]), {"a", "b", "c"})
        self.assertEqual(len(planner.get_selected_options()), 3)
        with silence() as address:
            make(address, fallback=fallback(), timeout_s=1).plan(small_model(), get_default_sharders())
        # What the service refuses, it is not asked for.
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "beam_width"):
            make(fallback=fallback(), request={"search": {"beam_width": 1000}}).plan(small_model(), get_default_sharders())

    def test_a_previous_plan_keeps_data_parallel_tables_apart_from_sharded_ones(self):
        constraints = {"a": ParameterConstraints(sharding_types=["data_parallel"]), "b": ParameterConstraints(sharding_types=["row_wise"])}
        before = make(constraints=constraints).plan(small_model(), get_default_sharders())
        with tempfile.TemporaryDirectory() as folder:
            save_plan(before, f"{folder}/before.json")
            for previous in (before, f"{folder}/before.json"):
                analytic = {"cost_model": {"name": "analytic"}, "migration": {"price_ms_per_gib": 2}}
                request = self.request(small_model(), previous=previous, request=analytic)
                types = self.types(request)
                self.assertEqual(types["a"], {"data_parallel"})
                self.assertNotIn("data_parallel", types["b"] | types["c"])
                placed = {table.name: table for table in request.migration.previous.tables}
                self.assertEqual([(shard.rows, shard.cols, shard.rank) for shard in placed["a"].shards], [(1000, 64, rank) for rank in range(4)])
                self.assertEqual([shard.rows for shard in placed["b"].shards], [500] * 4)
                self.assertEqual((request.migration.price_ms_per_gib, request.migration.previous.world_size), (2, 4))
                free = self.request(small_model(), previous=previous, request=analytic, keep_optimizer_state=False)
                self.assertIn("data_parallel", self.types(free)["c"])
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ebc.a", "keep_optimizer_state=False"):
            make(previous=before, constraints={"a": ParameterConstraints(sharding_types=["table_wise"])}).plan(small_model(), get_default_sharders())

    def test_nothing_moves_within_a_budget_of_nothing(self):
        types = {name: ParameterConstraints(sharding_types=["column_wise"]) for name in "abc"}
        before = make(constraints=types).plan(small_model(), get_default_sharders())
        after = make(previous=before, request={"migration": {"budget_bytes": 0}}, constraints=types).plan(small_model(), get_default_sharders())
        self.assertEqual(from_sharding_plan(after), from_sharding_plan(before))

    def test_two_modules_may_have_tables_of_the_same_name(self):
        model = Model(left=bags(bag("a", 1000)), right=bags(bag("a", 5000, 32), bag("b")))
        plan = make(constraints={"a": ParameterConstraints(sharding_types=["row_wise"])}).plan(model, get_default_sharders())
        rows = {path: [shard.shard_sizes for shard in plan.plan[path]["a"].sharding_spec.shards] for path in plan.plan}
        self.assertEqual(rows, {"left": [[250, 64]] * 4, "right": [[1250, 32]] * 4})


class EstimatesTest(Case):
    """The service's price of its plan is that of TorchRec's estimators, and its memory too, whatever the modules, constraints and sharders say."""

    ANALYTIC = {"cost_model": {"name": "analytic"}}

    def agree(self, model, sharders=None, topology=None, batch_size=64, kernel=None, load_factor=0.375, **more):
        """The plan, whose cost and bytes TorchRec's estimators and the service agree about. `kernel`: given to all tables, and priced with EvaluatePlan."""
        topology = topology or gpus()

        def give(response):
            for table in response.plan.tables if kernel else []:
                table.compute_kernel = kernel
                if kernel == "fused_uvm_caching":
                    table.cache_load_factor = load_factor
            with neuroshard.PlannerClient(ADDRESS) as client:
                found = client.evaluate(service.requests[-1], response.plan)
            self.assertEqual(list(found.violations), [])
            response.cost.CopyFrom(found.cost)

        with relay(give) as (address, service):
            planner = make(address, topology=topology, batch_size=batch_size, request=self.ANALYTIC, **more)
            plan = planner.plan(model, sharders or get_default_sharders())
        options, cost = planner.get_selected_options(), planner.response.cost
        self.assertAlmostEqual(cost.embedding_cost_ms / NoopPerfModel(topology).rate(options), 1, delta=1e-5)
        hbm, ddr, ssd = ([0] * topology.world_size for _ in range(3))
        for option in options:
            for shard in option.shards:
                hbm[shard.rank] += shard.storage.hbm
                ddr[shard.rank] += shard.storage.ddr
                ssd[shard.rank] += shard.storage.ssd
        memory = [rank.memory for rank in cost.ranks]
        self.assertEqual([each.host_total_bytes for each in memory], ddr)
        self.assertEqual([each.ssd_total_bytes for each in memory], ssd)
        self.assertEqual([each.total_bytes - each.reserve_bytes for each in memory], hbm)
        return plan

    def model(self, **more):
        return Model(ebc=bags(*(bag(f"t{index}", 1000 * (index + 1), 32 << index % 3, **more) for index in range(6))))

    def constrain(self, **more):
        return {f"t{index}": ParameterConstraints(**{"pooling_factors": [3.0 + index], **more}) for index in range(6)}

    def test_bags_and_batches_by_feature(self):
        self.agree(self.model(), constraints=self.constrain(num_poolings=[2.0]))
        self.agree(self.model(), constraints=self.constrain(num_poolings=[2.0], batch_sizes=[16]))
        self.agree(self.model(), constraints=self.constrain(batch_sizes=[256], pooling_factors=[0.25]))
        shared = Model(ebc=bags(bag("t0", feature_names=["x", "y"]), bag("t1", 5000)))
        constraints = {"t0": ParameterConstraints(pooling_factors=[3.0, 8.0], num_poolings=[2.0, 1.0], batch_sizes=[64, 16])}
        self.agree(shared, constraints=constraints)

    def test_plain(self):
        self.agree(self.model(), constraints=self.constrain())

    def test_kernels_with_rows_in_host_memory(self):
        for kernel in ("fused_uvm", "fused_uvm_caching"):
            for kind in ("table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"):
                with self.subTest(kernel=kernel, kind=kind):
                    plan = self.agree(self.model(), constraints=self.constrain(sharding_types=[kind]), kernel=kernel)
                    self.assertEqual({(each.compute_kernel, each.sharding_type) for each in plan.plan["ebc"].values()}, {(kernel, kind)})

    def test_rows_on_ssd(self):
        # TorchRec's storage estimator takes the cache's share from the sharder alone.
        sharders = [EmbeddingBagCollectionSharder(fused_params={"cache_load_factor": 0.375})]
        for kind in ("table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"):
            for params in (None, KeyValueParams(max_l1_cache_size=1, l2_cache_size=1, ssd_storage_directory="/ssd")):
                with self.subTest(kind=kind, params=params):
                    constraints = self.constrain(sharding_types=[kind], compute_kernels=["key_value"], key_value_params=params)
                    plan = self.agree(self.model(), sharders, constraints=constraints)
                    for name, each in plan.plan["ebc"].items():
                        self.assertEqual((each.compute_kernel, each.sharding_type, each.key_value_params), ("key_value", kind, params), name)
                        self.assertEqual(each.cache_params, CacheParams(load_factor=0.375))

    def test_types_of_weights_outputs_and_exchanges(self):
        self.agree(self.model(data_type=DataType.FP16), constraints=self.constrain())
        self.agree(self.model(), constraints=self.constrain(output_dtype=DataType.FP16))
        for forward, backward in ((CommType.FP16, CommType.BF16), (CommType.INT8, CommType.FP16), (CommType.FP8, CommType.FP8)):
            registry = get_qcomm_codecs_registry(QCommsConfig(forward_precision=forward, backward_precision=backward))
            for kind in ("table_wise", "row_wise", "table_row_wise"):
                with self.subTest(forward=forward, backward=backward, kind=kind):
                    self.agree(self.model(), [EmbeddingBagCollectionSharder(qcomm_codecs_registry=registry)], constraints=self.constrain(sharding_types=[kind]))

    def test_pipelines(self):
        for pipeline in (PipelineType.TRAIN_SPARSE_DIST, PipelineType.TRAIN_PREFETCH_SPARSE_DIST):
            for kernel in ("fused", "fused_uvm_caching"):
                cache = CacheParams(prefetch_pipeline=pipeline == PipelineType.TRAIN_PREFETCH_SPARSE_DIST)
                constraints = self.constrain(sharding_types=["table_wise"], cache_params=cache)
                estimators = [EmbeddingPerfEstimator(gpus(), constraints), EmbeddingStorageEstimator(gpus(), constraints, pipeline)]
                with self.subTest(pipeline=pipeline, kernel=kernel):
                    self.agree(self.model(), constraints=constraints, kernel=kernel, enumerator=EmbeddingEnumerator(gpus(), 64, constraints, estimators))

    def test_unpooled_tables(self):
        model = Model(
            ec=EmbeddingCollection(
                tables=[EmbeddingConfig(name=f"t{index}", num_embeddings=1000, embedding_dim=64, feature_names=[f"f{index}"]) for index in range(6)],
                device=torch.device("meta"),
            )
        )
        for kind in ("table_wise", "column_wise", "row_wise"):
            with self.subTest(kind=kind):
                self.agree(model, constraints=self.constrain(sharding_types=[kind], min_partition=32))

    def test_optimizers_of_parameters(self):
        import torchrec.optim

        for kind in (torchrec.optim.SGD, torchrec.optim.LarsSGD, torchrec.optim.Adagrad, RowWiseAdagrad, torchrec.optim.Adam, torchrec.optim.PartialRowWiseAdam,
                     torchrec.optim.LAMB):  # fmt: skip
            for kernel in ("fused", "fused_uvm_caching"):
                model = self.model()
                apply_optimizer_in_backward(kind, model.parameters(), {"lr": 0.1})
                with self.subTest(optimizer=kind.__name__, kernel=kernel):
                    self.agree(model, constraints=self.constrain(sharding_types=["row_wise", "column_wise"]), kernel=kernel)


class CacheTest(Case):
    def test_a_restart_asks_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            first = make(cache_dir=folder).plan(small_model(), get_default_sharders())
            with nobody() as address:
                planner = make(address, cache_dir=folder, retries=0)
                self.assertEqual(planner.plan(small_model(), get_default_sharders()), first)
                self.assertIsNone(planner.response)
                self.assertEqual(len(planner.get_selected_options()), 3)
                for change in (
                    {"batch_size": 256},
                    {"optimizer": "adam"},
                    {"topology": gpus(hbm_cap=10 * GIB)},
                    {"request": {"cost_model": {"name": "cpu-amd-epyc", "version": 1}}},
                    {"request": {"search": {"seed": 1}}},
                    {"constraints": {"a": ParameterConstraints(sharding_types=["table_wise"])}},
                ):
                    with self.refused(PlannerErrorType.OTHER, address):
                        make(address, cache_dir=folder, retries=0, **change).plan(small_model(), get_default_sharders())
                # The order of tables and the id of a request are nothing that a plan depends on.
                other_order = Model(ebc=bags(bag("c", 3000, 32), bag("a"), bag("b", 2000)))
                again = make(address, cache_dir=folder, request={"request_id": "restart"}).plan(other_order, get_default_sharders())
                self.assertEqual(from_sharding_plan(again), from_sharding_plan(first))

    def test_a_file_says_which_content_of_a_version_priced_it(self):
        with tempfile.TemporaryDirectory() as folder:
            asked = {"name": "cpu-amd-epyc", "version": 4}
            planner = make(cache_dir=folder, request={"cost_model": asked})
            planner.plan(small_model(), get_default_sharders())
            digest = planner.response.cost_model.digest
            self.assertRegex(digest, "^[0-9a-f]{64}$")
            (file,) = os.listdir(folder)
            with open(os.path.join(folder, file), encoding="utf-8") as content:
                self.assertEqual(json.load(content)["cost_model"], f"cpu-amd-epyc/4@{digest}")
            # A digest in the request is a part of what the plan is for, and has to be there.
            make(cache_dir=folder, request={"cost_model": {**asked, "digest": digest}}).plan(small_model(), get_default_sharders())
            self.assertEqual(len(os.listdir(folder)), 2)
            with self.assertRaisesRegex(PlannerError, "its files were replaced, or this planner has other ones"):
                make(cache_dir=folder, request={"cost_model": {**asked, "digest": "0" * 64}}).plan(small_model(), get_default_sharders())

    def test_what_a_plan_does_not_decide_is_not_cached(self):
        with tempfile.TemporaryDirectory() as folder:
            make(cache_dir=folder).plan(small_model(), get_default_sharders())
            with nobody() as address:
                constraints = {"a": ParameterConstraints(enforce_hbm=True)}
                plan = make(address, cache_dir=folder, constraints=constraints).plan(small_model(), get_default_sharders())
            self.assertTrue(plan.plan["ebc"]["a"].enforce_hbm)

    def test_on_change_fail_says_what_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            make(cache_dir=folder, on_change="fail").plan(small_model(), get_default_sharders())
            make(cache_dir=folder, on_change="fail").plan(small_model(), get_default_sharders())
            bigger = Model(ebc=bags(bag("a", 1500), bag("b", 2000), bag("d", 3000, 32)))
            with self.refused(
                PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH, 'tables.ebc.a.num_embeddings was "1000" and is "1500"', "tables.ebc.c is gone",
                "tables.ebc.d is new",
            ):
                make(cache_dir=folder, on_change="fail").plan(bigger, get_default_sharders())
            make(cache_dir=folder).plan(bigger, get_default_sharders())
        with self.assertRaises(ValueError):
            make(on_change="fail")
        with self.assertRaises(ValueError):
            make(on_change="whatever", cache_dir="x")

    def test_damaged_files_are_planned_again(self):
        with tempfile.TemporaryDirectory() as folder:
            first = make(cache_dir=folder).plan(small_model(), get_default_sharders())
            (name,) = os.listdir(folder)
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            moved = json.loads(text)
            moved["plan"]["ebc"]["b"]["shards"][0]["shard_offsets"][0] += 1
            for damaged in ("", text[: len(text) // 2], text.replace('"plan"', '"plam"'), "[]", json.dumps(moved)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(damaged)
                with self.assertLogs("neuroshard.torchrec", logging.WARNING) as logged:
                    self.assertEqual(make(cache_dir=folder).plan(small_model(), get_default_sharders()), first)
                self.assertIn(path, "".join(logged.output))
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["plan"], json.loads(text)["plan"])
                self.assertEqual(os.listdir(folder), [name])

    def test_a_directory_that_cannot_be_written_costs_the_cache_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/file", "w", encoding="utf-8"):
                pass
            with self.assertLogs("neuroshard.torchrec", logging.WARNING) as logged:
                make(cache_dir=f"{folder}/file/below").plan(small_model(), get_default_sharders())
            self.assertIn("not cached", "".join(logged.output))


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
        command = [CLIENT, "plan", f"{self.folder}/request.json", "--planner", ADDRESS, "--format", "torchrec"]
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
    warnings.filterwarnings("ignore")
    logging.getLogger("torchrec").setLevel(logging.ERROR)
    PLANNER, CLIENT = sys.argv[1:3]
    with PlannerProcess(PLANNER) as process:
        ADDRESS = process.address
        unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
