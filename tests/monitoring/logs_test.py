#!/usr/bin/env python3
"""Logs of real servers: JSON whatever callers send, one request id and trace from the command line to every server, audits, quotas.

    logs_test.py NEUROSHARD_PLANNER NEUROSHARD_WORKER NEUROSHARD
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import grpc
import yaml
from neuroshard import PlannerClient, errors, v1
from neuroshard.v1.planner_pb2_grpc import PlannerServiceStub
from neuroshard.v1.worker_pb2_grpc import WorkerServiceStub
from planner_process import MODELS, NativeWorkerProcess, PlannerProcess

PLANNER, WORKER, NEUROSHARD = sys.argv[1:]
MAKE_CERTS = pathlib.Path(__file__).resolve().parents[2] / "deploy/make_dev_certs.sh"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
HOSTILE = ['"', "\\", "\n", "\r", "\t", "\x00", "\x1b[31m", "\u2028", "\x7f", "é", "😀", "%s", "{}", "a=b", ' "event":"x"}', "\u202e"]
SWEEP = f"""
kind: compute
seed: 1
num_samples: 8
tables: {pathlib.Path(__file__).resolve().parents[2]}/configs/workloads/dlrm_2021_tables856.csv
dims: [16, 8]
min_tables: 1
max_tables: 2
max_weights_bytes: 16777216
batch_size: 96
optimizer: sgd
settings: {{warmup_iterations: 1, min_iterations: 3, max_iterations: 3, flush_cache: false}}
"""
REQUEST = """
tables: [{name: t, num_embeddings: 1000, embedding_dim: 16, pooling_factor: 4}]
topology: {hosts: [{num_devices: 2, memory_bytes: 1GB}]}
global_batch_size: 1024
cost_model: {name: analytic}
search: {strategy: size_greedy}
"""


def request(**more):
    return v1.ShardPlanRequest(
        tables=[v1.Table(name="t", num_embeddings=1000, embedding_dim=16, pooling_factor=4)], global_batch_size=1024,
        topology=v1.Topology(hosts=[v1.HostGroup(num_devices=2, memory_bytes=1 << 30)]), cost_model=v1.CostModelRef(name="analytic"),
        search=v1.SearchOptions(strategy="size_greedy"), **more)


def events(server, name=None):
    """The log's lines, each of which has to be an object; of one event alone where it is named."""
    lines = [json.loads(line) for line in server.log().splitlines()]
    for line in lines:
        assert {"time", "level", "event"} <= set(line), line
    return [line for line in lines if name in (None, line["event"])]


class Servers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, kind, binary, config="log_format: json"):
        server = kind(binary, config=config)
        self.addCleanup(server.stop)
        return server

    def run_command(self, *arguments, environment=()):
        return subprocess.run([NEUROSHARD, *arguments], cwd=self.folder, env={**os.environ, **dict(environment)}, capture_output=True, text=True, timeout=120)


# The address of metrics is found in the log by planner_process.py, in text.
class JsonPlanner(PlannerProcess):
    @property
    def metrics_address(self):
        return events(self, "metrics_listening")[0]["address"]


