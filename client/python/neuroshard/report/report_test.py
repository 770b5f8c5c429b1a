"""What reports say, and what bad input gets."""

import contextlib
import html
import io
import json
import math
import pathlib
import random
import re
import shutil
import sys
import tempfile
import unittest
from collections.abc import Sequence
from unittest import mock

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from neuroshard import report
from neuroshard.report import command, figures, markup, units
from neuroshard.report.answer import MEMORY_KINDS
from neuroshard.report.bars import BarChart, BarRow
from neuroshard.report.input_files import InputError, read_plan
from neuroshard.report.plan_page import KIND_STYLE, STAGE_STYLE
from neuroshard.v1 import planner_pb2

ROOT = next(p for p in pathlib.Path(__file__).resolve().parents if (p / "configs").is_dir())
MODELS = ROOT / "configs/models/cpu-amd-epyc"
HOSTILE = "<script>alert(1)</script>\"'&\u202e\x07"

try:
    import matplotlib
    import yaml
except ImportError:
    matplotlib = yaml = None


def response(tables, ranks, name="table_{}", shards=1):
    """A ShardPlanResponse with everything in it that a planner says."""
    message = planner_pb2.ShardPlanResponse(seed=7, request_fingerprint="f" * 64)
    message.plan.world_size, message.plan.local_world_size = ranks, min(ranks, 8)
    for t in range(tables):
        kind = "column_wise" if t % 2 else "table_wise"
        table = message.plan.tables.add(name=name.format(t), module="sparse.ebc", sharding_type=kind, compute_kernel="fused")
        for s in range(shards):
            table.shards.add(rows=1000 + t, col_offset=8 * s, cols=8, rank=(t + s) % ranks)
    message.cost.embedding_cost_ms, message.cost.interval_coverage = 1 + ranks, 0.9
    for r in range(ranks):
        rank = message.cost.ranks.add(rank=r, compute_ms=1 + r, forward_comm_ms=0.5, backward_comm_ms=0.5, total_ms=2 + r, dim_sum=64)
        rank.total_interval.low_ms, rank.total_interval.high_ms = 1.5 + r, 3 + r
        rank.memory.weights_bytes, rank.memory.total_bytes, rank.memory.capacity_bytes = 3 << 30, 3 << 30, 8 << 30
    message.lower_bound.cost_ms, message.lower_bound.kind, message.lower_bound.gap_percent = 0.9 * ranks, "certified", 11.1
    message.warnings.append("something was assumed")
    message.price_basis.text = "prices rest on measurements on AMD EPYC"
    explanation = message.explanations.add(table=name.format(0), sharding_type="table_wise")
    explanation.alternatives.add(sharding_type="row_wise", num_shards=ranks, embedding_cost_ms=1.5 * (1 + ranks))
    explanation.alternatives.add(sharding_type="grid_shard", reason="one host")
    return message


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "\n", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))


class InputDistribution(unittest.TestCase):
    """The distribution of ids: a stage of the total where nothing hides it."""

    def page(self, hidden):
        message = response(3, 2)
        for rank in message.cost.ranks:
            rank.input_dist_ms = 0.25
            if not hidden:
                rank.total_ms += 0.25
        return text_of(report.show(message).html)

    def test_it_is_stacked_where_it_counts(self):
        page = self.page(hidden=False)
        self.assertRegex(page, r"distribution of ids, \d+\s*%")
        self.assertIn("input_dist, ms", page)
        self.assertNotIn("beside the batch before", page)

    def test_hidden_it_is_said_and_not_stacked(self):
        page = self.page(hidden=True)
        self.assertNotRegex(page, r"distribution of ids, \d+")
        self.assertIn("input_dist, ms", page)
        self.assertRegex(page, r"distribution of ids takes 0\.25\d* ms at most, beside the batch before")

    def test_its_interval_is_beside_it(self):
        message = response(3, 2)
        for rank in message.cost.ranks:
            rank.input_dist_ms = 0.25
            rank.input_dist_interval.low_ms, rank.input_dist_interval.high_ms = 0.125, 0.75
        self.assertRegex(text_of(report.show(message).html), r"0\.12\d* to 0\.75")

    def test_not_priced_it_is_not_there(self):
        self.assertNotIn("input_dist", text_of(report.show(response(3, 2)).html))

    def test_sampled_batches_have_a_mean(self):
        message = response(3, 2)
        message.cost.mean_of_max_ms = 3.5
        self.assertRegex(text_of(report.show(message).html), r"On average over the sampled batches 3\.50* ms")


