#!/usr/bin/env python3
"""Replicas of a planner behind one name, by the clients' own round_robin and by deploy/haproxy: no call fails while one of three is killed and one
drained, all give the same plan byte for byte, and connections come of age.

    replicas_test.py NEUROSHARD_PLANNER NEUROSHARD_WORKER NEUROSHARD CACHE

HAProxy is taken from PATH, else Debian's packages are unpacked into CACHE, not installed. Tests that need it are skipped where there is none and
Debian's mirrors cannot be reached.
"""

import collections
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

from neuroshard import PlannerClient, PlannerError, v1
from planner_process import PlannerProcess

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attacks"))
import http2  # noqa: E402

PLANNER, NEUROSHARD, CACHE = sys.argv[1], sys.argv[3], pathlib.Path(sys.argv[4]).resolve()
CONFIGURATION = pathlib.Path(__file__).resolve().parents[2] / "deploy/haproxy/haproxy.cfg"
# HAProxy and the libraries that it links and a base system lacks.
PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
# As haproxy.cfg asks for.
RPC = {"drain_notice_ms": 4000}
CALLERS = 8
PROMPT_S = 30


def find_haproxy():
    """The command's beginning and its environment; None where there is none."""
    if found := shutil.which("haproxy"):
        return found, dict(os.environ)
    if not (CACHE / "usr/sbin/haproxy").exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            return None
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            fetched = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True, timeout=120)
            packages = list(pathlib.Path(folder).glob("*.deb"))
            if fetched.returncode != 0 or len(packages) != len(PACKAGES):
                return None
            for package in packages:
                subprocess.run(["dpkg", "-x", package, f"{folder}/unpacked"], check=True)
            shutil.rmtree(CACHE, ignore_errors=True)
            pathlib.Path(folder, "unpacked").rename(CACHE)
    return str(CACHE / "usr/sbin/haproxy"), os.environ | {"LD_LIBRARY_PATH": f"{CACHE}/usr/lib/x86_64-linux-gnu"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def request(tables=12, steps=200):
    """A search without a clock, so that its plan is a function of the request."""
    return v1.ShardPlanRequest(
        request_id="same",
        tables=[v1.Table(name=f"t{i}", num_embeddings=1000 * (i + 1), embedding_dim=16 << (i % 3), pooling_factor=1 + i % 5) for i in range(tables)],
        global_batch_size=4096, topology=v1.Topology(hosts=[v1.HostGroup(num_devices=4, memory_bytes=1 << 30)]), cost_model=v1.CostModelRef(name="analytic"),
        search=v1.SearchOptions(strategy="refine", seed=7, refine_steps=steps, max_threads=1))


def same_part(response):
    """All of an answer but how long it took."""
    copy = v1.ShardPlanResponse.FromString(response.SerializeToString())
    copy.ClearField("search")
    return copy.SerializeToString(deterministic=True)


class Load:
    """Callers that ask for plans until told to stop; what went wrong, and the different plans."""

    def __init__(self, address, retries=3):
        self.failures, self.plans, self.calls = [], collections.Counter(), 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._clients = [PlannerClient(address, timeout_s=PROMPT_S, retries=retries) for _ in range(2)]
        self._threads = [threading.Thread(target=self._run, args=(self._clients[i % 2],)) for i in range(CALLERS)]

    def _run(self, client):
        while not self._stop.is_set():
            try:
                plan, failure = same_part(client.plan(request())), None
            except PlannerError as error:
                plan, failure = None, str(error)
            with self._lock:
                self.calls += 1
                if failure is None:
                    self.plans[plan] += 1
                else:
                    self.failures.append(failure)

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


class ReplicasTest(unittest.TestCase):
    def start(self, count=3, **rpc):
        planners = []
        for _ in range(count):
            planners.append(PlannerProcess(PLANNER, config=json.dumps({"rpc": RPC | rpc})))
            self.addCleanup(planners[-1].stop)
        return planners

    def plans_made(self, planner):
        found = re.search(r'^neuroshard_rpc_requests_total\{code="OK",rpc="ShardPlan"\} (\d+)', planner.metrics(), re.MULTILINE)
        return int(found[1]) if found else 0

    def lose_two_of_three(self, planners, address, retries=3):
        """One is killed and one drained under load. Returns the load."""
        killed, drained, left = planners
        with Load(address, retries) as load:
            load.wait_for(60)
            for planner in planners:
                self.assertGreater(self.plans_made(planner), 0)
            killed.kill()
            load.wait_for(60)
            drained.drain()
            drained.process.wait(timeout=PROMPT_S)
            self.assertEqual(drained.process.returncode, 0, drained.log())
            load.wait_for(60)
        self.assertGreater(self.plans_made(left), 60)
        return load

    def assert_nothing_failed(self, load):
        self.assertEqual(load.failures, [])
        self.assertEqual(len(load.plans), 1)

    def test_round_robin(self):
        planners = self.start()
        self.assert_nothing_failed(self.lose_two_of_three(planners, ",".join(planner.address for planner in planners)))

    def test_the_command_line_knows_replicas(self):
        planners = self.start(2)
        planners[0].kill()
        listed = subprocess.run([NEUROSHARD, "models", "list", "--planner", ",".join(planner.address for planner in planners)], capture_output=True, text=True)
        self.assertEqual((listed.returncode, listed.stderr), (0, ""))
        self.assertIn("analytic", listed.stdout)

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


def frame_kinds(received):
    kinds = []
    while len(received) >= 9:
        kinds.append(received[3])
        received = received[9 + int.from_bytes(received[:3], "big"):]
    return kinds


class HaproxyTest(ReplicasTest):
    def setUp(self):
        if HAPROXY is None:
            self.skipTest("no haproxy in PATH, and Debian's package cannot be fetched")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    test_round_robin = test_the_command_line_knows_replicas = test_connections_come_of_age = None

    def start_haproxy(self, planners):
        """deploy's configuration with these addresses. Returns HAProxy's."""
        command, environment = HAPROXY
        port = free_port()
        text = CONFIGURATION.read_text()
        for old, new in ((":50051 proto", f"127.0.0.1:{port} proto"), *((f" planner-{i}:50051", f" {planner.address}") for i, planner in enumerate(planners, 1))):
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / "haproxy.cfg"
        path.write_text(text)
        checked = subprocess.run([command, "-c", "-f", path], env=environment, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        log = open(self.folder / "log", "w", encoding="utf-8")  # noqa: SIM115
        self.addCleanup(log.close)
        process = subprocess.Popen([command, "-db", "-f", path], env=environment, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        give_up = time.monotonic() + PROMPT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return f"127.0.0.1:{port}"
            except ConnectionRefusedError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)

    def test_haproxy(self):
        planners = self.start()
        address = self.start_haproxy(planners)
        load = self.lose_two_of_three(planners, address)
        self.assert_nothing_failed(load)
        # The checks saw the drain before it began, and so nobody was refused.
        log = (self.folder / "log").read_text()
        self.assertRegex(log, r"Server planners/planner-2 is DOWN, reason: Layer7 ")

    def test_errors_arrive_whole(self):
        (planner,) = self.start(1)
        address = self.start_haproxy([planner] * 3)
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
    unittest.main(argv=sys.argv[:1])
