"""Steps are recorded as they run, and what is learned from records is what a planner then forecasts.

  step_records_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import contextlib
import gc
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.sharding.rw_sharding import RwPooledEmbeddingDist, RwSparseFeaturesDist
from torchrec.distributed.types import Awaitable

import training
from planner_process import MODELS, PlannerProcess
from ranks import run_on_ranks
from training import Model, ShardedTraining, bags, copies, local_batches, sequences

from neuroshard import PlannerClient, v1
from neuroshard.torchrec import NeuroShardPlanner, StepRecord, StepRecorder
from neuroshard.torchrec.non_negative_fit import fit_non_negative
from neuroshard.torchrec.step_drift import RATES
from neuroshard.torchrec.step_record import EXCHANGE_STAGES, LOOKUP_STAGES, STAGES
from neuroshard.torchrec.step_records import StepForecast, errors_left_out, fit_rates, main

ADDRESS = None
SLEEP_S = 0.1
KINDS = {"a": "table_wise", "b": "row_wise", "c": "data_parallel", "d": "column_wise"}


def two_modules():
    return Model(left=bags(("a", 5000, 16), ("b", 4000, 16)), right=bags(("c", 50, 16), ("d", 6000, 16)))


def recorder_of_a_sharded_model(kinds, build=two_modules):
    whole, model = copies(build)
    planner = NeuroShardPlanner(ADDRESS, Topology(world_size=dist.get_world_size(), local_world_size=dist.get_world_size(), compute_device="cpu"),
                                training.LOCAL_BATCH, debug=False, stats=[],
                                constraints={name: ParameterConstraints(sharding_types=[kind]) for name, kind in kinds.items()})
    plan = planner.collective_plan(model, training.SHARDERS)
    weights = {key: value.clone() for key, value in whole.state_dict().items()}
    return planner, ShardedTraining(model, plan, "sgd", weights)


def every_stage_is_timed():
    planner, sharded = recorder_of_a_sharded_model(KINDS)
    recorder = StepRecorder(sharded.model, warmup_steps=2, every=1)
    assert recorder.num_lookups >= 3, recorder.num_lookups
    for step in range(6):
        sharded.step(local_batches(two_modules(), step)[dist.get_rank()])
        recorder.step()
    assert len(recorder.steps) == 4, recorder.steps
    for step in recorder.steps:
        assert set(step) == set(STAGES) and all(step[stage] > 0 for stage in STAGES), step
        assert step["lookup_forward"] < step["forward"] and step["lookup_backward"] < step["backward"], step
    response = planner.response
    record = recorder.record(planner.request, response.plan if response is not None else None)
    assert len(record.ranks) == dist.get_world_size() and record.exchanges() == [2, 1, 1], (record.exchanges(), record.plan)
    assert StepRecord.from_json(record.to_json()) == record
    assert 0 <= 1e3 * time.time() - record.recorded_at_unix_ms < 60e3, record.recorded_at_unix_ms
    planned = {(table.module, table.sharding_type) for table in record.plan.tables}
    for rank, groups in enumerate(record.groups):
        assert len(groups) == 4 and {(group["module"], group["sharding_type"]) for group in groups} == planned, groups
        for group in groups:
            assert group["exchange_backward"] > 0 and (group["input_dist"] > 0 or group["sharding_type"] == "data_parallel"), group
            assert all(lookup[stage] > 0 for lookup in group["lookups"] for stage in LOOKUP_STAGES), group
        if response is not None:  # of rank 0, which planned
            found = sorted((group["module"], group["sharding_type"], tuple(lookup["tables"])) for group in groups for lookup in group["lookups"])
            expected = sorted((each.module, each.sharding_type, tuple(dict.fromkeys(each.tables))) for each in planner.groups if each.rank == rank)
            assert found == expected, (found, expected)
    # The plan is rank 0's; without it no rank goes on.
    try:
        recorder.record(None, None)
    except ValueError as error:
        assert "rank 0: there is no request or no plan" in str(error), error
    else:
        raise AssertionError("a record of no plan")


def a_backward_pass_ends_behind_the_gradients_of_replicas():
    _, sharded = recorder_of_a_sharded_model(KINDS)
    recorder = StepRecorder(sharded.model, warmup_steps=0, every=1)
    replicas = [parameter for name, parameter in sharded.model.named_parameters() if name.endswith(".c.weight")]
    assert replicas
    at_end, end = [], recorder._end_backward

    def watched_end():
        # Lookups that end before have ends of their own; the last counts.
        at_end[:] = [parameter.grad.clone() for parameter in replicas if parameter.grad is not None]
        end()

    recorder._end_backward = watched_end
    for step in range(3):
        sharded.step(local_batches(two_modules(), step)[dist.get_rank()])
        recorder.step()
        assert len(at_end) == len(replicas) and all(bool((before == parameter.grad).all()) for before, parameter in zip(at_end, replicas)), step


def train(sharded, recorder, steps):
    """How many spans the recorder saw, by step."""
    spans = []
    for step in range(steps):
        sharded.step(local_batches(two_modules(), step)[dist.get_rank()])
        spans.append(len(recorder._spans))
        recorder.step()
        assert not recorder._nodes  # which would hold the step's graph
    return spans


def steps_between_recorded_ones_are_left_alone():
    _, sharded = recorder_of_a_sharded_model(KINDS)
    recorder = StepRecorder(sharded.model, warmup_steps=2, every=4)
    watched = [spans > 0 for spans in train(sharded, recorder, 12)]
    # Recorded are the third of them and each fourth behind it, watched those before too.
    assert watched == [False, True, True, False, False] + [True, True, False, False] + [True, True, False], watched
    assert len(recorder.steps) == 3 and all(step[stage] > 0 for step in recorder.steps for stage in STAGES), recorder.steps


def a_step_leaves_nothing_to_the_garbage_collector():
    _, sharded = recorder_of_a_sharded_model(KINDS)
    recorder = StepRecorder(sharded.model, warmup_steps=0, every=1)
    train(sharded, recorder, 2)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        train(sharded, recorder, 3)
        gc.collect()
        left = [type(each).__name__ for each in gc.garbage if isinstance(each, (torch.Tensor, Awaitable))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left, left


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, vectors):
        time.sleep(SLEEP_S)
        return vectors.view_as(vectors)

    @staticmethod
    def backward(_ctx, gradients):
        time.sleep(SLEEP_S)
        return gradients


def what_takes_long_is_in_its_group():
    _, sharded = recorder_of_a_sharded_model(KINDS)
    exchange, input_dist = RwPooledEmbeddingDist.forward, RwSparseFeaturesDist.forward

    def slow_input_dist(self, *arguments):
        time.sleep(SLEEP_S)
        return input_dist(self, *arguments)

    patches = [unittest.mock.patch.object(RwPooledEmbeddingDist, "forward", lambda self, vectors, *more: exchange(self, _Slow.apply(vectors), *more)),
               unittest.mock.patch.object(RwSparseFeaturesDist, "forward", slow_input_dist)]
    for patch in patches:
        patch.start()
    try:
        recorder = StepRecorder(sharded.model, warmup_steps=1, every=1)
        train(sharded, recorder, 4)
    finally:
        for patch in patches:
            patch.stop()
    for group in recorder.groups():
        for stage in EXCHANGE_STAGES:
            assert (group[stage] >= 1e3 * SLEEP_S) == (group["sharding_type"] == "row_wise"), (stage, group)
        assert all(lookup[stage] < 1e3 * SLEEP_S for lookup in group["lookups"] for stage in LOOKUP_STAGES), group


def unpooled():
    return Model(ids=sequences(("s", 3000, 16), ("t", 2000, 16)))


def groups_of_unpooled_tables_are_timed():
    _, sharded = recorder_of_a_sharded_model({"s": "table_wise", "t": "row_wise"}, unpooled)
    recorder = StepRecorder(sharded.model, warmup_steps=1, every=1)
    for step in range(3):
        sharded.step(local_batches(unpooled(), step)[dist.get_rank()])
        recorder.step()
    groups = recorder.groups()
    assert sorted((group["module"], group["sharding_type"]) for group in groups) == [("sparse.ids", "row_wise"), ("sparse.ids", "table_wise")], groups
    assert all(group[stage] > 0 for group in groups for stage in EXCHANGE_STAGES), groups
    assert sum((lookup["tables"] for group in groups for lookup in group["lookups"] if group["sharding_type"] == "row_wise"), []) == ["t"], groups


def nothing_recorded():
    _, sharded = recorder_of_a_sharded_model(KINDS)
    recorder = StepRecorder(sharded.model)
    for call in (recorder.median_ms, lambda: recorder.record(v1.ShardPlanRequest(), v1.Plan())):
        try:
            call()
        except ValueError as error:
            assert "no step was recorded" in str(error), error
        else:
            raise AssertionError("figures of no step")
    try:
        StepRecorder(two_modules())
    except ValueError as error:
        assert "no sharded embedding modules" in str(error), error
    else:
        raise AssertionError("a model that is not sharded is timed")
    try:
        StepRecorder(sharded.model, every=0)
    except ValueError as error:
        assert "every: must be at least 1" in str(error), error
    else:
        raise AssertionError("no step of any is recorded")


def request_of(job, ranks):
    """Tables in one to three modules, of sizes that differ from job to job."""
    tables = [{"name": f"t{i}", "module": f"m{i % (1 + job % 3)}", "num_embeddings": 1000 * (1 + (7 * job + i) % 9), "embedding_dim": 16 * (1 + (job + i) % 4),
               "pooling_factor": 1 + (3 * job + i) % 20, "reuse_histogram": [1.0] + 16 * [0.0]} for i in range(8)]
    types = ("table_wise", "row_wise", "column_wise", "data_parallel")
    rules = [{"tables": [f"t{i}"], "sharding_types": [types[(i + job) % (1 + job % 4)]]} for i in range(8)]
    return {"tables": tables, "global_batch_size": 1024, "optimizer": "sgd", "pipeline_type": "none", "cost_model": {"name": "cpu-amd-epyc", "version": 7},
            "constraints": {"sharding_types": list(types), "min_column_width": 16, "tables": rules}, "search": {"strategy": "refine", "refine_steps": 20},
            "topology": {"compute_device": "cpu", "hosts": [{"num_devices": ranks, "memory_bytes": 1 << 30}]}}


def made_up_records(client, jobs, ranks):
    """What steps of a trainer would be that takes 1.5 times the compute, twice the exchange, 3 ms an exchange of whole rows, 4 of cut rows, 1 of replicas."""
    from google.protobuf import json_format

    for job in jobs:
        request = request_of(job, ranks)
        answer = client.plan(request)
        record = StepRecord(json_format.ParseDict(request, v1.ShardPlanRequest()), answer.plan, [])
        whole, cut, replicas = record.exchanges()
        for rank in answer.cost.ranks:
            exchanges = 2 * (rank.forward_comm_ms + rank.backward_comm_ms) + 3 * whole + 4 * cut + replicas
            record.ranks.append({"forward": 1.5 * rank.compute_ms, "backward": exchanges, "lookup_forward": 1.5 * rank.compute_ms, "lookup_backward": 0.0,
                                 "input_dist": 2 * rank.input_dist_ms + 0.5 * whole + 0.75 * cut})
        yield record


def group_of(plan, cost):
    """The plan's tables as one group, whose lookups take 1.5 times what is forecast, exchanges and ids twice."""
    exchange = {"input_dist": 2 * cost.input_dist_ms, "exchange_forward": 2 * cost.forward_comm_ms, "exchange_backward": 2 * cost.backward_comm_ms}
    lookup = {"lookup_forward": 1.5 * cost.forward_compute_ms, "lookup_backward": 1.5 * cost.backward_compute_ms}
    table = plan.tables[0]
    return {"module": table.module, "sharding_type": table.sharding_type, **exchange, "lookups": [{"tables": [each.name for each in plan.tables], **lookup}]}