class HostMemory(unittest.TestCase):
    """Tables in host memory; a report without them says nothing of it."""

    def test_kernels_caches_and_hosts_are_shown(self):
        message = response(3, 2)
        message.plan.tables[0].compute_kernel = "fused_uvm_caching"
        message.plan.tables[0].cache_load_factor = 0.25
        message.plan.tables[1].compute_kernel = "fused_uvm"
        message.cost.ranks[0].memory.cache_state_bytes = 1 << 30
        message.plan.tables[2].compute_kernel = "key_value"
        message.plan.tables[2].cache_load_factor = 0.125
        message.cost.ssd.add(host=7, total_bytes=30 << 30, capacity_bytes=80 << 30)
        for host in range(40):
            message.cost.host_memory.add(host=host, total_bytes=3 << 30, capacity_bytes=8 << 30)
        lines = text_of(report.show(message).html).split("\n")
        for said in ("kernel", "fused_uvm_caching 0.25", "fused_uvm", "key_value 0.125"):
            self.assertIn(said, lines)
        text = "\n".join(lines)
        self.assertRegex(text, r"cache state, \d+")
        self.assertRegex(text, r"Tables in host memory: host 0 3\.0* GiB of 8\.0* GiB, .* and 8 more\.")
        self.assertRegex(text, r"Tables on SSD: host 7 30\.0* GiB of 80\.0* GiB\.")

    def test_every_kind_of_memory_has_a_style_of_its_own(self):
        styles = [KIND_STYLE[kind] for kind in MEMORY_KINDS]
        self.assertEqual(len(set(styles)), len(MEMORY_KINDS))
        self.assertLessEqual({colour for colour, _ in styles}, set(figures._COLOURS))

    def test_a_colour_means_one_thing(self):
        self.assertEqual({colour for colour, _ in KIND_STYLE.values()} & {colour for colour, _ in STAGE_STYLE.values()}, set())
        page = report.show(response(30, 4)).html
        tables = page[page.index("Where the tables went"):page.index("What moves") if "What moves" in page else None]
        coded = {colour for style in (KIND_STYLE, STAGE_STYLE) for colour, _ in style.values()}
        self.assertEqual({css for classes in re.findall(r'class="([^"]*)"', tables) for css in classes.split()} & coded, set())

    def test_without_any_there_is_nothing_of_it(self):
        text = text_of(report.show(response(3, 2)).html)
        for said in ("kernel\n", "cache state", "host memory"):
            self.assertNotIn(said, text)


