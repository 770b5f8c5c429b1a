"""The request that the service gets of a topology, constraints, sharders and statistics.

  plan_request_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import torch
from planner_case import GIB, Case, Model, bag, bags, gpus, main, make, relay, small_model
from torch import nn
from torchrec import EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation, HeuristicalStorageReservation
from torchrec.distributed.planner.types import CollectiveType, CustomTopologyData, GeneralizedCommsBandwidth, ParameterConstraints, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams, DataType, KeyValueParams, PipelineType

import neuroshard
from neuroshard.torchrec import RowPositions, statistics


class RequestsTest(Case):
    def told(self, model=None, sharders=None, **more):
        """(warnings, request)"""
        with relay() as (address, service):
            planner = make(address, **more)
            planner.plan(model or small_model(), sharders or get_default_sharders())
        return "\n".join(planner.response.warnings), service.requests[-1]

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

    def test_what_topologies_say_beyond_the_services_is_told(self):
        for name, default in (("bwd_compute_multiplier", 2), ("weighted_feature_bwd_compute_multiplier", 1), ("uneven_sharding_perf_multiplier", 1.0)):
            self.assertIn(f"{name} is 7.0, and priced as {default}", self.told(topology=gpus(**{name: 7.0}))[0])
        found, request = self.told(topology=Topology(world_size=4, compute_device="mtia"))
        self.assertEqual((request.topology.compute_device, "'mtia' is priced as 'cuda'" in found), ("cuda", True))
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "intra_host_bw is 450 bytes per millisecond"):
            make(topology=gpus(intra_host_bw=450)).plan(small_model(), get_default_sharders())

    def test_hosts_need_not_come_out_even(self):
        def hosts(*ranks):
            request = self.request(small_model(), topology=gpus(*ranks), request={"cost_model": {"name": "analytic"}})
            return [(group.count, group.num_devices) for group in request.topology.hosts], self.types(request)["a"]

        every = {"data_parallel", "table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise"}
        self.assertEqual(hosts(4, 8), ([(1, 4)], every))
        self.assertEqual(hosts(4, 3), ([(1, 3), (1, 1)], every - {"table_column_wise", "table_row_wise"}))
        uneven = gpus(custom_topology_data=CustomTopologyData({"hbm_cap": [GIB, 0, GIB, GIB]}, 4))
        constraints = {name: ParameterConstraints(sharding_types=["table_wise"]) for name in "abc"}
        plan = make(topology=uneven, constraints=constraints).plan(small_model(), get_default_sharders())
        self.assertNotIn(1, {rank for table in plan.plan["ebc"].values() for rank in table.ranks})

    def test_estimators_that_fail_leave_a_plan_without_estimates(self):
        class Fails(EmbeddingPerfEstimator):
            def estimate(self, sharding_options, sharder_data_map=None):
                raise ValueError("no bandwidth of this kernel")

        with self.assertLogs("neuroshard.torchrec.planner", "WARNING") as logs:
            planner = make(enumerator=EmbeddingEnumerator(gpus(), 128, estimator=[Fails(gpus())]))
            planner.plan(small_model(), get_default_sharders())
        self.assertIn("the plan has no estimates, since TorchRec's estimators fail: no bandwidth of this kernel", "\n".join(logs.output))
        self.assertEqual({option.total_perf for option in planner.get_selected_options()}, {0})

    def test_bandwidths_by_collective_are_those_of_the_slowest(self):
        class Links(GeneralizedCommsBandwidth):
            intra_host_bw, inter_host_bw = 7.0, 7.0

            def get_bw(self, local_world_size, world_size, collective_type):
                within = world_size <= local_world_size
                return {CollectiveType.ALL_TO_ALL: 4e8, CollectiveType.ALL_REDUCE: 1e3}.get(collective_type, 5e8) * (1 if within else 0.125)

        found, request = self.told(topology=gpus(generalized_comms_bandwidths=Links()))
        self.assertEqual((request.topology.bandwidths.intra_host_bytes_per_s, request.topology.bandwidths.inter_host_bytes_per_s), (4e11, 5e10))
        self.assertIn("generalized_comms_bandwidths: exchanges are priced at 4e+08 bytes per millisecond in a host and 5e+07 between hosts", found)

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
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.b", "1 batch_sizes for 2 pooling_factors"):
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
        found, request = self.told(topology=uneven)
        self.assertEqual([(host.host_memory_bytes, host.max_host_memory_bytes_per_device) for host in request.topology.hosts], [(2 * GIB, GIB), (3 * GIB, GIB)])
        self.assertIn("ddr_cap of ranks of a host differs: the least is taken for each of them", found)
        self.request(small_model(), topology=uneven, constraints=fused)
        some = gpus(custom_topology_data=CustomTopologyData({"ddr_cap": [0, 0, 0, GIB]}, 4))  # 0 would be no limit
        hosts = self.request(small_model(), topology=some).topology.hosts
        self.assertEqual([(host.host_memory_bytes, host.max_host_memory_bytes_per_device) for host in hosts], [(0, 0), (GIB, 1)])

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
        self.assertIn("ssd_cap of ranks of a host differs", self.told(topology=uneven, constraints=constraints)[0])
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
                    found, request = self.told(sharders=sharders(**config))
                    self.assertEqual((request.quantized_comms.forward_dtype, request.quantized_comms.backward_dtype), ("fp8", backward.value))
                    self.assertIn(f"POOLED_EMBEDDINGS_ALL_TO_ALL is in mx4/{backward.value} and priced in fp8/{backward.value}: ebc.a, ebc.b, ebc.c", found)
                elif forward == backward == CommType.FP32:
                    self.assertFalse(self.request(small_model(), sharders(**config)).HasField("quantized_comms"))
                else:
                    self.assertEqual(wire(sharders(**config)), (forward.value, backward.value))
        self.assertEqual(wire(sharders(forward_precision=CommType.FP16), request={"quantized_comms": {"forward_dtype": "int8"}}), ("int8", ""))

        halves = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.FP16))
        bytes_ = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.INT8, backward_precision=CommType.FP16))
        mixed = {**halves, "POOLED_EMBEDDINGS_REDUCE_SCATTER": bytes_["POOLED_EMBEDDINGS_REDUCE_SCATTER"]}
        found, request = self.told(sharders=[EmbeddingBagCollectionSharder(qcomm_codecs_registry=mixed)])
        self.assertEqual((request.quantized_comms.forward_dtype, request.quantized_comms.backward_dtype), ("fp16", "fp16"))
        self.assertIn("POOLED_EMBEDDINGS_REDUCE_SCATTER is in int8/fp16 and priced in fp16/fp16", found)
        both = Model(ebc=bags(bag("a")), ec=EmbeddingCollection(tables=[EmbeddingConfig(name="s", num_embeddings=40, embedding_dim=8, feature_names=["z"])]))
        found, request = self.told(both, [EmbeddingBagCollectionSharder(qcomm_codecs_registry=halves), EmbeddingCollectionSharder()])
        self.assertEqual(request.quantized_comms.forward_dtype, "fp16")
        self.assertIn("on the wire in the type of the lookup and priced in fp16/fp16, as most are: ec.s", found)
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
        self.assertEqual(pipeline(pipeline_type=PipelineType.TRAIN_BASE), "none")
        self.assertEqual(pipeline(pipeline_type=PipelineType.TRAIN_SPARSE_DIST), "train_sparse_dist")
        self.assertEqual(pipeline(pipeline_type=PipelineType.TRAIN_PREFETCH_SPARSE_DIST), "train_prefetch_sparse_dist")
        # Of no pipeline it counts for all; caches that are filled ahead of time are those of one.
        self.assertEqual(pipeline(prefetch=True), "train_prefetch_sparse_dist")
        self.assertEqual(pipeline(prefetch=True, pipeline_type=PipelineType.TRAIN_SPARSE_DIST), "train_sparse_dist")
        self.assertEqual(self.request(small_model(), request={"pipeline_type": "train_sparse_dist"}).pipeline_type, "train_sparse_dist")
        peak = {"run_embedding_at_peak_memory": True}
        for part, rule, more in (("is_inference", "weights_only", {"is_inference": True}),
                                 ("run_embedding_at_peak_memory", "full", {**peak, "pipeline_type": PipelineType.TRAIN_SPARSE_DIST}),
                                 ("", "torchrec", peak)):  # fmt: skip
            found, request = self.told(enumerator=enumerator(**more))
            self.assertEqual((request.memory.rule, part in found), (rule, True))
        found, request = self.told(enumerator=enumerator(is_inference=True), request={"memory": {"rule": "full"}})
        self.assertEqual((request.memory.rule, "is_inference" in found), ("full", False))

    def test_memory_covers_what_torchrec_counts_at_the_peak_and_in_inference(self):
        for more in ({"is_inference": True}, *({"run_embedding_at_peak_memory": True, "pipeline_type": kind} for kind in (PipelineType.TRAIN_SPARSE_DIST, PipelineType.TRAIN_PREFETCH_SPARSE_DIST))):
            for kind, kernel in (("table_wise", "fused"), ("row_wise", "fused"), ("column_wise", "fused"), ("table_row_wise", "fused"), ("table_wise", "fused_uvm"), ("table_wise", "fused_uvm_caching")):
                constraints = {"a": ParameterConstraints(sharding_types=[kind], compute_kernels=[kernel], pooling_factors=[20.0], min_partition=32)}
                estimators = [EmbeddingPerfEstimator(gpus(), constraints), EmbeddingStorageEstimator(gpus(), constraints, **more)]
                planner = make(constraints=constraints, enumerator=EmbeddingEnumerator(gpus(), 128, constraints, estimators))
                planner.plan(Model(ebc=bags(bag("a", 50_000))), get_default_sharders())
                (option,) = planner.get_selected_options()
                theirs = [sum(shard.storage.hbm for shard in option.shards if shard.rank == rank) for rank in range(4)]
                ours = {each.rank: each.memory.total_bytes - each.memory.reserve_bytes for each in planner.response.cost.ranks}
                for rank, least in enumerate(theirs):
                    self.assertGreaterEqual(ours[rank], least, (more, kind, kernel))

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
        halves = [KeyedJaggedTensor(keys=[key], values=part.values(), lengths=part.lengths()) for key, part in batch.to_dict().items()]
        self.assertEqual(repr(statistics([tuple(halves), halves])), repr(twice))
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


if __name__ == "__main__":
    main()