class FitTest(unittest.TestCase):
    def test_coefficients_are_not_negative(self):
        self.assertEqual([round(c, 6) for c in fit_non_negative([[1, 2], [2, 1], [3, 5]], [2, 4, 6])], [2, 0])
        # The best fit of all has a negative coefficient: 3 x - 1 y.
        self.assertEqual(fit_non_negative([[1, 1], [1, 2], [2, 1]], [2, 1, 5])[1], 0)

    def test_what_is_left_out_is_forecast_by_the_others(self):
        records, forecasts = [], []
        for job in range(24):
            # The rank with more compute is the slower one, not the one with more in sum. A pipeline leaves 0.4 of what ids take.
            forecast = StepForecast([2.0 + job % 3, 1.0], [2.0 + job % 5, 3.5 + job % 3 + job % 5], 1.0, [1 + job % 2, job % 3, job % 4 // 3], job % 4 == 2)
            ids = 0.5 * forecast.exchanges[0] + 0.75 * forecast.exchanges[1]
            step = max(4 * compute + comm for compute, comm in zip(forecast.compute_ms, forecast.comm_ms)) + 3 * forecast.exchanges[0] + forecast.exchanges[1]
            step += 0.4 * ids if forecast.pipelined else 0
            rank = {"forward": step / 4, "backward": 3 * step / 4, "lookup_forward": 0.0, "lookup_backward": 0.0, "input_dist": 2.0 + ids}
            records.append(StepRecord(v1.ShardPlanRequest(pipeline_type="train_sparse_dist" if forecast.pipelined else "none"), v1.Plan(world_size=2), [rank, rank]))
            forecasts.append(forecast)
        self.assertLess(max(map(abs, errors_left_out(records, forecasts))), 1e-6)
        rates = fit_rates(records, forecasts)
        for found, expected in ((rates.compute_scale, 4), (rates.comm_scale, 1), (rates.forward_share, 0.25), (rates.pipelined_share, 0.4), (rates.input_dist_scale, 2)):
            self.assertAlmostEqual(found, expected)
        # Of jobs that all have a pipeline, steps are learned as they are.
        pipelined = [(record, forecast) for record, forecast in zip(records, forecasts) if forecast.pipelined]
        of_them = fit_rates(*map(list, zip(*pipelined)))
        self.assertLess(max(abs(of_them.step_ms(forecast) / record.step_ms - 1) for record, forecast in pipelined), 1e-6)


class CommandFixture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = pathlib.Path(MODELS, "cpu-amd-epyc", "7").resolve()

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*map(str, arguments)])
        return status, out.getvalue(), err.getvalue()