class Files(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def write_plan(self, name, message):
        return self.write(name, json_format.MessageToJson(message, preserving_proto_field_name=True))

    def run_command(self, *arguments):
        """(exit code, what it said)"""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            try:
                code = command.main([str(a) for a in arguments])
            except SystemExit as end:
                code = end.code
        return code, errors.getvalue()

    def page(self, *arguments):
        code, errors = self.run_command(*arguments, "--out", self.folder / "out.html")
        self.assertEqual((code, errors), (0, f"written to {self.folder / 'out.html'}\n"))
        return (self.folder / "out.html").read_text()


class PlanTest(Files):
    def test_every_rank_and_table_is_in_it(self):
        for tables, ranks in ((10, 2), (300, 128)):
            page = self.page(self.write_plan("plan.json", response(tables, ranks)))
            # Cost and memory, each as a bar and in numbers.
            self.assertEqual([r for r in range(ranks) if page.count(f'<th scope="row">{r}</th>') != 4], [])
            text = text_of(page)
            lines = set(text.split("\n"))
            places = set(text[text.index("Where the tables went"):text.index("Why these types")].split("\n"))
            self.assertEqual([t for t in range(tables) if f"table_{t}" not in places], [])
            totals = [f"{2 + r:,.{units.decimals_for([1 + ranks])}f}" for r in range(ranks)]
            self.assertEqual([t for t in totals if t not in lines], [])
            self.assertIn(f"{tables} embedding tables on {ranks} ranks", text)
            for said in ("Prices rest on measurements on AMD EPYC.", "something was assumed", "column_wise", "37.5 %", "certified", "one host", "90 % within", "f" * 64):
                self.assertIn(said, text)

    def test_what_holds_the_bound_is_said(self):
        message = response(3, 2)
        limit = message.lower_bound.limit
        limit.table, limit.rank, limit.shard_ms, limit.every_rank_ms, limit.every_rank_tables = "table_1", 1, 0.8, 1, 2
        self.assertIn("a shard of table_1 costs 0.800 ms at least, beside 1.000 ms that every rank has of 2 other tables; it is on rank 1. It cannot be cut further.",
                      text_of(self.page(self.write_plan("plan.json", message))))
        limit.rules.add(path="constraints.column_rule", text="one width")
        limit.bound_without_ms, limit.cost_without_ms = 1.5, 1.7
        self.assertIn("Without constraints.column_rule (one width) the bound is 1.500 ms, and a plan costs 1.700 ms.", text_of(self.page(self.write_plan("plan.json", message))))

    def test_text_of_files_is_never_markup(self):
        message = response(3, 2, HOSTILE + "{}")
        message.warnings.append(HOSTILE)
        message.cost_model.name = HOSTILE
        message.lower_bound.kind = message.lower_bound.scope = message.price_basis.text = HOSTILE
        message.lower_bound.limit.table = HOSTILE
        message.lower_bound.limit.rules.add(path=HOSTILE, text=HOSTILE)
        for table in message.plan.tables:
            table.sharding_type = table.module = HOSTILE
        for explanation in message.explanations:
            explanation.sharding_type = HOSTILE
            explanation.alternatives.add(sharding_type=HOSTILE * 2, reason=HOSTILE)
        for rank in message.cost.ranks:
            rank.total_ms, rank.compute_ms, rank.memory.total_bytes = math.nan, math.inf, -1
        validation = {"ranks": [{"rank": 0, "problem": HOSTILE, "stages": {}}], "collectives": [], "embedding_cost": {},
                      "measured_with": {"device": HOSTILE, "backend": HOSTILE, "collective_backend": HOSTILE}, "notes": [HOSTILE, "\ud800"]}
        plan = self.write_plan("plan.json", message)
        page = self.page(plan, "--compare", plan, "--measured", self.write("v.json", validation))
        self.assertNotIn("<script", page)
        self.assertNotIn("\u202e", page)
        self.assertNotIn("\x07", page)
        self.assertEqual(re.findall(r"<(?:meta|path|rect|line|circle)[^>]*[^/]>", page), [])
        self.assertIn("<script>alert(1)</script>\"'&", text_of(page))
        self.assertNotRegex(page, r"(?:nan|inf)%")

    def test_nonsense_is_drawn_too(self):
        """Every field may be any value of its type: no exception, and no number that CSS does not know."""
        values = {
            FieldDescriptor.CPPTYPE_DOUBLE: (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-320, 1.7e308),
            FieldDescriptor.CPPTYPE_INT32: (0, -1, 2**31 - 1, -(2**31)),
            FieldDescriptor.CPPTYPE_INT64: (0, -1, 2**63 - 1, -(2**63)),
            FieldDescriptor.CPPTYPE_STRING: ("", HOSTILE, "x" * 3000),
        }

        def spoil(message, draw, share):
            for field, value in message.ListFields():
                if field.message_type:
                    for one in value if isinstance(value, Sequence) else [value]:
                        spoil(one, draw, share)
                elif draw.random() < share and field.cpp_type in values and not isinstance(value, Sequence):
                    setattr(message, field.name, draw.choice(values[field.cpp_type]))

        for seed in range(60):
            draw = random.Random(seed)
            messages = [response(draw.choice((1, 5, 40)), draw.choice((1, 3, 40))) for _ in range(2)]
            for message in messages:
                spoil(message, draw, draw.choice((0.02, 0.2, 0.9)))
            with self.subTest(seed):
                self.assertNotRegex(report.show(messages[0], before=messages[1]).html, "(nan|inf) ?%|<script")

    def test_the_size_is_bounded(self):
        message = response(6000, 1100, "&" * 400 + "{}", shards=60)
        page = report.show(message, before=response(6000, 1100, "'" * 400 + "{}", shards=50)).html
        self.assertLess(len(page.encode()), 12_000_000)
        self.assertIn("2,000 smaller tables are not listed", text_of(page))
        self.assertIn("76 more ranks are not listed", text_of(page))
        self.assertLess(len(report.show(response(2000, 128, shards=16)).html), 2_000_000)

    def test_before_and_after(self):
        before, after = response(10, 2), response(10, 2)
        before.cost.embedding_cost_ms = 6
        after.plan.tables[3].sharding_type = "row_wise"
        after.plan.tables[4].shards[0].rank = 1
        after.plan.tables.add(name="new_table", sharding_type="table_wise").shards.add(rows=1, cols=4)
        del before.plan.tables[9]
        text = text_of(self.page(self.write_plan("after.json", after), "--compare", self.write_plan("before.json", before)))
        self.assertIn("take 3.000 ms, 50.0 % less than before", text)
        changed = text[text.index("What changed"):]
        self.assertIn("4 tables of 11", changed)
        for name in ("table_3", "table_4", "table_9", "new_table"):
            self.assertIn(f"\n{name}\n", changed)
        self.assertNotIn("\ntable_5\n", changed)

    def test_evaluations_and_bare_plans(self):
        full = response(4, 2)
        evaluation = planner_pb2.EvaluatePlanResponse(cost=full.cost)
        evaluation.violations.add(field="plan.tables[0]", description="is not in the request")
        text = text_of(self.page(self.write("e.json", '{"legal": false,' + json_format.MessageToJson(evaluation, preserving_proto_field_name=True)[1:])))
        self.assertIn("breaks 1 rule", text)
        self.assertIn("plan.tables[0]: is not in the request", text)
        self.assertIn("table_3", text_of(self.page(self.write_plan("bare.json", full.plan))))

    def test_a_plan_in_torchrecs_form_is_read(self):
        shard = {"shard_offsets": [0, 0], "shard_sizes": [100, 8], "placement": "rank:1/cuda:1"}
        tables = {"a": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1], "shards": [shard]},
                  "b": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1], "shards": None}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.json"
            path.write_text(json.dumps({"format": "neuroshard-torchrec/1", "plan": {"ebc": tables}}))
            plan = read_plan(path)
            self.assertEqual((plan.world_size, [table.name for table in plan.tables]), (2, ["a", "b"]))
            self.assertEqual([(shard.rows, shard.cols, shard.rank) for shard in plan.tables[0].shards], [(100, 8, 1)])
            path.write_text(json.dumps({"plan": {"ebc": {"a": {"sharding_type": "table_wise"}}}}))
            with self.assertRaisesRegex(InputError, "is not a plan in TorchRec's form"):
                read_plan(path)

    def test_what_was_asked_and_done_is_said(self):
        message = response(10, 4)
        message.global_batch_size = 65536
        message.cost_model.name, message.cost_model.version = "cpu-amd-epyc", 4
        message.plan.tables[3].compute_kernel = "fused_uvm"
        text = text_of(report.show(message).html)
        for said in ("The batch is 65,536 in all, 16,384 a rank.", "Priced by cost model cpu-amd-epyc version 4.", "1 table in host memory or on SSD: table_3."):
            self.assertIn(said, text)
        evaluation = planner_pb2.EvaluatePlanResponse(cost=message.cost, cost_model=message.cost_model, global_batch_size=10)
        self.assertIn("The batch is 10 in all, 2.5 a rank.", text_of(report.show(evaluation).html))

    def test_formulas_are_no_forecast(self):
        message = response(10, 2)
        measured = text_of(report.show(message).html)
        self.assertIn("\nThe embeddings of one iteration take 3.000 ms", measured)
        self.assertIn("11.1 % above the least that any plan can cost at the same prices.", measured)
        self.assertNotIn("formulas", measured)
        message.price_basis.kind = "published"
        published = text_of(report.show(message).html)
        for said in ("\nBy formulas, the embeddings of one iteration take 3.000 ms", "above the least that any plan can cost by the same formulas."):
            self.assertIn(said, published)

    def test_the_comparison_of_strategies_is_in_it(self):
        message = response(4, 2)
        message.search.strategy, message.search.search_ms = "refine", 12.5
        message.comparison.add(strategy="size_greedy", embedding_cost_ms=6, cost_ratio=2, legal=True, search_ms=0.5)
        message.comparison.add(strategy="hugectr_auto", embedding_cost_ms=4.5, cost_ratio=1.5, search_ms=0.25, without_constraints=True).violations.add(
            field="constraints.tables[0]", description="wants rank 1")
        message.comparison.add(strategy="random", failure="90 bytes short")
        text = text_of(self.page(self.write_plan("p.json", message)))
        section = re.sub(r"\n+", "|", text[text.index("Other strategies"):text.index("Cost of each rank")])
        for said in ("refine (this plan)|3.000|12.5|", "size_greedy|6.000|+100.0 %|0.5|", "hugectr_auto|4.500|+50.0 %|0.2|illegal, constraints ignored|",
                     "random|–|–|–|no plan|", "random: no plan: 90 bytes short", "hugectr_auto: breaks 1 rule: constraints.tables[0]: wants rank 1"):
            self.assertIn(said, section)
        self.assertNotIn("Other strategies", text_of(report.show(response(4, 2)).html))

    def test_measurements(self):
        stage = {"predicted_ms": 1.0, "measured_ms": 1.25, "relative_error": -0.2, "interval": {"low_ms": 0.9, "high_ms": 1.2}, "inside": False}
        validation = {"ranks": [{"rank": 0, "stages": {"total": stage}, "problem": ""}, {"rank": 1, "stages": {"total": {}}, "problem": "out of memory"}],
                      "collectives": [], "measured_with": {"device": "d", "backend": "b"}, "embedding_cost": {"measured_ms": 4.0}, "notes": ["a note"]}
        text = text_of(self.page(self.write_plan("p.json", response(4, 2)), "--measured", self.write("v.json", validation)))
        for said in ("Measured 4.000 ms", "−20.0 %", "1.250", "rank 1: out of memory", "a note", "0 of 1"):
            self.assertIn(said, text)
        self.assertNotIn("Distribution of ids", text)
        validation["ranks"][0]["stages"]["input_dist"] = {"predicted_ms": 0.5, "measured_ms": 0.625}
        text = text_of(self.page(self.write_plan("p.json", response(4, 2)), "--measured", self.write("v.json", validation)))
        self.assertIn("Distribution of ids", text)
        self.assertIn("0.625", text)


