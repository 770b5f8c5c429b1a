#!/usr/bin/env python3
"""Replicas of a planner behind one name, by the clients' own round_robin and by deploy/haproxy: no call fails while one of three is killed and one
drained, all give the same plan byte for byte, connections come of age, and a version of a model is rolled out and back.

    replicas_test.py NEUROSHARD_PLANNER NEUROSHARD_WORKER NEUROSHARD NEUROSHARD_PRETRAIN CACHE

HAProxy is taken from PATH, else Debian's packages are unpacked into CACHE, not installed. Tests that need it are skipped where there is none and
Debian's mirrors cannot be reached.
"""

import collections
import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
from debian_packages import unpacked
from held_port import HeldPort
from neuroshard import PlannerClient, PlannerError, v1
from planner_process import MODELS, PlannerProcess, list_files

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attacks"))
import http2  # noqa: E402

PLANNER, NEUROSHARD, PRETRAIN, CACHE = sys.argv[1], *sys.argv[3:5], pathlib.Path(sys.argv[5]).resolve()
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
# HAProxy and the libraries that it links and a base system lacks.
PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
# As haproxy.cfg asks for.
NOTICE = {"drain_notice_ms": 4000}
CALLERS = 6
PROMPT_S = 30


def find_haproxy():
    """The command's beginning and its environment; None where there is none."""
    if found := shutil.which("haproxy"):
        return found, dict(os.environ)
    if unpacked(CACHE, PACKAGES, "usr/sbin/haproxy") is None:
        return None
    return str(CACHE / "usr/sbin/haproxy"), os.environ | {"LD_LIBRARY_PATH": f"{CACHE}/usr/lib/x86_64-linux-gnu"}


def request(seed=7, model="analytic", strategy="refine"):
    """A search without a clock, so that its plan is a function of the request."""
    return v1.ShardPlanRequest(
        request_id="same",
        tables=[v1.Table(name=f"t{i}", num_embeddings=1000 * (i + 1), embedding_dim=16 << (i % 3), pooling_factor=1 + i % 5) for i in range(12)],
        global_batch_size=4096, topology=v1.Topology(hosts=[v1.HostGroup(num_devices=4, memory_bytes=1 << 30)]), cost_model=v1.CostModelRef(name=model),
        search=v1.SearchOptions(strategy=strategy, seed=seed, refine_steps=50, max_threads=1))


def quick_request(seed):
    """For the default model, which is of CPUs; there are as many as seeds."""
    message = request(seed, "", "size_greedy")
    message.topology.compute_device = "cpu"
    return message


def same_part(response):
    """All of an answer but how long it took."""
    copy = v1.ShardPlanResponse.FromString(response.SerializeToString())
    copy.ClearField("search")
    return copy.SerializeToString(deterministic=True)


class Load:
    """Callers that ask for plans until told to stop; what went wrong, the different plans, and how many a drain cut."""

    def __init__(self, address, retries=3, ask=request, credentials=None):
        self.failures, self.plans, self.calls, self.cut = [], collections.Counter(), 0, 0
        self._ask = ask
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._clients = [PlannerClient(address, credentials=credentials, timeout_s=PROMPT_S, retries=retries) for _ in range(2)]
        self._threads = [threading.Thread(target=self._run, args=(self._clients[i % 2],)) for i in range(CALLERS)]

    def _run(self, client):
        while not self._stop.is_set():
            try:
                answer, failure = client.plan(self._ask()), None
            except PlannerError as error:
                answer, failure = None, str(error)
            with self._lock:
                self.calls += 1
                if failure is not None:
                    self.failures.append(failure)
                elif answer.search.time_limit_reached:
                    self.cut += 1
                else:
                    self.plans[same_part(answer)] += 1

    def wait_for(self, more):
        """Until that many more calls have ended."""
        enough, give_up = self.calls + more, time.monotonic() + PROMPT_S
        while self.calls < enough:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.calls} calls of {enough}; {self.failures[:3]}")
            time.sleep(0.01)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()