class LogsTest(Servers):
    def test_every_line_is_json_whatever_callers_send(self):
        planner = self.start(JsonPlanner, PLANNER)
        random.seed(5)
        ids = ["".join(random.choices(HOSTILE, k=random.randint(1, 6))) for _ in range(60)]
        with grpc.insecure_channel(planner.address) as channel:
            stub = PlannerServiceStub(channel)
            for number, text in enumerate(ids):
                sent = request(request_id=text)
                if number % 3 == 1:
                    sent.cost_model.name = text
                if number % 3 == 2:
                    sent.tables[0].name = sent.search.strategy = text
                try:
                    stub.ShardPlan(sent, timeout=60, metadata=(("x-request-id", 'a"\\b'), ("traceparent", text.encode("unicode_escape").decode())))
                except grpc.RpcError as fault:
                    self.assertIn(fault.code(), (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND))
            for garbage in (b"\xff" * 20, b"\x0a\x7f"):
                call = channel.unary_unary("/neuroshard.v1.PlannerService/ShardPlan", request_serializer=bytes, response_deserializer=bytes)
                with self.assertRaises(grpc.RpcError) as caught:
                    call(garbage, timeout=60, metadata=(("x-request-id", "undecodable"),))
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            with self.assertRaises(grpc.RpcError):
                channel.unary_unary('/x"y\\/z', request_serializer=bytes, response_deserializer=bytes)(b"", timeout=60)
        made = events(planner, "plan_made")
        ended = [line for line in events(planner) if line["event"] in ("plan_made", "call_failed")]
        self.assertEqual([line["request_id"] for line in ended], ids + ["undecodable"] * 2)
        self.assertTrue(made)
        self.assertEqual({type(made[0][key]) for key in ("tables", "ranks", "version")}, {int})
        self.assertIs(made[0]["time_limit_reached"], False)
        self.assertEqual([line["path"] for line in events(planner, "call_refused")], ['/x"y\\/z'])
        self.assertIn('neuroshard_rpc_requests_total{code="UNIMPLEMENTED",rpc="other"} 1', planner.metrics())
        self.assertIn('neuroshard_rpc_requests_total{code="INVALID_ARGUMENT",rpc="ShardPlan"}', planner.metrics())

    def test_a_line_has_every_option_of_the_shipped_configuration(self):
        def keys(value, path=""):
            return [path] if not isinstance(value, dict) else [key for name, below in value.items() for key in keys(below, f"{path}.{name}".strip("."))]

        for kind, binary, file in ((JsonPlanner, PLANNER, "planner.yaml"), (NativeWorkerProcess, WORKER, "worker.yaml")):
            stated = keys(yaml.safe_load((pathlib.Path(__file__).resolve().parents[2] / "configs" / file).read_text()))
            line = events(self.start(kind, binary), "options")[0]
            self.assertGreater(len(stated), 10)
            self.assertEqual([key for key in stated if key not in line], [], line)
            self.assertLessEqual({"insecure", "tls", "tls.roles", "rpc.max_connections", "rpc.min_ping_interval_ms"}, set(line))
            self.assertIs(line["tls"], False)

    def test_lines_of_grpc_are_json_too(self):
        folder = self.folder / "certs"
        subprocess.run([MAKE_CERTS, folder], check=True)
        tls = {"certificate": str(folder / "server.pem"), "key": str(folder / "server.key"), "client_ca": str(folder / "ca.pem"), "roles": {"plan": ["x"]}}
        planner = self.start(JsonPlanner, PLANNER, config=json.dumps({"log_format": "json", "tls": tls}))
        with grpc.insecure_channel(planner.address) as channel, self.assertRaises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)
        lines = events(planner, "grpc")
        self.assertTrue(lines)
        self.assertIn("Handshake failed", " ".join(line["message"] for line in lines))
        self.assertEqual(events(planner, "options")[0]["tls.roles"], "plan")

    def test_who_watches_health_and_leaves_is_no_failure(self):
        planners = [self.start(JsonPlanner, PLANNER) for _ in range(2)]
        listed = self.run_command("models", "list", "--planner", ",".join(planner.address for planner in planners))
        self.assertEqual(listed.returncode, 0, listed.stderr)
        with grpc.insecure_channel(planners[0].address) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=bytes, response_deserializer=bytes)
            stays = watch(b"", timeout=60)
            self.assertEqual(next(stays), b"\x08\x01")  # SERVING
            stays.cancel()
            for _ in range(300):  # some while the first answer is written
                watch(b"", timeout=60).cancel()
        for planner in planners:
            planner.drain()
            planner.process.wait(timeout=60)  # every call has ended
            self.assertEqual(events(planner, "call_refused"), [])

    def test_probes(self):
        def status(server, path):
            try:
                with urllib.request.urlopen(f"http://{server.metrics_address}{path}", timeout=10) as answer:
                    return answer.status
            except urllib.error.HTTPError as fault:
                return fault.code

        for server in (self.start(PlannerProcess, PLANNER, config=""), self.start(NativeWorkerProcess, WORKER, config="")):
            self.assertEqual([status(server, path) for path in ("/healthz", "/readyz", "/metrics", "/x")], [200, 200, 200, 404])
        leaving = self.start(PlannerProcess, PLANNER, config="rpc: {drain_notice_ms: 60000}")
        leaving.drain()
        give_up = time.monotonic() + 30
        while status(leaving, "/readyz") == 200:
            self.assertLess(time.monotonic(), give_up)
        self.assertEqual([status(leaving, path) for path in ("/healthz", "/readyz")], [200, 503])

    def test_the_level_changes_at_sighup(self):
        planner = self.start(JsonPlanner, PLANNER, config="{log_format: json, log_level: error}")
        config = planner.process.args[planner.process.args.index("--config") + 1]
        for level, shown in (("info", 1), ("error", 1), ("nonsense", 1), ("info", 2)):
            pathlib.Path(config).write_text(f"{{log_format: json, log_level: {level}}}")
            told = len(events(planner, "log_level_set")) + len(events(planner, "log_level_unknown"))
            planner.process.send_signal(signal.SIGHUP)
            give_up = time.monotonic() + 30
            while len(events(planner, "log_level_set")) + len(events(planner, "log_level_unknown")) == told:
                self.assertLess(time.monotonic(), give_up)
            with PlannerClient(planner.address) as client:
                client.plan(request())
            self.assertEqual(len(events(planner, "plan_made")), shown, level)

    def test_sighup_says_what_it_read_and_what_needs_a_restart(self):
        planner = self.start(JsonPlanner, PLANNER, config="{log_format: json, log_level: debug, rpc: {max_in_flight: 5, drain_grace_ms: 10}}")
        config = pathlib.Path(planner.process.args[planner.process.args.index("--config") + 1])

        def after_hangup(event, count):
            planner.process.send_signal(signal.SIGHUP)
            give_up = time.monotonic() + 30
            while len(events(planner, event)) < count:
                self.assertLess(time.monotonic(), give_up)
            return events(planner, event)[-1]

        config.write_text("{log_format: json, rpc: {max_in_flight: 6, drain_grace_ms: 10}, models: {default: analytic}}")
        self.assertEqual(after_hangup("restart_needed", 1)["keys"], "models.default, rpc.max_in_flight")
        self.assertEqual([line["level"] for line in events(planner, "log_level_set")], ["info"])  # the default again
        config.write_text("log_format: [")
        self.assertIn("config.yaml", after_hangup("config_unreadable", 1)["reason"])

    def test_answers_say_that_the_stated_default_is_gone(self):
        models = self.folder / "models"
        shutil.copytree(MODELS, models)
        planner = PlannerProcess(PLANNER, config="models: {default: cpu-amd-epyc}", models=str(models))
        self.addCleanup(planner.stop)
        of_cpus = request()
        of_cpus.ClearField("cost_model")
        of_cpus.topology.compute_device = "cpu"

        def missing():
            with PlannerClient(planner.address) as client:
                return [warning for warning in client.plan(of_cpus).warnings if "default cost model is missing" in warning]

        self.assertEqual(missing(), [])
        (models / "cpu-amd-epyc").rename(self.folder / "gone")
        planner.process.send_signal(signal.SIGHUP)
        give_up = time.monotonic() + 30
        while not (said := missing()):
            self.assertLess(time.monotonic(), give_up)
        self.assertIn("no cost model cpu-amd-epyc", said[0])

    def test_clients_may_ping(self):
        for interval_ms, ends in ((1000, "well"), (10_000, "badly")):  # a client of gRPC pings once a second at most, and the third ping too early ends its connection
            planner = self.start(PlannerProcess, PLANNER, config=f"rpc: {{min_ping_interval_ms: {interval_ms}}}")
            long = request()
            long.tables.extend(v1.Table(name=f"t{i}", num_embeddings=1000 + i, embedding_dim=16, pooling_factor=4 + i) for i in range(60))
            long.topology.hosts[0].num_devices = 8
            long.search.strategy, long.search.time_budget_ms, long.search.refine_steps = "refine", 6000, 1 << 40
            options = (("grpc.keepalive_time_ms", 100), ("grpc.http2.max_pings_without_data", 0))
            with self.subTest(interval_ms=interval_ms), grpc.insecure_channel(planner.address, options=options) as channel:
                try:
                    answer = PlannerServiceStub(channel).ShardPlan(long, timeout=60)
                    self.assertEqual((ends, len(answer.plan.tables)), ("well", 61))
                except grpc.RpcError as fault:
                    self.assertEqual(ends, "badly", fault)
                    self.assertIn("Too many pings", fault.details())

    def test_one_id_and_trace_from_the_command_to_every_worker(self):
        workers = [self.start(NativeWorkerProcess, WORKER) for _ in range(2)]
        (self.folder / "sweep.yaml").write_text(SWEEP)
        swept = self.run_command("sweep", "compute", "sweep.yaml", "--workers", ",".join(worker.address for worker in workers), "--store", "s.db",
                                 environment={"TRACEPARENT": TRACEPARENT}.items())
        self.assertEqual(swept.returncode, 0, swept.stderr)
        ids = set()
        for worker in workers:
            # With so few samples the one that is ready first may have done all of them.
            leases = events(worker, "device_leased")
            self.assertEqual([line["device"] for line in events(worker, "device_returned")], [line["device"] for line in leases])
            for line in leases:
                self.assertEqual((line["trace_id"], line["caller"], line["rpc"], line["audit"]), (TRACE_ID, "127.0.0.1", "ProfileCompute", True))
                ids.add(line["request_id"])
        self.assertEqual(len(ids), 1)

    def test_groups_are_audited(self):
        worker = self.start(NativeWorkerProcess, WORKER, "{log_format: json, log_level: error}")
        with grpc.insecure_channel(worker.address) as channel:
            stub = WorkerServiceStub(channel)
            opened = stub.OpenCommGroup(v1.OpenCommGroupRequest(group_id="g", world_size=1, local_ranks=[v1.LocalRank(rank=0, device=0)]), timeout=60,
                                        metadata=(("x-request-id", "open"),))
            stub.CloseCommGroup(v1.CloseCommGroupRequest(group_id="g", token=opened.token), timeout=60, metadata=(("x-request-id", "close"),))
            stub.OpenCommGroup(v1.OpenCommGroupRequest(group_id="idle", world_size=1, idle_timeout_ms=100, local_ranks=[v1.LocalRank(rank=0, device=0)]), timeout=60)
            give_up = time.monotonic() + 60
            while len(events(worker)) < 4 and time.monotonic() < give_up:
                time.sleep(0.05)
        said = [(line["event"], line["group"], line.get("request_id"), line.get("caller"), line.get("reason")) for line in events(worker)]
        self.assertEqual(said[:2], [("comm_group_opened", "g", "open", "127.0.0.1", None), ("comm_group_closed", "g", "close", "127.0.0.1", None)])
        self.assertEqual(said[3], ("comm_group_closed", "idle", None, None, "idle"))


