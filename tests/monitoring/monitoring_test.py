#!/usr/bin/env python3
"""deploy/prometheus and deploy/grafana against real servers and a real Prometheus: metrics that promtool accepts, rules that do what their test says,
and no panel without data.

    monitoring_test.py NEUROSHARD_PLANNER NEUROSHARD_WORKER CACHE

Prometheus is taken from PATH, else Debian's package is unpacked into CACHE, not installed. Exits 77, which ctest shows as skipped, where there is none
and Debian's mirrors cannot be reached.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import grpc
from debian_packages import unpacked
from held_port import HeldPort
from neuroshard import PlannerClient, PlannerError, v1
from neuroshard.v1.worker_pb2_grpc import WorkerServiceStub
from planner_process import MODELS, NativeWorkerProcess, PlannerProcess

PLANNER, WORKER, CACHE = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
SKIPPED = 77
DRIFT = """format: neuroshard-drift/1
stages:
  compute: {samples: 40, median_ratio: 1.2, p10: 0.9, p90: 1.5, since: 2026-01-01, until: 2026-01-02}
"""


def find_tools():
    """Paths of prometheus and promtool, by name; None where there are none."""
    names = ("prometheus", "promtool")
    if all(shutil.which(name) for name in names):
        return {name: shutil.which(name) for name in names}
    if unpacked(CACHE, ["prometheus"], "usr/bin/promtool") is None:
        return None
    return {name: str(CACHE / "usr/bin" / name) for name in names}


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


class MonitoringTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        models = cls.folder / "models"
        shutil.copytree(MODELS, models)
        (models / "cpu-amd-epyc/4/drift.yaml").write_text(DRIFT)
        cls.planner = PlannerProcess(PLANNER, models=str(models))
        cls.addClassCleanup(cls.planner.stop)
        cls.worker = NativeWorkerProcess(WORKER)
        cls.addClassCleanup(cls.worker.stop)
        cls.start_prometheus()
        cls.use_both()
        cls.wait_for_two_scrapes()

    @classmethod
    def start_prometheus(cls):
        """With the configuration of deploy/, but for the targets and how often they are scraped."""
        text = (DEPLOY / "prometheus/prometheus.yml").read_text()
        for old, new in (("planner-1:9464", cls.planner.metrics_address), ("gpu-host-1:9465", cls.worker.metrics_address), ("15s", "1s")):
            assert old in text, old
            text = text.replace(old, new)
        (cls.folder / "prometheus.yml").write_text(text)
        shutil.copy(DEPLOY / "prometheus/alerts.yml", cls.folder)
        port = HeldPort()
        cls.addClassCleanup(port.close)
        cls.prometheus = f"http://{port.address}"
        log = open(cls.folder / "prometheus.log", "w", encoding="utf-8")  # noqa: SIM115
        cls.addClassCleanup(log.close)
        process = subprocess.Popen(
            [TOOLS["prometheus"], f"--config.file={cls.folder / 'prometheus.yml'}", f"--storage.tsdb.path={cls.folder / 'data'}", f"--web.listen-address={port.address}"],
            stdout=log, stderr=log)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)

    @classmethod
    def use_both(cls):
        """A plan, a call without one, a measurement."""
        request = v1.ShardPlanRequest(
            tables=[v1.Table(name=f"t{i}", num_embeddings=1000, embedding_dim=16, pooling_factor=4) for i in range(4)], global_batch_size=1024,
            topology=v1.Topology(hosts=[v1.HostGroup(num_devices=2, memory_bytes=1 << 30)]), search=v1.SearchOptions(strategy="size_greedy"))
        with PlannerClient(cls.planner.address, timeout_s=60) as client:
            client.plan(request)
            request.topology.hosts[0].memory_bytes = 1
            try:
                client.plan(request)
            except PlannerError:
                pass
        header = v1.ProfileComputeHeader(device=0, settings=v1.MeasurementSettings(warmup_iterations=1, min_iterations=2, max_iterations=3, max_time_ms=1000))
        shard = v1.MeasuredShard(table="t", rows=1000, cols=16, pooling_factor=4, reuse_histogram=[1.0] + [0.0] * 16, weight_dtype="fp32", pooling_mode="sum")
        sample = v1.ComputeSample(sample_id="one", shards=[shard], batch_size=64, optimizer="sgd")
        with grpc.insecure_channel(cls.worker.address) as channel:
            requests = [v1.ProfileComputeRequest(header=header), v1.ProfileComputeRequest(sample=sample)]
            answers = list(WorkerServiceStub(channel).ProfileCompute(iter(requests), timeout=60))
        assert answers[0].measurement.outcome == "ok", answers

    @classmethod
    def query(cls, expression):
        answer = json.loads(get(f"{cls.prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    @classmethod
    def wait_for_two_scrapes(cls):
        """Rates need two. Polls Prometheus."""
        give_up = time.monotonic() + 90
        enough = 'count_over_time(neuroshard_plans_total[5m]) >= 2 and on () count_over_time(neuroshard_worker_samples_total{outcome="ok"}[5m]) >= 2'
        while True:
            try:
                if cls.query(enough):
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            if time.monotonic() > give_up:
                raise TimeoutError((cls.folder / "prometheus.log").read_text()[-2000:])
            time.sleep(0.2)

    def test_promtool_accepts_every_metric(self):
        for server in (self.planner, self.worker):
            checked = subprocess.run([TOOLS["promtool"], "check", "metrics"], input=server.metrics(), capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_configuration_and_rules(self):
        for check in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
            done = subprocess.run([TOOLS["promtool"], *check], cwd=DEPLOY / "prometheus", capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_panel_has_data(self):
        give_up = time.monotonic() + 30  # for all: what came last may have been scraped once
        boards = sorted((DEPLOY / "grafana").glob("*.json"))
        self.assertEqual([board.stem for board in boards], ["models", "planner", "workers"])
        for board in boards:
            for panel in json.loads(board.read_text())["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
                    with self.subTest(board=board.stem, panel=panel["title"], query=expression):
                        self.assertNotIn("$", expression)
                        while not self.query(expression):
                            self.assertLess(time.monotonic(), give_up, "no data")
                            time.sleep(0.2)

    def test_rules_are_evaluated_and_the_servers_are_up(self):
        groups = json.loads(get(f"{self.prometheus}/api/v1/rules"))["data"]["groups"]
        self.assertEqual({rule["lastError"] if "lastError" in rule else "" for group in groups for rule in group["rules"]}, {""})
        give_up = time.monotonic() + 30  # a scrape of a busy machine may fail
        while len(self.query('up{job=~"neuroshard-.*"} == 1')) != 2:
            self.assertLess(time.monotonic(), give_up, "a server is not up")
            time.sleep(0.2)


if __name__ == "__main__":
    TOOLS = find_tools()
    if TOOLS is None:
        print("SKIPPED: no prometheus in PATH, and Debian's package cannot be fetched; dashboards and alert rules were not checked")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