class Replicas(unittest.TestCase):
    def start(self, count=3, tls=None, **rpc):
        planners = []
        for _ in range(count):
            planners.append(PlannerProcess(PLANNER, config=json.dumps({"rpc": rpc} | ({"tls": tls} if tls else {}))))
            self.addCleanup(planners[-1].stop)
        return planners

    def plans_made(self, planner):
        found = re.search(r'^neuroshard_rpc_requests_total\{code="OK",rpc="ShardPlan"\} (\d+)', planner.metrics(), re.MULTILINE)
        return int(found[1]) if found else 0

    def lose_two_of_three(self, planners, address, credentials=None):
        """One is killed and one drained under load: no call fails, and all plans are the same."""
        killed, drained, left = planners
        with Load(address, credentials=credentials) as load:
            load.wait_for(60)
            if credentials is None:  # with TLS calls go with their connection, which the notice does not move
                give_up = time.monotonic() + PROMPT_S
                while not all(self.plans_made(planner) for planner in planners):  # one may be connected to later than the others
                    self.assertLess(time.monotonic(), give_up, "a replica gets no calls")
            killed.kill()
            load.wait_for(60)
            drained.drain()
            drained.process.wait(timeout=PROMPT_S)
            self.assertEqual(drained.process.returncode, 0, drained.log())
            load.wait_for(60)
        self.assertGreater(self.plans_made(left), 60)
        self.assertEqual(load.failures, [])
        self.assertEqual(len(load.plans), 1)
        if credentials is None:
            self.assertEqual(load.cut, 0)