class QuotaTest(Servers):
    def test_a_caller_is_told_which_quota_and_when_and_can_quote_its_id(self):
        planner = self.start(JsonPlanner, PLANNER, "{log_format: json, quotas: {requests: 2, window_s: 3600}}")
        (self.folder / "request.yaml").write_text(REQUEST)
        with PlannerClient(planner.address, timeout_s=60, retries=0) as client:
            client.plan(request())
            client.plan(request())
            with self.assertRaises(errors.LimitExceeded) as caught:
                client.plan(request())
            fault = caught.exception
            self.assertEqual(fault.reason, "OVER_QUOTA")
            self.assertTrue(1700 < fault.retry_delay_s <= 1800, fault.retry_delay_s)
            self.assertRegex(str(fault), r"127.0.0.1 has used its quota of 2 requests in 3600 s .*; there is more in \d+ ms \(request id [0-9a-f]{16}\)$")
            client.models()  # cheap calls are always answered
        refused = self.run_command("plan", "request.yaml", "--planner", planner.address)
        self.assertNotEqual(refused.returncode, 0)
        quoted = re.search(r"\(request\s+id\s+([0-9a-f]{16})\)", refused.stderr)
        self.assertTrue(quoted, refused.stderr)
        self.assertEqual([line["request_id"] for line in events(planner, "call_failed")], [fault.request_id, quoted[1]])
        self.assertIn('neuroshard_rpc_shed_total{reason="OVER_QUOTA",rpc="ShardPlan"} 2', planner.metrics().replace("ShardPlanStream", "ShardPlan"))

    def test_seconds_of_search(self):
        planner = self.start(JsonPlanner, PLANNER, "{log_format: json, quotas: {search_seconds: 1, window_s: 3600}}")
        long = request()
        long.search.strategy, long.search.time_budget_ms, long.search.refine_steps = "refine", 1500, 1 << 40
        with PlannerClient(planner.address, timeout_s=60, retries=0) as client:
            client.plan(long)
            with self.assertRaises(errors.LimitExceeded) as caught:
                client.plan(request())
        self.assertRegex(caught.exception.message, "quota of 1 seconds of search in 3600 s")
        self.assertGreater(caught.exception.retry_delay_s, 1000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
