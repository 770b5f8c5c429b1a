"""What is read from a module: its tables, and the types, kernels, optimizers and options that are left to them.

  module_tables_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import json
import math
import os
import tempfile
import unittest.mock

import torch
from planner_case import FREE, Case, Model, bag, bags, gpus, main, make, relay, small_model
from torch import nn
from torchrec import EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerSharder
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, EmbeddingBagSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner, validate_compute_kernels
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams, DataType, KeyValueParams
from torchrec.modules.embedding_configs import TimestampBasedEvictionPolicy
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import LFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from neuroshard.torchrec import load_plan, save_plan, statistics


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

        given = {"a": ParameterConstraints(cache_params=CacheParams(reserved_memory=1.0)), "c": ParameterConstraints(key_value_params=KeyValueParams(ps_hosts=(("host", 1),), enable_async_update=False))}
        found = told(small_model(), [EmbeddingBagCollectionSharder()], constraints=given)
        self.assertRegex(found, "cache_params.reserved_memory: .* not priced: ebc.a\\b")
        self.assertRegex(found, "key_value_params.ps_hosts: .* not priced: ebc.c\\b")
        self.assertNotIn("enable_async_update", found)
        written = bag("written")
        written.enable_embedding_update = True
        self.assertRegex(told(Model(ebc=bags(written, bag("b"))), [EmbeddingBagCollectionSharder()]), "enable_embedding_update: .* not priced: ebc.written\\b")
        for algorithm, warned in ((CacheAlgorithm.LFU, True), (CacheAlgorithm.LRU, False)):
            cached = {"b": ParameterConstraints(compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(algorithm=algorithm, load_factor=0.5, prefetch_pipeline=True))}
            found = told(small_model(), [EmbeddingBagCollectionSharder()], constraints=cached)
            self.assertEqual("LRU caches alone, and will not train it cached: ebc.b" in found, warned, found)
        for kernel, enforced, warned in (("fused_uvm_caching", True, True), ("fused_uvm", True, True), ("fused_uvm", False, False), ("fused", True, False)):
            hosted = {"b": ParameterConstraints(compute_kernels=[kernel], enforce_hbm=enforced)}
            found = told(small_model(), [EmbeddingBagCollectionSharder()], constraints=hosted)
            self.assertEqual("enforce_hbm: FBGEMM keeps rows that are planned in host memory on the device, beside their cache" in found, warned, found)
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
        self.assertNotIn("on the wire", told([sharder(**half)], {"forward_dtype": "fp16", "backward_dtype": "bf16"}))

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

        # Rebuilt for a rank's rows, whatever they are; TorchRec's planner asks for buckets that come out even.
        sorted_ids = MCHManagedCollisionModule(zch_size=1024, device=torch.device("meta"), eviction_interval=2, eviction_policy=LFU_EvictionPolicy())
        self.assertEqual([rule.row_multiple for rule in self.request(model(sorted_ids), [ManagedCollisionEmbeddingBagCollectionSharder()]).constraints.tables], [0])
        few = HashZchManagedCollisionModule(zch_size=1024, device=torch.device("meta"), total_num_buckets=2)
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "mc.a", "1024 rows in 2 buckets, which TorchRec does not spread over 4 ranks"):
            make().plan(model(few), [ManagedCollisionEmbeddingBagCollectionSharder()])
        uneven = HashZchManagedCollisionModule(zch_size=1024, device=torch.device("meta"), total_num_buckets=8)
        with relay() as (address, service):
            plan = make(address, topology=gpus(3, 3)).plan(model(uneven), [ManagedCollisionEmbeddingBagCollectionSharder()])
        self.assertEqual([rule.row_multiple for rule in service.requests[0].constraints.tables], [128])
        theirs = EmbeddingShardingPlanner(topology=gpus(3, 3), batch_size=128, storage_reservation=FREE, debug=False, stats=[])
        with unittest.mock.patch("torch._utils_internal.justknobs_check", return_value=True):  # without it TorchRec's planner refuses them
            expected = theirs.plan(model(uneven), [ManagedCollisionEmbeddingBagCollectionSharder()])
        for each in (plan, expected):
            self.assertEqual([shard.shard_sizes[0] for shard in each.plan["mc"]["a"].sharding_spec.shards], [3 * 128, 3 * 128, 2 * 128])
        policy = HashZchManagedCollisionModule(zch_size=1024, device=torch.device("meta"), total_num_buckets=4)
        request = self.request(model(policy), [ManagedCollisionEmbeddingBagCollectionSharder()])
        beside = sum(each.numel() * each.element_size() for each in policy.buffers())
        self.assertGreaterEqual(request.tables[0].extra_bytes_per_row, 8)
        self.assertEqual(request.tables[0].extra_bytes_per_row, -(-beside // 1024))
        self.assertEqual(self.types(request)["a"], {"row_wise"})

    def test_virtual_tables_take_the_rows_that_they_hold(self):
        rows = 1 << 50  # ids that there may be
        virtual = {"use_virtual_table": True, "total_num_buckets": 6}
        limits = {"sharding_types": ["row_wise", "table_wise"], "use_virtual_table": True}

        def planned(kernel, policy=None, **more):
            config = bag("a", rows * 6, 64, virtual_table_eviction_policy=policy, **virtual)
            constraints = {"a": ParameterConstraints(compute_kernels=[kernel], key_value_params=KeyValueParams(max_l1_cache_size=1), **limits)}
            with relay() as (address, service), tempfile.TemporaryDirectory() as folder:
                planner = make(address, constraints=constraints, cache_dir=folder, **more)
                model = Model(ebc=bags(config, bag("b", 2000)))
                plan, response = planner.plan(model, get_default_sharders()), planner.response
                again = planner.plan(model, get_default_sharders())
                save_plan(plan, f"{folder}/plan.json")
                loaded = load_plan(f"{folder}/plan.json", model, gpus(), constraints=constraints)
                planner.evaluate(f"{folder}/plan.json")
            for each in (again, loaded):
                self.assertEqual(str(each.plan["ebc"]["a"].sharding_spec), str(plan.plan["ebc"]["a"].sharding_spec))
            return response, plan.plan["ebc"]["a"], service.requests[0]

        for kernel, word in (("dram_virtual_table", "fused_uvm_caching"), ("ssd_virtual_table", "key_value")):
            policy = TimestampBasedEvictionPolicy(training_id_eviction_trigger_count=250_000)
            for held, more in ((1_000_002, {"policy": policy}), (600_000, {"policy": policy, "held_rows": {"a": 600_000}})):
                response, found, request = planned(kernel, **more)
                table = self.tables(request)["ebc", "a"]
                self.assertEqual((table.num_embeddings, table.extra_bytes_per_row), (held, 16))
                (rule,) = (rule for rule in request.constraints.tables if "ebc.a" in rule.tables)
                self.assertEqual((list(rule.sharding_types), list(rule.compute_kernels), rule.row_multiple), (["row_wise"], [word], held // 6))
                self.assertEqual((found.sharding_type, found.compute_kernel), ("row_wise", kernel))
                # Six buckets on four ranks, as TorchRec cuts them.
                self.assertEqual([shard.shard_sizes[0] for shard in found.sharding_spec.shards], [2 * rows, 2 * rows, rows, rows])
                self.assertEqual([shard.shard_offsets[0] for shard in found.sharding_spec.shards], [0, 2 * rows, 4 * rows, 5 * rows])
                if word == "key_value":
                    self.assertEqual(table.max_l1_cache_bytes, 1 << 20)
                else:  # a MiB on each of four ranks
                    self.assertAlmostEqual(rule.cache_load_factor, (4 << 20) / (held * 64 * 4))
                    in_host_memory = sum(use.total_bytes for use in response.cost.host_memory)
                    self.assertAlmostEqual(in_host_memory / (held * (64 * 4 + 16)), 1, delta=0.01)
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.a: may hold 6755399441055744 rows", "held_rows={'a': ...}"):
            planned("dram_virtual_table")
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ebc.a", "row_wise with fused", "virtual tables (use_virtual_table), and no others, are row_wise with ssd_virtual_table or dram_virtual_table"):
            planned("fused", held_rows={"a": 6})
        alone = Model(ebc=bags(bag("a", 1000, 64, use_virtual_table=True)))
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.a: is a virtual table (use_virtual_table) without total_num_buckets"):
            make(constraints={"a": ParameterConstraints(compute_kernels=["dram_virtual_table"], **limits)}).plan(alone, get_default_sharders())
        with self.assertRaisesRegex(ValueError, "held_rows\\['a'\\]: must be at least 1, got 0"):
            make(held_rows={"a": 0})

    def test_dynamic_tables_have_their_modes_chosen_and_told_to_dynamicemb(self):
        class DynamicEmbConstraints(ParameterConstraints):  # as DynamicEmb's, which is not installed here
            use_dynamicemb = True

        constraints = {name: DynamicEmbConstraints(sharding_types=["row_wise"], compute_kernels=["customized_kernel"]) for name in "ab"}
        model = Model(ebc=bags(bag("a", 400_000, 64), bag("b", 800_000, 32), bag("c", 300_000, 32)))
        apply_optimizer_in_backward(torch.optim.Adam, model.parameters(), {"lr": 0.1})
        topology = {"hbm_cap": 48 << 20, "ddr_cap": 1 << 30}
        with relay() as (address, service), tempfile.TemporaryDirectory() as folder:
            planner = make(address, topology=gpus(**topology), constraints=constraints, cache_dir=folder)
            plan, response = planner.plan(model, get_default_sharders()), planner.response
            again = planner.plan(model, get_default_sharders())
            save_plan(plan, f"{folder}/plan.json")
            loaded = load_plan(f"{folder}/plan.json", model, gpus(), constraints=constraints)
            compared = planner.compare(f"{folder}/plan.json")
        self.assertEqual(len(service.requests), 1)
        self.assertEqual(compared.moved_bytes, 0)
        request, found = service.requests[0], {table.name: table for table in response.plan.tables}
        rules = {name: rule for rule in request.constraints.tables for name in rule.tables}
        shares = {"a": 64 * 3 * 4, "b": 32 * 3 * 4}  # bytes of values with Adam's state
        for name, value in shares.items():
            self.assertEqual((list(rules[f"ebc.{name}"].sharding_types), list(rules[f"ebc.{name}"].compute_kernels)), (["row_wise"], ["dynamic_hybrid", "dynamic_caching"]))
            self.assertIn(found[name].compute_kernel, ("dynamic_hybrid", "dynamic_caching"))
            for each in (plan, again, loaded):
                parameter = each.plan["ebc"][name]
                self.assertEqual((parameter.sharding_type, parameter.compute_kernel), ("row_wise", "customized_kernel"))
                self.assertEqual(parameter.cache_params.load_factor, found[name].cache_load_factor)
                local = math.ceil(found[name].shards[0].rows * (value * found[name].cache_load_factor))  # rows in sixteens, values in 16 bytes
                self.assertEqual(parameter.dynamicemb_options["caching"], found[name].compute_kernel == "dynamic_caching")
                self.assertEqual(parameter.dynamicemb_options["global_hbm_for_values"], 4 * local)
        self.assertLess(min(found[name].cache_load_factor for name in "ab"), 1)
        self.assertFalse(hasattr(plan.plan["ebc"]["c"], "dynamicemb_options"))
        # One of the modes, by a word for all customized kernels.
        class Sharder(EmbeddingBagCollectionSharder):
            def compute_kernels(self, sharding_type, compute_device_type):
                return ["customized_kernel"] if sharding_type != "data_parallel" else ["dense"]

        customized = {name: ParameterConstraints(compute_kernels=["customized_kernel"]) for name in "abc"}
        with relay() as (address, service):
            plan = make(address, constraints=customized, kernels={"customized_kernel": "dynamic_caching"}).plan(small_model(), [Sharder()])
        self.assertEqual([list(rule.compute_kernels) for rule in service.requests[0].constraints.tables], [["dynamic_caching"]])
        self.assertTrue(all(each.dynamicemb_options["caching"] for each in plan.plan["ebc"].values()))

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
        request = self.request(small_model(), [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.PARTIAL_ROWWISE_LAMB})])
        self.assertEqual(request.optimizer, "partial_rowwise_adam")

    def test_tables_may_have_optimizers_of_their_own(self):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType

        model = small_model()
        apply_optimizer_in_backward(RowWiseAdagrad, model.ebc.embedding_bags["b"].parameters(), {"lr": 0.1})
        apply_optimizer_in_backward(torch.optim.Adam, model.ebc.embedding_bags["c"].parameters(), {"lr": 0.1})
        with relay() as (address, service):
            planner = make(address)
            planner.plan(model, get_default_sharders())
        (request,) = service.requests
        self.assertEqual({table.name: table.optimizer for table in request.tables}, {"a": "sgd", "b": "", "c": "adam"})
        self.assertEqual(request.optimizer, "rowwise_adagrad")  # of most weights
        told = "\n".join(planner.response.warnings)
        self.assertIn("optimizer EXACT_SGD; times are those of rowwise_adagrad, which most weights have: ebc.a", told)
        self.assertNotIn("ebc.b\n", told.replace("ebc.a, ebc.b", ""))
        fuller = {use.rank: use.memory.optimizer_bytes for use in planner.response.cost.ranks}
        self.assertGreaterEqual(sum(fuller.values()), 2 * 4 * 3000 * 32)

        others = [EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.ENSEMBLE_ROWWISE_ADAGRAD})]
        with relay() as (address, service):
            planner = make(address)
            planner.plan(small_model(), others)
        self.assertEqual(service.requests[0].optimizer, "adam")
        self.assertIn("ENSEMBLE_ROWWISE_ADAGRAD, which the service does not know: its state is counted as adam's", "\n".join(planner.response.warnings))

    def test_what_has_no_place_in_a_plan_is_refused_with_its_name(self):
        kind = PlannerErrorType.INPUT_VALIDATION
        sharders = get_default_sharders()
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
        with self.refused(kind, "constraints for a: sharding_types has 'no_such_type', which TorchRec does not have"):
            make(constraints={"a": ParameterConstraints(sharding_types=["no_such_type"])}).plan(small_model(), sharders)
        unpooled = Model(ec=EmbeddingCollection(tables=[EmbeddingConfig(name="s", num_embeddings=400, embedding_dim=8, feature_names=["z"])]))
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ec.s", "which unpooled tables cannot be"):
            make(constraints={"s": ParameterConstraints(sharding_types=["data_parallel"])}).plan(unpooled, sharders)

    def test_what_torchrec_passes_over_or_counts_otherwise_is_planned_and_told(self):
        def told(model, sharders=None, **more):
            with relay() as (address, service), self.assertLogs("neuroshard.torchrec.planner", "WARNING") as logs:
                planner = make(address, **more)
                plan = planner.plan(model, get_default_sharders() if sharders is None else sharders)
            found = "\n".join(logs.output)
            if planner.response is not None:
                self.assertLessEqual(set(planner.response.warnings), {line.split(":", 2)[2] for line in logs.output})
            return plan, found, service.requests

        plan, found, requests = told(nn.Linear(2, 2))
        self.assertEqual((plan.plan, requests), ({}, []))
        self.assertRegex(found, "no tables that the sharders shard .*: the plan is empty")
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "no tables"):
            make().evaluate(plan, nn.Linear(2, 2), get_default_sharders())
        plan, found, _ = told(small_model(), [EmbeddingCollectionSharder()])
        self.assertEqual(plan.plan, {})
        self.assertIn("without a sharder: ebc", found)

        _, found, _ = told(small_model(), constraints={"nope": ParameterConstraints(), "a": ParameterConstraints(sharding_types=["table_wise", "colum_wise"])})
        self.assertIn("constraints for nope: the module has no such table", found)
        self.assertIn("sharding_types has 'colum_wise', which TorchRec does not have; did you mean", found)

        plan, found, requests = told(small_model(), constraints={"a": ParameterConstraints(device_group="cpu")})
        self.assertEqual((set(plan.plan["ebc"]), [table.name for table in requests[0].tables]), ({"b", "c"}, ["b", "c"]))
        self.assertIn("not in the plan: ebc.a", found)

        _, found, requests = told(Model(ebc=bags(bag("a"), bag("b", data_type=DataType.INT4))), constraints={"a": ParameterConstraints(output_dtype=DataType.INT2)})
        self.assertEqual([(table.weight_dtype, table.output_dtype) for table in requests[0].tables], [("fp32", "int2"), ("int8", "")])
        self.assertIn("weights of INT4 counted as int8: ebc.b", found)
        self.assertNotIn("output_dtype", found)

        _, found, requests = told(small_model(), constraints={"a": ParameterConstraints(pooling_factors=[1.0, 2.0])})
        a = self.tables(requests[0])["ebc", "a"]
        self.assertEqual((list(a.pooling_factors), list(a.features)), ([1.0, 2.0], ["f_a", "a[1]"]))
        self.assertIn("2 pooling_factors for 1 features", found)
        _, found, requests = told(small_model(), constraints={"a": ParameterConstraints(feature_names=["q", "q"])})
        self.assertEqual(list(self.tables(requests[0])["ebc", "a"].features), ["q", "a[1]"])
        unpooled = Model(ec=EmbeddingCollection(tables=[EmbeddingConfig(name="s", num_embeddings=400, embedding_dim=8, feature_names=["z"])]))
        _, found, requests = told(unpooled, constraints={"s": ParameterConstraints(is_weighted=True)})
        self.assertFalse(requests[0].tables[0].weighted)
        self.assertIn("is_weighted: the weights of ids of an unpooled table are not priced: ec.s", found)
        _, found, requests = told(small_model(), constraints={"a": ParameterConstraints(cache_params=CacheParams(load_factor=1.5))})
        self.assertEqual([rule.cache_load_factor for rule in requests[0].constraints.tables if "ebc.a" in rule.tables], [1.0])
        # FBGEMM has rows on SSD in fp32 and fp16.
        narrow = Model(ebc=bags(bag("a", data_type=DataType.BF16)))
        _, found, requests = told(narrow, constraints={"a": ParameterConstraints(compute_kernels=["fused", "key_value"])})
        self.assertFalse(any(rule.compute_kernels for rule in requests[0].constraints.tables) or requests[0].topology.hosts[0].ssd_bytes)
        _, found, requests = told(Model(ebc=bags(bag("a", feature_names=["x", "y"]))), constraints={"a": ParameterConstraints(pooling_factors=[3.0], num_poolings=[2.0])})
        a = self.tables(requests[0])["ebc", "a"]
        self.assertEqual((list(a.pooling_factors), list(a.num_poolings), list(a.features)), ([3.0, 3.0], [2.0, 2.0], ["x", "y"]))

    def test_kernels_that_the_service_does_not_know_are_priced_as_others_and_named_in_the_plan(self):
        class Sharder(EmbeddingBagCollectionSharder):
            def compute_kernels(self, sharding_type, compute_device_type):
                return ["customized_kernel"] if sharding_type != "data_parallel" else ["dense"]

        constraints = {name: ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["customized_kernel"]) for name in "abc"}
        for kernels, word, demanded in ((None, "fused", []), ({"customized_kernel": "fused_uvm_caching"}, "fused_uvm_caching", ["fused_uvm_caching"])):
            with relay() as (address, service), tempfile.TemporaryDirectory() as folder:
                planner = make(address, constraints=constraints, kernels=kernels, cache_dir=folder)
                plan, first = planner.plan(small_model(), [Sharder()]), planner.response
                again = planner.plan(small_model(), [Sharder()])
                save_plan(plan, f"{folder}/plan.json")
                loaded = load_plan(f"{folder}/plan.json", small_model(), gpus(), [Sharder()], constraints)
                compared = planner.evaluate(f"{folder}/plan.json")
            self.assertEqual(len(service.requests), 1)
            self.assertEqual({each.compute_kernel for found in (plan, again, loaded) for each in found.plan["ebc"].values()}, {"customized_kernel"})
            self.assertEqual([list(rule.compute_kernels) for rule in service.requests[0].constraints.tables], [demanded])
            self.assertEqual({table.compute_kernel for table in first.plan.tables}, {word})
            self.assertIn(f"kernel customized_kernel is priced and counted as {word}: ebc.a, ebc.b, ebc.c", first.warnings)
            self.assertEqual(len(compared.plans), 1)
        with self.assertRaisesRegex(ValueError, "kernels: 'fast' is not one of quant"):
            make(kernels={"fast": "fused"})
        with self.assertRaisesRegex(ValueError, "kernels: 'slow' is not one of fused"):
            make(kernels={"customized_kernel": "slow"})

    def test_caches_of_plans_hold_less_than_all_rows(self):
        constraints = {name: ParameterConstraints(compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=1.0)) for name in "abc"}
        planner = make(constraints=constraints)
        plan = planner.plan(small_model(), get_default_sharders())
        validate_compute_kernels(planner.get_selected_options())
        self.assertTrue(all(0.99 < each.cache_params.load_factor < 1 for each in plan.plan["ebc"].values()))

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
        # Constraints that leave another type do not ask for it either; where they leave none, the others are cut in rows, too.
        both = {"a": ParameterConstraints(sharding_types=["row_wise", "table_wise"])}
        self.assertEqual(self.types(self.request(Model(ebc=bags(bag("a", **mean), bag("b"))), request=analytic, constraints=both))["a"], {"table_wise"})
        alone = {"a": ParameterConstraints(sharding_types=["row_wise"])}
        found = self.types(self.request(Model(ebc=bags(bag("a", **mean), bag("b"))), request=analytic, constraints=alone))
        self.assertEqual((found["a"], found["b"]), ({"row_wise"}, {"row_wise", "table_row_wise"}))
        constraints = {"a": ParameterConstraints(sharding_types=["row_wise"]), "b": ParameterConstraints(sharding_types=["table_wise"])}
        with self.refused(PlannerErrorType.INVALID_RANK_ASSIGNMENT, "ebc.a", "wrong values for ebc.b"):
            make(constraints=constraints).plan(Model(ebc=bags(bag("a", **mean), bag("b"))), get_default_sharders())


if __name__ == "__main__":
    main()