class RoundRobinTest(Replicas):
    def test_two_of_three_are_lost(self):
        planners = self.start(drain_notice_ms=1000)
        self.lose_two_of_three(planners, ",".join(planner.address for planner in planners))

    def test_the_command_line_knows_replicas(self):
        planners = self.start(2)
        planners[0].kill()
        listed = subprocess.run([NEUROSHARD, "models", "list", "--planner", ",".join(planner.address for planner in planners)], capture_output=True, text=True)
        self.assertEqual(listed.returncode, 0)
        self.assertRegex(listed.stderr, rf"^warning: planner at {planners[0].address}: nothing listens there \(Connection refused\); calls go to the others of [^\n]*\n$")
        self.assertIn("analytic", listed.stdout)

    def test_replicas_that_are_not_ready_say_so(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in "ab":  # two, and none is the default
                shutil.copytree(pathlib.Path(MODELS) / "cpu-amd-epyc/4", pathlib.Path(folder) / name / "4")
                manifest = pathlib.Path(folder) / name / "4/model.yaml"
                manifest.write_text(manifest.read_text().replace("name: cpu-amd-epyc\n", f"name: {name}\n", 1))
                list_files(manifest.parent)
            with PlannerProcess(PLANNER, models=folder) as first, PlannerProcess(PLANNER, models=folder) as second:
                for address, fault in ((f"{first.address},{second.address}", "no replica that answers is ready"), (first.address, "")):
                    listed = subprocess.run([NEUROSHARD, "models", "list", "--planner", address], capture_output=True, text=True)
                    self.assertIn(fault, listed.stderr)
                    self.assertEqual(listed.returncode, 1 if fault else 0)

    def test_connections_come_of_age(self):
        (planner,) = self.start(1, max_connection_age_ms=1000)
        connection = http2.Connection(planner.address)
        self.addCleanup(connection.close)
        received = b""
        while True:  # the socket's time limit ends it
            more = connection.socket.recv(65536)
            self.assertNotEqual(more, b"", "closed without a GOAWAY")
            received += more
            if http2.GOAWAY in frame_kinds(received):
                break
        # Clients of the library do not notice.
        with Load(planner.address, retries=0) as load:
            give_up = time.monotonic() + 2.5
            while time.monotonic() < give_up:
                load.wait_for(1)
        self.assertEqual(load.failures, [])


class RolloutTest(unittest.TestCase):
    NAME = "cpu-amd-epyc"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.name = pathlib.Path(folder.name) / "models" / self.NAME
        shutil.copytree(pathlib.Path(MODELS) / self.NAME / "4", self.name / "4")
        self.serve(4)
        self.planners = []
        for _ in range(2):
            self.planners.append(PlannerProcess(PLANNER, models=str(self.name.parent), config=json.dumps({"models": {"poll_ms": 50}})))
            self.addCleanup(self.planners[-1].stop)

    def serve(self, version, *more):
        subprocess.run([PRETRAIN, "serve", "--model", self.name / str(version), *more], check=True, capture_output=True)

    def land(self, version, cut=False):
        """As deploy/README.md says: beside its place, then renamed. `cut`: it cannot be loaded."""
        beside = self.name / f"{version}.tmp"
        shutil.copytree(self.name / "4", beside)
        manifest = (beside / "model.yaml").read_text()
        (beside / "model.yaml").write_text(manifest.replace("version: 4\n", f"version: {version}\n"))
        list_files(beside)
        if cut:
            (beside / "compute.safetensors").write_bytes(b"cut")
        beside.rename(self.name / str(version))

    def wait_for_shares(self, **shares):
        for planner in self.planners:
            for version, share in shares.items():
                planner.wait_for_metric(f'neuroshard_model_share{{model="{self.NAME}",version="{version[1:]}"}} {share:g}')

    def versions(self):
        """Of 40 requests; the same from both."""
        found = []
        for planner in self.planners:
            with PlannerClient(planner.address, timeout_s=PROMPT_S) as client:
                found.append([client.plan(quick_request(seed)).cost_model.version for seed in range(40)])
        self.assertEqual(*found)
        return found[0]

    def test_a_version_is_rolled_out_and_back_while_nothing_fails(self):
        seeds = itertools.count()
        with Load(",".join(planner.address for planner in self.planners), ask=lambda: quick_request(next(seeds))) as load:
            load.wait_for(20)
            self.land(5)
            for planner in self.planners:
                planner.wait_for_metric('neuroshard_models{state="serving"} 2')
            self.assertEqual(set(self.versions()), {4})  # what lands serves nobody yet
            self.serve(5, "--share", "0.25")
            self.wait_for_shares(v4=0.75, v5=0.25)
            quarter = self.versions()
            self.serve(5, "--share", "0.75")
            self.wait_for_shares(v4=0.25, v5=0.75)
            most = self.versions()
            self.assertEqual({4, 5}, set(quarter))
            self.assertLess(quarter.count(5), most.count(5))
            self.assertNotIn((5, 4), zip(quarter, most))
            self.serve(5)
            self.wait_for_shares(v5=1)
            self.assertEqual(set(self.versions()), {5})
            self.serve(4)
            self.wait_for_shares(v4=1)
            self.assertEqual(set(self.versions()), {4})
            # A version that cannot be loaded, and a channel that wants it.
            self.land(6, cut=True)
            (self.name / "channel.yaml").write_text("format: neuroshard-channel/1\nversion: 6\n")
            for planner in self.planners:
                planner.wait_for_metric('neuroshard_models{state="refused"} 2')
                self.assertIn("directory=cpu-amd-epyc/channel.yaml", planner.log())
            self.assertEqual(set(self.versions()), {4})
            load.wait_for(20)
        self.assertEqual(load.failures, [])

    def test_a_default_that_is_not_there_keeps_a_planner_from_starting(self):
        for default, fault in (("h100", "no cost model h100; there is analytic version 1, cpu-amd-epyc version 4"),
                               (f"{self.NAME}/5", "no cost model cpu-amd-epyc version 5")):
            with self.assertRaisesRegex(RuntimeError, f"models.default: {fault}"):
                PlannerProcess(PLANNER, models=str(self.name.parent), config=json.dumps({"models": {"default": default}}))


def frame_kinds(received):
    kinds = []
    while len(received) >= 9:
        kinds.append(received[3])
        received = received[9 + int.from_bytes(received[:3], "big"):]
    return kinds


class HaproxyTest(Replicas):
    def setUp(self):
        if HAPROXY is None:
            self.skipTest("no haproxy in PATH, and Debian's package cannot be fetched")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start_haproxy(self, planners, configuration="haproxy.cfg"):
        """deploy's configuration with these addresses. Returns HAProxy's port on localhost."""
        command, environment = HAPROXY
        held = HeldPort()
        self.addCleanup(held.close)
        port = held.number
        text = (DEPLOY / "haproxy" / configuration).read_text()
        for old, new in (("bind :50051", f"bind 127.0.0.1:{port}"), *((f" planner-{i}:50051", f" {planner.address}") for i, planner in enumerate(planners, 1))):
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / configuration
        path.write_text(text)
        checked = subprocess.run([command, "-c", "-f", path], env=environment, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        log = open(self.folder / "log", "w", encoding="utf-8")  # noqa: SIM115
        self.addCleanup(log.close)
        process = subprocess.Popen([command, "-db", "-f", path], env=environment, cwd=self.folder, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        give_up = time.monotonic() + PROMPT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return port
            except ConnectionRefusedError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)

    def assert_drain_was_noticed(self):
        self.assertRegex((self.folder / "log").read_text(), "Server planners/planner-2 is DOWN, reason: Layer7 timeout")

    def test_two_of_three_are_lost(self):
        planners = self.start(**NOTICE)
        self.lose_two_of_three(planners, f"127.0.0.1:{self.start_haproxy(planners)}")
        self.assert_drain_was_noticed()

    def test_two_of_three_are_lost_with_tls(self):
        names = {"server": "DNS:localhost,IP:127.0.0.1", "haproxy": "DNS:haproxy", "trainer": "URI:spiffe://example.org/trainer/1"}
        subprocess.run([DEPLOY / "make_dev_certs.sh", self.folder, *(f"{name}={san}" for name, san in names.items())], check=True)
        (self.folder / "haproxy.pem").write_bytes(b"".join((self.folder / f"haproxy.{part}").read_bytes() for part in ("pem", "key")))
        tls = {"certificate": str(self.folder / "server.pem"), "key": str(self.folder / "server.key"), "client_ca": str(self.folder / "ca.pem"),
               "roles": {"plan": ["spiffe://example.org/trainer/*"]}}
        planners = self.start(tls=tls, **NOTICE)
        credentials = grpc.ssl_channel_credentials(*((self.folder / file).read_bytes() for file in ("ca.pem", "trainer.key", "trainer.pem")))
        self.lose_two_of_three(planners, f"localhost:{self.start_haproxy(planners, 'haproxy_tls.cfg')}", credentials)
        self.assert_drain_was_noticed()

    def test_errors_arrive_whole(self):
        (planner,) = self.start(1)
        address = f"127.0.0.1:{self.start_haproxy([planner] * 3)}"
        bad = request()
        for table in bad.tables:
            table.num_embeddings = -1
        errors = []
        for asked in (planner.address, address):
            with PlannerClient(asked, timeout_s=PROMPT_S) as client, self.assertRaises(PlannerError) as caught:
                client.plan(bad)
            errors.append((caught.exception.code, [(fault.field, fault.description) for fault in caught.exception.violations]))
        self.assertEqual(errors[0], errors[1])
        self.assertEqual(len(errors[0][1]), len(bad.tables))


if __name__ == "__main__":
    HAPROXY = find_haproxy()
    if HAPROXY is None:
        print("SKIPPED: no haproxy here, and Debian's mirrors cannot be reached; deploy/haproxy was not tested", flush=True)
    unittest.main(argv=sys.argv[:1])