class BadInputTest(Files):
    def refused(self, *arguments):
        out = self.folder / "bad" / "out.html"
        code, errors = self.run_command(*arguments, "--out", out)
        self.assertEqual(code, 1, errors)
        self.assertFalse(out.parent.exists())
        return errors

    def test_files_that_are_no_answer(self):
        whole = json_format.MessageToJson(response(4, 2), preserving_proto_field_name=True)
        cases = {
            "truncated": (whole[: len(whole) // 2], r"error: .*truncated.json: line \d+, column \d+: syntax error"),
            "text": ("hello", r"line 1, column 1: syntax error"),
            "empty": ("", r"line 1, column 1: syntax error"),
            "bare": ("{}", "has no tables and no cost"),
            "list": ("[1]", r"1 fault in the input\n  .*: \(document\): must be a mapping, got a list"),
            "deep": ("[" * 100_000, "nested too deeply|syntax error"),
            "twice": ('{"plan": {}, "plan": {}}', "plan: is given twice"),
            "type": ('{"plan": {"world_size": "two"}}', r"plan.world_size: must be an integer of 32 bits, got 'two'"),
            "huge": ('{"plan": {"world_size": ' + "9" * 5000 + "}}", "huge.json: "),
            "surrogate": ('{"tables": [{"name": "\\ud800"}]}', "surrogate.json: "),
        }
        for name, (content, said) in cases.items():
            with self.subTest(name):
                self.assertRegex(self.refused(self.write(f"{name}.json", content)), said)
        self.assertRegex(self.refused(self.folder / "missing.json"), "error: cannot open .*missing.json: No such file")
        self.assertRegex(self.refused(self.folder), "Is a directory")
        (self.folder / "bytes.json").write_bytes(b"\xff")
        self.assertIn("is not UTF-8", self.refused(self.folder / "bytes.json"))

    def test_plans_of_two_models_are_not_compared(self):
        other = response(10, 2)
        for table in other.plan.tables:
            table.name += "_of_another"
        errors = self.refused(self.write_plan("plan.json", response(10, 2)), "--compare", self.write_plan("other.json", other))
        self.assertRegex(errors, r"other\.json: has no table of \S*plan\.json: a plan of another model")

    def test_a_newer_format_is_refused_with_every_field(self):
        newer = self.write("newer.json", {"plan": {"world_size": 2, "zone": 3, "tables": [{"name": "a", "colour": 1}]}, "future": 1})
        self.assertRegex(self.refused(newer), (
            "^error: 3 faults in the input\n"
            f"  {newer}: plan.zone: unknown field; known: world_size, .*\n"
            f"  {newer}: plan.tables\\[0\\].colour: unknown field; known: name, .*\n"
            f"  {newer}: future: unknown field; known: plan, .*\n$"))

    def test_faults_of_all_files_are_listed(self):
        plan, other, validation = (self.write(f"{n}.json", {n: 1}) for n in ("a", "b", "c"))
        errors = self.refused(plan, "--compare", other, "--measured", validation)
        for name in "abc":
            self.assertIn(f"{name}.json: {name}: unknown field", errors)
        self.assertIn("c.json: ranks: is required", errors)

    def test_values_of_a_validation_have_types(self):
        ranks = [{"rank": "0", "stages": {"total": {"measured_ms": "fast"}}}]
        validation = {"ranks": ranks, "collectives": [], "measured_with": None, "embedding_cost": {}, "notes": [1]}
        errors = self.refused(self.write_plan("p.json", response(1, 1)), "--measured", self.write("v.json", validation))
        for said in ("ranks[0].rank: must be an integer, got a text", "ranks[0].stages.total.measured_ms: must be a number", "notes[0]: must be a text"):
            self.assertIn(said, errors)

    def test_usage_errors_are_exit_2(self):
        plan = self.write_plan("p.json", response(1, 1))
        for arguments in ((), (plan,), (plan, "--model", "x", "--out", "y"), ("--model", "x", "--compare", plan, "--out", "y")):
            self.assertEqual(self.run_command(*arguments)[0], 2)

    def test_what_is_there_stays_when_writing_fails(self):
        plan = self.write_plan("p.json", response(1, 1))
        out = self.write("out.html", "before")
        with mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
            code, errors = self.run_command(plan, "--out", out)
        self.assertEqual((code, errors), (1, f"error: cannot write {out}: No space left on device\n"))
        self.assertEqual(out.read_text(), "before")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["out.html", "p.json"])


class NotebookTest(unittest.TestCase):
    def test_a_plan_shows_itself_in_a_frame_without_scripts(self):
        shown = report.show(response(3, 2, HOSTILE + "{}"))._repr_html_()
        self.assertRegex(shown, r'^<iframe sandbox="" srcdoc="[^"]*" style="[^"]*"></iframe>$')
        self.assertNotIn("<script", shown)
        self.assertIn("<h2>Cost of each rank</h2>", html.unescape(shown))
        with self.assertRaisesRegex(TypeError, "got ShardPlanRequest"):
            report.show(planner_pb2.ShardPlanRequest())

    def test_the_extension_shows_messages(self):
        formatters = {}
        ipython = mock.Mock()
        ipython.display_formatter.formatters = {"text/html": mock.Mock(for_type=formatters.__setitem__)}
        report.load_ipython_extension(ipython)
        self.assertIn("<iframe", formatters[planner_pb2.ShardPlanResponse](response(1, 1)))


class UnitsTest(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual(units.size(168.45 * 2**20), "168.45 MiB")
        self.assertEqual(units.change(1.034), "+3.4 %")
        self.assertEqual([units.change(r) for r in (0.9, 1.0001, 0.9999, math.nan)], ["−10.0 %", "0.0 %", "0.0 %", "–"])
        self.assertEqual(units.number(math.nan, 2), "–")
        self.assertEqual([units.decimals_for([v]) for v in (1150, 42.9, 1.58, 0.05, 0)], [1, 2, 3, 5, 3])
        self.assertEqual(units.number_ranges([5, 0, 1, 2, 8, 9]), "0–2, 5, 8, 9")
        self.assertEqual(units.number_ranges(range(0, 40, 2), 3), "0, 2, 4 and 17 more runs")
        for top in (1e-9, 0.3, 1, 9.99, 1234.5, 1e300):
            self.assertTrue(3 <= top / units.axis_step(top) <= 7, top)

    def test_labels_of_an_axis_are_exact(self):
        for exponent in range(-9, 7):
            for tenths in range(10, 100):
                page = BarChart("rank", [], [("blue", "")], [BarRow("0", [tenths * 10.0**exponent])], unit="").render()
                marks = [(float(text.replace(",", "")), float(left)) for left, text in re.findall(r'<span style="left:([0-9.]+)%">([0-9.,]+) ?</span>', page)]
                self.assertGreaterEqual(len(marks), 4)
                step = marks[1][0]
                for i, (label, left) in enumerate(marks):
                    self.assertTrue(math.isclose(label, i * step, rel_tol=1e-9), (tenths, exponent, marks))
                    self.assertAlmostEqual(left, i * marks[-1][1] / (len(marks) - 1), delta=0.02)

    def test_long_names_are_cut_in_the_middle(self):
        self.assertEqual(markup.printable("a" * 50 + "z" * 50, 11), "aaaaa…zzzzz")


@unittest.skipIf(yaml is None, "the extra [report] (matplotlib, PyYAML) is not installed")
class ModelTest(Files):
    def model(self):
        directory = self.folder / "m"
        shutil.copytree(MODELS / "3", directory)
        return directory

    def test_error_by_size_learning_curve_and_drift(self):
        directory = self.model()
        (directory / "drift.yaml").write_text(
            "format: neuroshard-drift/1\nstages:\n  compute: {samples: 12, median_ratio: 1.25, p10: 1.1, p90: 1.4, since: a, until: b}\n")
        (directory / "held_out.csv").write_text('network,measured_ms,predicted_ms\n"compute",1,1.1\n"compute",0,0.1\n"compute, unseen tables",2,2.5\n')
        text = text_of(self.page("--model", directory))
        for said in ("Cost model cpu-amd-epyc version 3", "off by 8.0 % on average", "compute, unseen tables", "13,775", "10.44", "1.250",
                     "1 not above 0 left out"):
            self.assertIn(said, text)

    def test_bad_models(self):
        def refused(directory):
            code, errors = self.run_command("--model", directory, "--out", self.folder / "no.html")
            self.assertEqual(code, 1)
            self.assertFalse((self.folder / "no.html").exists())
            return errors

        self.assertIn("cannot open", refused(self.folder / "nowhere"))
        directory = self.model()
        manifest = (directory / "model.yaml").read_text()
        (directory / "model.yaml").write_text(manifest.replace("neuroshard-cost-model/2", "neuroshard-cost-model/3"))
        self.assertIn("format: must be neuroshard-cost-model/1 or neuroshard-cost-model/2, got neuroshard-cost-model/3", refused(directory))
        (directory / "model.yaml").write_text("a: [")
        self.assertIn("model.yaml: ", refused(directory))
        (directory / "model.yaml").write_text(manifest)
        (directory / "held_out.csv").write_text("network,measured_ms,predicted_ms\ncompute,1\n")
        self.assertIn("held_out.csv: line 2", refused(directory))
        (directory / "held_out.csv").unlink()
        (directory / "drift.yaml").write_text("format: neuroshard-drift/1\nstages: {compute: {samples: many}}\n")
        self.assertIn("stages.compute.median_ratio: must be a number", refused(directory))
        (directory / "drift.yaml").unlink()
        (directory / "REPORT.md").write_text("# nothing\n")
        self.assertIn("has no table of networks", refused(directory))

    def test_png_files(self):
        plan = self.write_plan("p.json", response(30, 64, "$x^{}$"))
        code, errors = self.run_command(plan, "--compare", plan, "--png", self.folder / "png")
        self.assertEqual(code, 0, errors)
        code, errors = self.run_command("--model", MODELS / "3", "--png", self.folder / "png")
        self.assertEqual(code, 0, errors)
        drawn = {p.name: p.read_bytes() for p in (self.folder / "png").iterdir()}
        self.assertEqual(set(drawn), {"cost.png", "memory.png", "error.png", "error_by_size.png", "learning_curve.png"})
        for content in drawn.values():
            self.assertTrue(content.startswith(b"\x89PNG") and len(content) > 5000)


class WithoutExtraTest(Files):
    def test_what_is_missing_is_said(self):
        plan = self.write_plan("p.json", response(1, 1))
        with mock.patch.dict(sys.modules, {"matplotlib": None, "matplotlib.figure": None, "matplotlib.backends.backend_agg": None, "yaml": None}):
            self.assertEqual(self.run_command(plan, "--png", self.folder / "png"), (1, "error: --png: needs matplotlib: pip install neuroshard[report]\n"))
            self.assertIn("needs PyYAML: pip install neuroshard[report]", self.run_command("--model", MODELS / "3", "--out", self.folder / "x")[1])
        self.assertFalse((self.folder / "png").exists())


if __name__ == "__main__":
    unittest.main()
