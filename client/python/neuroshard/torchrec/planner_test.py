"""Plans and their estimates: checked, compared, kept from one start to the next; planners that cannot be reached.

  planner_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import json
import logging
import os
import re
import subprocess
import tempfile
from unittest import mock

import torch
from google.protobuf import json_format
from planner_case import FREE, Case, Model, Programs, bag, bags, gpus, main, make, nobody, relay, silence, small_model
from planner_process import MODELS, PlannerProcess
from torchrec import EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheAlgorithm, CacheParams, DataType, KeyValueParams, PipelineType, ShardingPlan
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

import neuroshard
from neuroshard.torchrec import NeuroShardPlanner, load_plan, save_plan
from neuroshard.torchrec.layout import from_message, from_sharding_plan
from neuroshard.torchrec.plan_comparison import PlanComparison, PlanCosts


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

    def test_the_request_is_a_file_for_the_command_line(self):
        planner = make(constraints={"a": ParameterConstraints(sharding_types=["column_wise"])})
        self.assertIsNone(planner.request)
        plan = planner.plan(small_model(), get_default_sharders())
        with tempfile.TemporaryDirectory() as folder:
            request, plan_file = f"{folder}/request.json", f"{folder}/plan.json"
            with open(request, "w", encoding="utf-8") as file:
                file.write(json_format.MessageToJson(planner.request))
            save_plan(plan, plan_file)
            command = [Programs.client, "evaluate", request, plan_file, "--planner", Programs.address, "--format", "json"]
            shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        self.assertTrue(shown["legal"], shown)
        self.assertEqual(shown["cost"]["embedding_cost_ms"], planner.response.cost.embedding_cost_ms)

    def test_a_trainer_on_cpus_is_told_whose_kernels_were_measured(self):
        def warned(device):
            planner = make(topology=Topology(world_size=2, compute_device=device), request={"cost_model": {"name": "cpu-amd-epyc"}})
            planner.plan(small_model(), get_default_sharders())
            return any("FBGEMM and Gloo, which TorchRec runs there" in warning for warning in planner.response.warnings)

        self.assertEqual((True, False), (warned("cpu"), warned("cuda")))

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
        self.assertIn("2 tables in host memory: ebc.a, ebc.b; 1 of them cached, each with a cache of its own: up to 2 lookups a rank", planner.summary)
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

    def test_a_comparison_says_where_the_model_cannot_tell(self):
        def said_of(other_ms):
            plans = [PlanCosts("a", 1.0, None, None, [], (0.93, 1.2)), PlanCosts("b", other_ms, None, None, [])]
            return "less than the model can tell" in str(PlanComparison(plans, "m/1", ""))

        self.assertEqual([said_of(ms) for ms in (0.92, 0.95, 1.0, 1.05, 1.11, None)], [False, True, False, True, False, False])

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
        basis = "prices rest on TorchRec's formulas with their default bandwidths of a V100-class host"
        for line, origin in zip(lines, (f"{held}; {basis}, from the service", ", from the cache")):
            self.assertEqual(
                line,
                f"plan of 3 tables on 4 ranks (cuda), batch 128 a rank and 512 in all: {cost} by cost model {model.name} version {model.version}{origin}; "
                f"1 table in host memory: ebc.{moved}",
            )

    def test_without_an_address_the_plan_of_the_embedded_planner_is_that_of_a_service(self):
        environment = {"TMPDIR": "", "NEUROSHARD_BIN": os.path.dirname(Programs.planner), "NEUROSHARD_MODELS": MODELS, "NEUROSHARD_PLANNER": ""}

        def embedded():
            return NeuroShardPlanner(topology=gpus(), batch_size=128, storage_reservation=FREE, debug=False, stats=[])

        with PlannerProcess(Programs.planner) as service, tempfile.TemporaryDirectory(prefix="ns-") as folder:
            expected = make(service.address).plan(small_model(), get_default_sharders())
            with mock.patch.dict(os.environ, {**environment, "TMPDIR": folder}):
                self.assertEqual(str(embedded().plan(small_model(), get_default_sharders())), str(expected))
            with mock.patch.dict(os.environ, {**environment, "NEUROSHARD_MODELS": "/no/such/root"}), self.refused(PlannerErrorType.OTHER, '"/no/such/root"'):
                embedded().plan(small_model(), get_default_sharders())

    def test_unreachable_planners_come_with_what_helps(self):
        with nobody() as address:
            with self.refused(PlannerErrorType.OTHER, "nothing listens there (Connection refused)", "cache_dir= keeps plans", "fallback= is a planner"):
                make(address, retries=0).plan(small_model(), get_default_sharders())
            with tempfile.TemporaryDirectory() as folder, self.refused(PlannerErrorType.OTHER, "cache_dir has no plan for this request yet"):
                make(address, retries=0, cache_dir=folder).plan(small_model(), get_default_sharders())
        with PlannerProcess(Programs.planner) as planner, self.refused(PlannerErrorType.OTHER, "speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps"):
            make(planner.metrics_address, retries=0).plan(small_model(), get_default_sharders())

    def test_unreachable_silent_and_draining_planners(self):
        with nobody() as address, self.refused(PlannerErrorType.OTHER, address):
            make(address, retries=1, timeout_s=5).plan(small_model(), get_default_sharders())
        with silence() as address, self.refused(PlannerErrorType.OTHER, address):
            make(address, timeout_s=1, retries=0).plan(small_model(), get_default_sharders())
        with PlannerProcess(Programs.planner) as draining:
            draining.drain()
            draining.process.wait()
            with self.refused(PlannerErrorType.OTHER, draining.address):
                make(draining.address, retries=0, timeout_s=5).plan(small_model(), get_default_sharders())

    def test_a_fallback_plans_where_the_service_does_not_answer_with_one_warning(self):
        def fallback():
            return EmbeddingShardingPlanner(topology=gpus(), batch_size=128, storage_reservation=FREE, debug=False, stats=[])

        with tempfile.TemporaryDirectory() as folder, nobody() as address, self.assertLogs("neuroshard.torchrec", logging.WARNING) as logged:
            factors = {name: ParameterConstraints(pooling_factors=[2.0]) for name in "abc"}
            planner = make(address, fallback=fallback(), retries=0, cache_dir=folder, constraints=factors)
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

    def test_a_plan_stays_where_its_groups_cannot_be_made(self):
        planner = make()
        with mock.patch("neuroshard.torchrec.planner.table_groups", side_effect=ValueError("ebc.a: two optimizers")), self.assertLogs(level="WARNING") as logs:
            plan = planner.plan(small_model(), get_default_sharders())
        self.assertTrue(plan.plan)
        self.assertEqual(planner.groups, [])
        self.assertIn("no groups of tables, since TorchRec cannot make them: ebc.a: two optimizers", "\n".join(logs.output))

    def test_marked_tables_are_stashed_and_looked_up_apart(self):
        model = Model(ebc=bags(bag("a"), bag("b", 2000, stash_weights=True), bag("c", 3000, 32)))
        whole = {name: ParameterConstraints(sharding_types=["table_wise"]) for name in "abc"}
        planner = make(topology=gpus(1, 1), constraints=whole)
        planner.plan(model, get_default_sharders())
        self.assertEqual([table.name for table in planner.request.tables if table.stash_weights], ["b"])
        self.assertEqual(planner.stashed_tables, {"b"})
        self.assertEqual({group.tables for group in planner.groups}, {("a", "c"), ("b",)})
        self.assertEqual(planner.response.stash.max_stashed_bytes, 2000 * 64 * 4)
        self.assertTrue(planner.summary.endswith("; 1 stashed while dense layers run: b"), planner.summary)
        planner.plan(small_model(), get_default_sharders())
        self.assertIsNone(planner.stashed_tables)

    def test_tables_are_chosen_for_what_dense_layers_take(self):
        memory = {"dense_bytes": 1 << 20}
        whole = {name: ParameterConstraints(sharding_types=["table_wise"]) for name in "abc"}
        with tempfile.TemporaryDirectory() as folder:
            for cached in (False, True):
                planner = make(topology=gpus(1, 1, hbm_cap=2 << 20), request={"memory": memory}, constraints=whole, cache_dir=folder)
                plan = planner.plan(small_model(), get_default_sharders())
                # Of 1.16 MB of weights the smallest table is enough.
                self.assertEqual(planner.stashed_tables, {"a"})
                self.assertEqual({group.tables for group in planner.groups}, {("b", "c"), ("a",)})
                self.assertEqual(planner.response is None, cached)
            report = make(topology=gpus(1, 1, hbm_cap=2 << 20), request={"memory": memory}, constraints=whole)
            report.plan(small_model(), get_default_sharders())
            stash = report.response.stash
            self.assertLessEqual(stash.peak_bytes + (1 << 20), 2 << 20)
            self.assertEqual(stash.peak_bytes_without - stash.peak_bytes, stash.max_stashed_bytes)
            self.assertTrue(plan.plan["ebc"])
        with self.refused(PlannerErrorType.PARTITION, "cannot be stashed"):
            make(topology=gpus(1, 1, hbm_cap=2 << 20), request={"memory": {"dense_bytes": (2 << 20) - 1}}).plan(small_model(), get_default_sharders())

    def test_a_stash_goes_by_names_of_all_modules(self):
        def model():
            return Model(one=bags(bag("a", stash_weights=True)), two=bags(bag("a")))

        planner = make()
        with self.assertLogs("neuroshard.torchrec.planner", logging.WARNING) as logs:
            planner.plan(model(), get_default_sharders())
        self.assertEqual(planner.stashed_tables, {"a"})
        self.assertIn("set_stashed_tables goes by names alone, so that it stashes as well: two.a", "\n".join(logs.output))

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
            with neuroshard.PlannerClient(Programs.address) as client:
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


if __name__ == "__main__":
    main()