class CommandTest(CommandFixture):
    def test_a_planner_forecasts_what_was_recorded(self):
        path, out = self.folder / "records.jsonl", self.folder / "models" / "mine" / "3"
        with PlannerClient(ADDRESS) as client:
            learnt = list(made_up_records(client, range(24), 2))
            others = list(made_up_records(client, range(24, 34), 2))
        path.write_text("".join(record.to_json() + "\n" for record in learnt))
        status, text, fault = self.run_main(path, "--planner", ADDRESS, "--model", self.model, "--out", out)
        self.assertEqual(status, 0, fault)
        self.assertRegex(text, r"2 ranks, 24 records: forecasts of steps are off by \d+\.\d% without rates of steps, by 0\.\d% with")
        with PlannerProcess(sys.argv[1], models=str(out.parent.parent)) as planner, PlannerClient(planner.address) as client:
            for record in others:
                request = v1.ShardPlanRequest()
                request.CopyFrom(record.request)
                request.cost_model.CopyFrom(v1.CostModelRef(name="mine"))
                answer = client.evaluate(request, record.plan)
                expected = max(rank["forward"] + rank["backward"] + rank["input_dist"] for rank in record.ranks)
                # Steps and ids are fitted apart, so a rank that is the slowest in one need not be in both.
                self.assertLess(abs(answer.cost.embedding_cost_ms / expected - 1), 0.01)
                self.assertIn("recorded steps of a trainer", answer.price_basis.text)
        report = (out / "REPORT.md").read_text()
        self.assertTrue(report.startswith("# mine version 3\n\n## Steps of a trainer\n- 2 ranks, "), report[:200])
        self.assertEqual(text.splitlines()[0], report.splitlines()[3][2:])
        again = self.run_main(path, "--planner", ADDRESS, "--model", self.model, "--out", out)
        self.assertEqual(again[0], 1)
        self.assertIn("exists already", again[2])

    def test_without_a_place_nothing_is_written(self):
        path = self.folder / "records.jsonl"
        with PlannerClient(ADDRESS) as client:
            path.write_text("".join(record.to_json() + "\n" for record in made_up_records(client, range(6), 4)))
        status, text, _ = self.run_main(path, "--planner", ADDRESS, "--model", self.model)
        self.assertEqual((status, [entry.name for entry in self.folder.iterdir()]), (0, ["records.jsonl"]))
        self.assertIn("4 ranks, 6 records", text)

    def test_groups_are_shown_beside_forecasts(self):
        path = self.folder / "records.jsonl"
        with PlannerClient(ADDRESS) as client:
            records = list(made_up_records(client, range(0, 72, 12), 2))  # of one module and type each, so that a plan is a group
            for record in records:
                record.groups = [[group_of(record.plan, rank)] for rank in client.evaluate(record.request, record.plan).cost.ranks]
            record_of_several = next(made_up_records(client, [2], 2))
        path.write_text("".join(record.to_json() + "\n" for record in records))
        status, text, fault = self.run_main(path, "--groups")
        self.assertEqual(status, 0, fault)
        self.assertRegex(text, r"^rank [01] of 2, ms; step \d+\.\d{3} ms\ngroup +input dist +lookup forward +exchange forward +exchange backward +lookup backward +of the step\n")
        for more in ((), ("--model", self.model)):  # the request names that one
            status, text, fault = self.run_main(path, "--groups", "--planner", ADDRESS, *more)
            self.assertEqual(status, 0, fault)
            row = next(line for line in text.splitlines() if line.startswith("m0 table_wise: t0, t1"))
            pairs = [tuple(map(float, each.split(" / "))) for each in re.findall(r"\d\.\d+ / \d\.\d+", row)]
            self.assertEqual(len(pairs), 5, row)
            for (measured, forecast), factor in zip(pairs, (2, 1.5, 2, 2, 1.5)):
                self.assertAlmostEqual(measured, factor * forecast, delta=0.002)
        status, text, fault = self.run_main(path, "--planner", ADDRESS, "--model", self.model)
        self.assertEqual(status, 0, fault)
        self.assertIn("\ntable_wise: measured / predicted 1.500 of lookups, 2.000 of exchanges, 6 groups\n", text)
        # Of several, each has the price of its own tables.
        record = record_of_several
        pairs = sorted({(table.module, table.sharding_type) for table in record.plan.tables})
        self.assertGreater(len(pairs), 2)
        record.groups = [[{"module": module, "sharding_type": kind, **dict.fromkeys(EXCHANGE_STAGES, 0.0), "lookups": []} for module, kind in pairs]] * 2
        path.write_text(record.to_json())
        status, text, fault = self.run_main(path, "--groups", "--planner", ADDRESS)
        self.assertEqual(status, 0, fault)
        rank = int(text[5])
        for module, kind in pairs:
            plan = v1.Plan(world_size=2, tables=[table for table in record.plan.tables if (table.module, table.sharding_type) == (module, kind)])
            whole = request_of(2, 2)
            request = {**whole, "constraints": {}, "tables": [table for table in whole["tables"] if table["name"] in {each.name for each in plan.tables}]}
            with PlannerClient(ADDRESS) as client:
                cost = client.evaluate(request, plan).cost.ranks[rank]
            forecasts = [f"0.000 / {ms:.3f}" for ms in (cost.input_dist_ms, cost.forward_compute_ms, cost.forward_comm_ms, cost.backward_comm_ms, cost.backward_compute_ms)]
            self.assertIn([f"{module} {kind}: no table of this rank", *forecasts, "0%"], [re.split("  +", line) for line in text.splitlines()])
        old = json.loads(record.to_json())
        del old["groups"]  # as recorders wrote them once
        path.write_text(json.dumps(old))
        status, _, fault = self.run_main(path, "--groups")
        self.assertEqual((status, fault), (1, "error: the record has no groups; recorders of this version write them\n"))
        self.assertIn("--model is missing", self.run_main(path, "--planner", ADDRESS)[2])

    def test_groups_that_are_none_are_named(self):
        with PlannerClient(ADDRESS) as client:
            record = next(made_up_records(client, [0], 2))
        good = group_of(record.plan, v1.RankCost())
        for groups, part in (
            ({}, "groups: must be none, or those of 2 ranks as in the plan, got {}"), ([[good]], "groups: must be none, or those of 2 ranks as in the plan, got 1"),
            ([[good], 1], "groups[1]: must be a list, got 1"), ([[1], [good]], "groups[0][0].lookups: must be a list, got None"),
            ([[good], [{**good, "input_dist": -1}]], "groups[1][0].input_dist: must be ms of 0 and more, got -1"),
            ([[good], [{**good, "module": None}]], "groups[1][0].module: must be a name, got None"),
            ([[good], [{**good, "lookups": [{"tables": [], "lookup_forward": 1, "lookup_backward": True}]}]], "groups[1][0].lookups[0].lookup_backward: must be ms"),
            ([[good], [{**good, "lookups": [{**good["lookups"][0], "tables": []}]}]], "groups[1][0].lookups[0].tables: must be names of tables, got []"),
            ([[good], [{**good, "sharding_type": "row_wise"}]], "groups[1]: must be rank 0's [('m0', 'table_wise')], got [('m0', 'row_wise')]"),
        ):
            record.groups = groups
            with self.assertRaises(ValueError) as caught:
                StepRecord.from_json(record.to_json())
            self.assertIn(part, str(caught.exception))

    def test_every_faulty_line_is_named(self):
        path = self.folder / "records.jsonl"
        with PlannerClient(ADDRESS) as client:
            good = json.loads(next(made_up_records(client, [1], 2)).to_json())
        bad_time = {**good, "ranks": [{**good["ranks"][0], "forward": -1}, {**good["ranks"][1], "backward": float("nan"), "input_dist": True}]}
        other_request = {**good, "request": request_of(1, 4)}
        no_time = {**good, "recorded_at_unix_ms": 1.5}
        slow_lookup = {**good, "ranks": [{**good["ranks"][0], "lookup_backward": 1e6}, {**good["ranks"][1], "lookup_forward": 1e6}]}
        path.write_text("\n".join(["{", json.dumps({**good, "ranks": good["ranks"][:1]}), json.dumps(bad_time), json.dumps({**good, "plan": {}}), json.dumps(good),
                                   json.dumps(other_request), json.dumps(slow_lookup), json.dumps(no_time)]))
        out = self.folder / "models" / "mine" / "1"
        status, _, fault = self.run_main(path, "--planner", ADDRESS, "--model", self.model, "--out", out)
        self.assertEqual(status, 1)
        for part in ("line 1: is no record of steps", "line 2: ranks: must be 2 as in the plan, got 1", "line 3: ranks[0].forward: must be ms of 0 and more, got -1",
                     "ranks[1].backward: must be ms of 0 and more, got nan", "ranks[1].input_dist: must be", "line 4: plan: has no tables",
                     "line 6: request.topology: must have 2 devices as the plan has ranks, got 4", "line 7: ranks[0].lookup_backward: must be at most backward's",
                     "; ranks[1].lookup_forward: must be at most forward's", "line 8: recorded_at_unix_ms: must be ms since 1970, before the year 10000, got 1.5"):
            self.assertIn(part, fault)
        self.assertNotIn("line 5", fault)
        other_plan = json.loads(json.dumps(good))
        other_plan["plan"]["tables"][0]["name"] = "another"
        path.write_text("\n".join(map(json.dumps, [good, other_plan])))
        status, _, fault = self.run_main(path, "--planner", ADDRESS, "--model", self.model, "--out", out)
        self.assertEqual(status, 1)
        self.assertRegex(fault, r"records.jsonl, line 2: plan.*another")
        for model, place, part in ((self.model, out, "1 records at 2 ranks are too few to learn from, at least 5"), (self.model, self.folder / "x", "must end in a version"),
                                   (self.folder / "none" / "1", out, "none")):
            path.write_text((json.dumps(good) + "\n") * (1 if part.startswith("1 ") else 5))
            status, _, fault = self.run_main(path, "--planner", ADDRESS, "--model", model, "--out", place)
            self.assertEqual(status, 1, part)
            self.assertIn(part, fault)
        self.assertFalse(out.exists())


DRIFT_OF_COMPUTE = """format: neuroshard-drift/2
stages:
  compute:
    samples: 40
    median_ratio: 1.0625
    p10: 0.9
    p90: 1.5
    since: 2026-11-20T10:00:00Z
    until: 2026-11-21T10:00:00Z
...
"""
LATER_MS = 4_000_000_000_000  # of the year 2096


class ModelWithRatesTest(CommandFixture):
    """Of version 3 of `mine`, which learned its rates from 24 records."""

    def setUp(self):
        super().setUp()
        self.path, self.with_rates = self.folder / "records.jsonl", self.folder / "models" / "mine" / "3"
        self.learnt = self.made_up(range(24), 2, 0)
        self.write(self.learnt)
        status, _, fault = self.run_main(self.path, "--planner", ADDRESS, "--model", self.model, "--out", self.with_rates)
        self.assertEqual(status, 0, fault)

    def made_up(self, jobs, ranks, recorded_at_unix_ms, scale=1.0):
        """Records a minute apart, of steps that take `scale` times what the rates say."""
        with PlannerClient(ADDRESS) as client:
            records = list(made_up_records(client, jobs, ranks))
        for number, record in enumerate(records):
            record.recorded_at_unix_ms = recorded_at_unix_ms and recorded_at_unix_ms + 60_000 * number
            record.ranks = [{stage: scale * ms for stage, ms in rank.items()} for rank in record.ranks]
        return records

    def write(self, records):
        self.path.write_text("".join(record.to_json() + "\n" for record in records))

    def planner(self):
        return PlannerProcess(sys.argv[1], models=str(self.folder / "models"), config="models: {poll_ms: 50}")

    def test_steps_that_take_longer_since_are_drift(self):
        newer = self.made_up(range(24, 36), 2, LATER_MS, 1.5)
        for record in newer[::2]:
            # No record with a pipeline was learned from, so a pipeline hides ids altogether.
            record.request.pipeline_type = "train_sparse_dist"
        no_time, older, more_ranks = self.made_up([1, 2], 2, 0), self.made_up([3], 2, 1), self.made_up([4], 4, LATER_MS)
        without_time = [json.loads(record.to_json()) for record in no_time]
        del without_time[0]["recorded_at_unix_ms"]  # as recorders wrote them once
        self.write([*older, *more_ranks, *newer[:9]])
        drift = self.with_rates / "drift.yaml"
        with self.planner() as planner, PlannerClient(planner.address) as client:
            drift.write_text(DRIFT_OF_COMPUTE)
            status, text, fault = self.run_main(self.path, "--planner", planner.address, "--model", self.with_rates)
            self.assertEqual(status, 0, fault)
            self.assertIn("steps: 9 samples, ", text)
            self.assertIn("fewer than 10 do not tell of drift", text)
            planner.wait_for_metric('neuroshard_model_drifted{model="mine",stage="steps",version="3"} 0')
            self.write([*older, *more_ranks, *newer])
            self.path.write_text(self.path.read_text() + "".join(json.dumps(each) + "\n" for each in without_time))
            status, text, fault = self.run_main(self.path, "--planner", planner.address, "--model", self.with_rates)
            self.assertEqual(status, 0, fault)
            found = re.match(r"steps: 12 samples, measured / predicted (\S+) \(p10 (\S+), p90 (\S+)\), recorded from 2096-10-02T07:06:40Z to 2096-10-02T07:17:40Z\n", text)
            self.assertTrue(found, text)
            self.assertTrue(all(abs(float(ratio) / 1.5 - 1) < 0.01 for ratio in found.groups()), text)
            self.assertRegex(text, r"left out: 1 at numbers of ranks that the rates do not cover, 1 recorded before the rates were learned \(20\S+Z\), 2 without a time\n")
            self.assertNotIn("do not tell", text)
            planner.wait_for_metric('neuroshard_model_drifted{model="mine",stage="steps",version="3"} 1')
            planner.wait_for_metric('neuroshard_model_drift_ratio{model="mine",stage="compute",version="3"} 1.0625')
            of_model = client.model("mine")
            self.assertEqual([(each.stage, each.samples, each.since) for each in of_model.drift],
                             [("compute", 40, "2026-11-20T10:00:00Z"), ("steps", 12, "2096-10-02T07:06:40Z")])
            self.assertIn("has drifted: steps takes 1.50 times what it predicts", of_model.summary.poor_reasons)
        self.assertTrue(drift.read_text().startswith(DRIFT_OF_COMPUTE[:-4]), drift.read_text())
        self.assertEqual(sorted(self.with_rates.glob(".*")), [])

    def test_nothing_is_written_without_a_newer_record_or_over_a_damaged_file(self):
        drift = self.with_rates / "drift.yaml"
        command = (self.path, "--planner", ADDRESS, "--model", self.with_rates)
        status, _, fault = self.run_main(*command)
        self.assertEqual(status, 1)
        self.assertIn("no record tells whether", fault)
        self.assertIn("left out: 24 without a time", fault)
        self.assertFalse(drift.exists())
        self.write(self.made_up(range(24, 26), 2, LATER_MS))
        with self.planner() as planner:
            command = (self.path, "--planner", planner.address, "--model", self.with_rates)
            for text in ("", DRIFT_OF_COMPUTE[:-4], DRIFT_OF_COMPUTE.replace("/2", "/1"), DRIFT_OF_COMPUTE.replace("    p10: 0.9\n", ""),
                         DRIFT_OF_COMPUTE.replace("p10: 0.9", "p10:"), DRIFT_OF_COMPUTE + "x"):
                drift.write_text(text)
                status, _, fault = self.run_main(*command)
                self.assertEqual((status, drift.read_text()), (1, text))
                self.assertRegex(fault, r"drift\.yaml: is damaged")
        drift.unlink()
        manifest = self.with_rates / "model.yaml"
        manifest.write_text(re.sub(r"  (trained_at|steps_learned_at): .*\n", "", manifest.read_text()))
        status, _, fault = self.run_main(*command)
        self.assertEqual((status, drift.exists()), (1, False))
        self.assertIn("does not say when its rates of steps were learned (provenance.steps_learned_at)", fault)

    def test_rates_are_learned_anew_from_forecasts_without_them(self):
        programs = unittest.mock.patch.dict(os.environ, NEUROSHARD_BIN=os.path.dirname(os.path.abspath(sys.argv[1])))
        programs.start()
        self.addCleanup(programs.stop)
        (self.with_rates / "drift.yaml").write_text(DRIFT_OF_COMPUTE)
        self.write(self.made_up(range(24), 2, LATER_MS, 2))
        anew, expected = self.folder / "models" / "mine" / "4", self.folder / "models" / "mine" / "5"
        for model, out in ((self.with_rates, anew), (self.model, expected)):
            status, _, fault = self.run_main(self.path, "--planner", ADDRESS, "--model", model, "--out", out)
            self.assertEqual(status, 0, fault)
        manifests = [(directory / "model.yaml").read_text() for directory in (self.with_rates, anew, expected)]
        rates = [RATES.search(manifest)[0] for manifest in manifests]
        self.assertEqual(rates[1], rates[2])
        self.assertNotEqual(rates[1], rates[0])
        self.assertEqual([manifest.count("\n  steps_learned_at: 20") for manifest in manifests], [1, 1, 1])
        self.assertEqual((anew / "REPORT.md").read_text(), (expected / "REPORT.md").read_text().replace("mine version 5", "mine version 4"))
        self.assertFalse((anew / "drift.yaml").exists())
        with self.planner() as planner, PlannerClient(planner.address) as client:
            self.assertEqual([model.version for model in client.models().models if model.name == "mine"], [3, 4, 5])
        # Without a program there is no planner to ask.
        with unittest.mock.patch.dict(os.environ, NEUROSHARD_BIN=str(self.folder)):
            status, _, fault = self.run_main(self.path, "--model", self.with_rates, "--out", self.folder / "models" / "mine" / "6")
        self.assertEqual(status, 1)
        self.assertIn("no program to embed", fault)


class RecorderTest(unittest.TestCase):
    def test_on_ranks(self):
        faults = run_on_ranks({
            "every stage is timed": every_stage_is_timed, "nothing recorded": nothing_recorded,
            "a backward pass ends behind the gradients of replicas": a_backward_pass_ends_behind_the_gradients_of_replicas,
            "steps between": steps_between_recorded_ones_are_left_alone, "no garbage": a_step_leaves_nothing_to_the_garbage_collector,
            "unpooled": groups_of_unpooled_tables_are_timed, "what takes long is in its group": what_takes_long_is_in_its_group,
        }, 2, 2)
        self.assertEqual({name: found for name, found in faults.items() if found}, {})


if __name__ == "__main__":
    with PlannerProcess(sys.argv[1]) as planner:
        ADDRESS = planner.address
        unittest.main(argv=sys.argv[:1] + sys.argv[3:])
