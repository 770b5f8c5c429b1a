"""The worker as a process, over its RPCs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from typing import Any, Dict, Iterator, List, Optional

import grpc
from planner_process import NativeWorkerProcess
from worker_process import DEADLINE_S, QUICK, WorkerProcess, wait_for

from neuroshard import v1
from neuroshard.errors import from_status
from neuroshard.v1.worker_pb2_grpc import WorkerServiceStub

ENDLESS = v1.MeasurementSettings(min_iterations=10_000, max_iterations=10_000, max_time_ms=600_000)
HISTOGRAM = [0.6, 0.3, 0.1] + [0.0] * 14


def compute_sample(name: str = "s", **changes: Any) -> v1.ComputeSample:
    shard = v1.MeasuredShard(table="t", rows=5000, cols=16, pooling_factor=3.5, reuse_histogram=HISTOGRAM)
    return v1.ComputeSample(**{"sample_id": name, "shards": [shard, shard], "batch_size": 256, "optimizer": "sgd", "seed": 1, **changes})


@contextlib.contextmanager
def fails(test: unittest.TestCase, code: grpc.StatusCode, message: str) -> Iterator[None]:
    with test.assertRaises(grpc.RpcError) as caught:
        yield
    test.assertEqual((caught.exception.code(), bool(re.search(message, caught.exception.details()))), (code, True), caught.exception.details())


def scraped(worker: WorkerProcess) -> str:
    return urllib.request.urlopen(f"http://{worker.metrics}/metrics", timeout=DEADLINE_S).read().decode()


class Group:
    """Ranks 0, 1, ... on the devices of several workers, in turn."""

    def __init__(self, workers: List[WorkerProcess], group_id: str = "g", timeout_ms: int = 20_000) -> None:
        self.workers, self.group_id = workers, group_id
        self.addresses: List[v1.RankAddress] = []
        self.tokens: Dict[str, str] = {}
        for rank, worker in enumerate(workers):
            request = v1.OpenCommGroupRequest(group_id=group_id, world_size=len(workers), timeout_ms=timeout_ms)
            request.local_ranks.add(rank=rank, device=0)
            response = worker.stub.OpenCommGroup(request)
            self.addresses.extend(response.addresses)
            self.tokens[worker.address] = response.token

    def on_all(self, call: Any) -> List[Any]:
        """call(worker) on all at once; a PlannerError in place of what failed."""

        def one(worker: WorkerProcess) -> Any:
            try:
                return call(worker)
            except grpc.RpcError as error:
                return from_status(error.code(), error.details(), error.trailing_metadata(), worker.address)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(one, self.workers))

    def connect(self) -> List[Any]:
        return self.on_all(lambda worker: worker.stub.ConnectCommGroup(self.connect_request(worker), timeout=DEADLINE_S))

    def connect_request(self, worker: WorkerProcess) -> v1.ConnectCommGroupRequest:
        return v1.ConnectCommGroupRequest(group_id=self.group_id, token=self.tokens[worker.address], addresses=self.addresses)

    def profile(self, settings: v1.MeasurementSettings = QUICK, **sample: Any) -> List[Any]:
        return self.on_all(lambda worker: worker.stub.ProfileComm(self.request(worker, settings, **sample), timeout=DEADLINE_S))

    def request(self, worker: WorkerProcess, settings: v1.MeasurementSettings, **sample: Any) -> v1.ProfileCommRequest:
        sample = {"sample_id": "c", "direction": "forward", "dim_sums": [8] * len(self.workers), "batch_size": 64, **sample}
        return v1.ProfileCommRequest(group_id=self.group_id, token=self.tokens[worker.address], settings=settings, sample=v1.CommSample(**sample))

    def close(self) -> List[Any]:
        return self.on_all(lambda worker: worker.stub.CloseCommGroup(
            v1.CloseCommGroupRequest(group_id=self.group_id, token=self.tokens[worker.address]), timeout=DEADLINE_S))


class WorkerTest(unittest.TestCase):
    """Two workers for all tests, of two devices each; after each test they must be free."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.workers = [WorkerProcess("--cpu-devices", "2", "--memory-bytes", str(1 << 29)) for _ in range(2)]

    @classmethod
    def tearDownClass(cls) -> None:
        for worker in cls.workers:
            status, log = worker.end()
            assert status == 0 and "stopped" in log, log
            assert "Traceback" not in log and "never retrieved" not in log, log

    def setUp(self) -> None:
        self.worker = self.workers[0]

    def tearDown(self) -> None:
        for worker in self.workers:
            wait_for(lambda: worker.jobs() == ["", ""])  # noqa: B023
            wait_for(lambda: not worker.measuring_processes())  # noqa: B023

    def test_says_what_it_is(self) -> None:
        info = self.worker.stub.GetWorkerInfo(v1.GetWorkerInfoRequest())
        self.assertEqual([(d.index, d.backend, d.collective_backend, d.memory_bytes) for d in info.devices],
                         [(i, "fbgemm", "torch-gloo", 1 << 29) for i in (0, 1)])
        self.assertEqual([list(info.devices[0].weight_dtypes), list(info.devices[0].optimizers), list(info.devices[0].pooling_modes)],
                         [["fp32", "fp16"], ["sgd", "adagrad", "rowwise_adagrad"], ["sum", "mean", "none"]])
        self.assertLessEqual({"torch", "fbgemm_gpu", "torchrec", "threads", "os", "kernel"}, set(info.environment))
        self.assertIn('neuroshard_worker_device_busy{device="1"} 0.0', scraped(self.worker))

    # Compute.

    def test_measures_what_fbgemm_has(self) -> None:
        stream = self.worker.open_stream()
        for optimizer in ("sgd", "adagrad", "rowwise_adagrad"):
            sample = compute_sample(optimizer, optimizer=optimizer)
            sample.shards.add(rows=10, cols=4, pooling_factor=0, reuse_histogram=[0.0] * 17, weight_dtype="fp16", pooling_mode="mean", weighted=True)
            for cols in (8, 8, 16):  # without pooling: an operator for each width
                sample.shards.add(rows=10, cols=cols, pooling_factor=3, reuse_histogram=[1.0] + [0.0] * 16, pooling_mode="none")
            record = stream.measure(sample)
            self.assertEqual((record.sample_id, record.outcome, record.detail), (optimizer, "ok", ""))
            for series in (record.forward, record.backward):
                self.assertEqual((len(series.samples_ms), series.warmup_iterations, series.stop_reason), (3, 1, "max_iterations"))
                self.assertTrue(0 < series.median_ms == sorted(series.samples_ms)[1])
            self.assertEqual((record.environment.backend, record.environment.properties["table_batches"], record.environment.properties["distinct_batches"]),
                             ("fbgemm", "4", "2"))
        stream.end()

    def test_a_series_ends_by_time_and_both_have_as_many_iterations(self) -> None:
        stream = self.worker.open_stream(v1.MeasurementSettings(warmup_iterations=0, min_iterations=2, max_iterations=10_000, max_time_ms=100,
                                                                target_relative_error=1e-9))
        record = stream.measure(compute_sample())
        stream.end()
        self.assertEqual({record.forward.stop_reason, record.backward.stop_reason}, {"max_time"})
        self.assertEqual(len(record.forward.samples_ms), len(record.backward.samples_ms))
        spent = sum(record.forward.samples_ms) + sum(record.backward.samples_ms)
        self.assertTrue(100 <= spent < 100 + max(record.forward.samples_ms) + max(record.backward.samples_ms), spent)

    def test_too_much_is_a_record(self) -> None:
        stream = self.worker.open_stream()
        sample = compute_sample()
        sample.shards[0].rows = 1 << 40
        record = stream.measure(sample)
        self.assertEqual((record.outcome, record.HasField("forward")), ("out_of_memory", False))
        self.assertRegex(record.detail, r"tables and optimizer state \(64.00 TiB\), activations and ids take 64.00 TiB, the device has 512.00 MiB")
        self.assertEqual(stream.measure(compute_sample()).outcome, "ok")
        stream.end()

    def test_bad_samples_and_headers(self) -> None:
        sample = compute_sample(optimizer="adam")
        sample.shards[1].cols = 3
        with self.assertRaises(grpc.RpcError) as caught:
            self.worker.open_stream().measure(sample)
        error = from_status(caught.exception.code(), caught.exception.details(), caught.exception.trailing_metadata(), "")
        self.assertEqual([str(violation) for violation in error.violations], [
            "sample.optimizer: must be one of sgd, adagrad, rowwise_adagrad, which FBGEMM has on this device, got adam",
            "sample.shards[1].cols: must be a multiple of 4 for FBGEMM, got 3",
        ])
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        for requests, message in (
            ([], "header: the stream ended before it"),
            ([v1.ProfileComputeRequest(sample=sample)], "header: the first message of the stream must carry it"),
            ([v1.ProfileComputeRequest(header=v1.ProfileComputeHeader(device=2, settings=v1.MeasurementSettings(max_time_ms=-1)))],
             r"header.device: must be in \[0, 2\), got 2; header.settings.max_time_ms: must be at least 1, got -1"),
            ([v1.ProfileComputeRequest(header=v1.ProfileComputeHeader())] * 2, "sample: every message after the first must carry one"),
        ):
            with fails(self, invalid, message):
                list(self.worker.stub.ProfileCompute(iter(requests), timeout=DEADLINE_S))

    def test_one_job_a_device(self) -> None:
        first = self.worker.open_stream()
        self.assertEqual(first.measure(compute_sample()).outcome, "ok")
        with fails(self, grpc.StatusCode.RESOURCE_EXHAUSTED, r"device 0 \(.*\) is held by ProfileCompute of .*; one job at a time per device"):
            self.worker.open_stream().measure(compute_sample())
        with fails(self, grpc.StatusCode.RESOURCE_EXHAUSTED, "device 0 .* is held by"):
            Group([self.worker])
        second = self.worker.open_stream(device=1)
        self.assertEqual(second.measure(compute_sample()).outcome, "ok")
        first.end()
        second.end()

    def test_a_killed_process_ends_its_job_only(self) -> None:
        for device in (0, 1):
            stream = self.worker.open_stream(ENDLESS, device)
            stream.send(compute_sample())
            (pid,) = wait_for(self.worker.measuring_processes)
            os.kill(pid, signal.SIGKILL)
            with fails(self, grpc.StatusCode.ABORTED, r"the process that measured ended: signal 9 \(SIGKILL\)"):
                next(stream.call)
            stream = self.worker.open_stream(device=device)
            self.assertEqual(stream.measure(compute_sample()).outcome, "ok")
            stream.end()

    def test_a_cancelled_measurement_frees_its_device(self) -> None:
        stream = self.worker.open_stream(ENDLESS)
        stream.send(compute_sample())
        wait_for(self.worker.measuring_processes)
        begin = time.monotonic()
        stream.call.cancel()
        wait_for(lambda: self.worker.jobs() == ["", ""])
        self.assertLess(time.monotonic() - begin, 2)  # at the next iteration, not by the grace's end

    # Groups.

    def test_measures_every_collective(self) -> None:
        group = Group(self.workers)
        group.connect()
        for collective in ("all_to_all", "reduce_scatter", "all_gather", "all_reduce"):
            for element_bytes in (4,) if "reduce" in collective else (1, 2, 4, 8, 3):
                records = [answer.measurements[0] for answer in group.profile(collective=collective, element_bytes=element_bytes)]
                self.assertEqual([(r.rank, r.outcome, len(r.series.samples_ms)) for r in records], [(0, "ok", 3), (1, "ok", 3)])
                self.assertEqual(records[0].environment.properties["collective"], collective)
                self.assertEqual(records[0].environment.properties["collective_backend"], "torch-gloo")
                self.assertEqual(records[0].environment.properties["cadence"], "barrier")
        for wire_dtype in ("fp16", "bf16"):
            record = group.profile(wire_dtype=wire_dtype)[1].measurements[0]
            self.assertEqual(record.environment.properties["wire_dtype"], wire_dtype)
            self.assertTrue(0 < float(record.environment.properties["casts_ms"]) < record.series.median_ms)
        in_rows = [answer.measurements[0] for answer in group.profile(cadence="back_to_back")]
        self.assertEqual([(r.outcome, len(r.series.samples_ms)) for r in in_rows], [("ok", 3)] * 2)
        properties = in_rows[1].environment.properties
        self.assertEqual([properties[key] for key in ("cadence", "network_interface", "network_address", "network")],
                         ["back_to_back", "lo", "127.0.0.1", "127.0.0.0/8"])
        for direction in ("forward", "backward"):
            self.assertEqual([a.measurements[0].outcome for a in group.profile(direction=direction, dim_sums=[0, 24])], ["ok"] * 2)
        self.assertEqual(group.close(), [v1.CloseCommGroupResponse()] * 2)

    def test_who_enters_early_waits_for_the_last(self) -> None:
        group = Group(self.workers)
        group.connect()
        early, late = (answer.measurements[0].series.median_ms for answer in group.profile(start_offsets_ms=[100, 1100]))
        self.assertGreater(early, 500)  # on a loaded machine either may be late by itself
        self.assertLess(late, 500)
        group.close()

    def test_too_much_on_one_rank_is_a_record_on_all(self) -> None:
        group = Group(self.workers)
        group.connect()
        records = [answer.measurements[0] for answer in group.profile(dim_sums=[0, 1 << 22])]
        self.assertEqual([record.outcome for record in records], ["out_of_memory"] * 2)
        self.assertIn("its device has 512.00 MiB", records[1].detail)
        self.assertEqual([answer.measurements[0].outcome for answer in group.profile()], ["ok"] * 2)
        group.close()

    def test_different_samples_leave_the_group_usable(self) -> None:
        group = Group(self.workers)
        group.connect()
        errors = group.on_all(lambda worker: worker.stub.ProfileComm(group.request(worker, QUICK, batch_size=64 * (1 + self.workers.index(worker)))))
        self.assertEqual([(e.code, e.message) for e in errors],
                         [(grpc.StatusCode.FAILED_PRECONDITION, "the ranks of the group were given different samples or settings")] * 2)
        self.assertEqual([answer.measurements[0].outcome for answer in group.profile()], ["ok"] * 2)
        bad = group.profile(dim_sums=[1, 2, 3], batch_size=63)
        self.assertEqual([str(v) for v in bad[0].violations], ["sample.dim_sums: must have one entry for each of the group's 2 ranks, got 3"])
        group.close()

    def test_a_group_needs_its_token_and_its_turn(self) -> None:
        group = Group(self.workers)
        with fails(self, grpc.StatusCode.ALREADY_EXISTS, "comm group 'g' is open already"):
            Group([self.worker])
        with fails(self, grpc.StatusCode.FAILED_PRECONDITION, "comm group 'g' is not connected yet"):
            self.worker.stub.ProfileComm(group.request(self.worker, QUICK))
        right, group.tokens[self.worker.address] = group.tokens[self.worker.address], "0" * 32
        for answer in (group.connect_request, lambda worker: group.request(worker, QUICK)):
            call = self.worker.stub.ConnectCommGroup if answer == group.connect_request else self.worker.stub.ProfileComm
            with fails(self, grpc.StatusCode.PERMISSION_DENIED, "token: not the one that comm group 'g' was opened with"):
                call(answer(self.worker))
        self.assertEqual(group.close()[0].code, grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(self.worker.jobs()[0], "a comm group of 2 ranks")
        group.tokens[self.worker.address] = right
        group.close()
        self.assertEqual(group.close(), [v1.CloseCommGroupResponse()] * 2)
        with fails(self, grpc.StatusCode.NOT_FOUND, "no comm group 'g'"):
            self.worker.stub.ProfileComm(group.request(self.worker, QUICK))

    def test_dials_nobody_outside_of_its_networks(self) -> None:
        group = Group(self.workers)
        group.addresses[0].address = group.addresses[0].address.replace(b"127.0.0.1", b"192.0.2.1")
        for error in group.connect():
            self.assertEqual([violation.field for violation in error.violations], ["addresses[0].address"])
        group.close()

    def test_peers_that_do_not_come_abort_the_connection(self) -> None:
        group = Group(self.workers, timeout_ms=1000)
        with fails(self, grpc.StatusCode.ABORTED, "connecting rank 0 in a group of 2"):
            self.worker.stub.ConnectCommGroup(group.connect_request(self.worker), timeout=DEADLINE_S)
        group.close()

    def test_a_rank_that_dies_aborts_the_call_on_all(self) -> None:
        group = Group(self.workers)
        group.connect()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            calls = pool.submit(group.profile, ENDLESS)
            (pid,) = self.worker.measuring_processes()
            wait_for(lambda: "connected" and pathlib.Path(f"/proc/{pid}/stat").exists())
            os.kill(pid, signal.SIGKILL)
            errors = calls.result(timeout=DEADLINE_S)
        self.assertEqual([error.code for error in errors], [grpc.StatusCode.ABORTED] * 2)
        self.assertIn("signal 9 (SIGKILL)", errors[0].message)
        self.assertIn("rank 1 of 2", errors[1].message)
        wait_for(lambda: self.worker.jobs() + self.workers[1].jobs() == [""] * 4)
        again = Group(self.workers)
        again.connect()
        self.assertEqual([answer.measurements[0].outcome for answer in again.profile()], ["ok"] * 2)
        again.close()

    def test_closing_ends_the_running_call(self) -> None:
        group = Group(self.workers)
        group.connect()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            calls = pool.submit(group.profile, ENDLESS)
            wait_for(lambda: self.busy(group))
            group.close()
            self.assertLessEqual({error.code for error in calls.result(timeout=DEADLINE_S)}, {grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED})

    def test_a_cancelled_call_leaves_the_group_usable(self) -> None:
        group = Group(self.workers)
        group.connect()
        calls = [worker.stub.ProfileComm.future(group.request(worker, ENDLESS)) for worker in self.workers]
        wait_for(lambda: self.busy(group))
        calls[0].cancel()
        self.assertEqual(calls[1].exception(timeout=DEADLINE_S).code(), grpc.StatusCode.CANCELLED)
        wait_for(lambda: not self.busy(group))
        self.assertEqual([answer.measurements[0].outcome for answer in group.profile()], ["ok"] * 2)
        group.close()

    def busy(self, group: Group) -> bool:
        """Whether a measurement runs on worker 0; asked with a call that does nothing otherwise."""
        request = group.connect_request(self.worker)
        try:
            self.worker.stub.ConnectCommGroup(request)
        except grpc.RpcError as error:
            return "busy with another call" in error.details()
        return False

    def test_an_idle_group_closes_itself(self) -> None:
        request = v1.OpenCommGroupRequest(group_id="idle", world_size=1, idle_timeout_ms=100)
        request.local_ranks.add(rank=0, device=1)
        self.worker.stub.OpenCommGroup(request)
        wait_for(lambda: self.worker.jobs() == ["", ""])


class LogTest(unittest.TestCase):
    def test_calls_are_logged_as_json_and_counted(self) -> None:
        worker = WorkerProcess("--log-format", "json", "--log-level", "debug")
        worker.stub.GetWorkerInfo(v1.GetWorkerInfoRequest(), metadata=(("x-request-id", "r-1"),))
        with fails(self, grpc.StatusCode.UNIMPLEMENTED, "no such method"):
            worker.channel.unary_unary("/neuroshard.v1.WorkerService/Nothing")(b"", timeout=DEADLINE_S)
        leased = worker.open_stream()
        wait_for(lambda: worker.jobs()[0])
        refused = worker.open_stream()
        with fails(self, grpc.StatusCode.RESOURCE_EXHAUSTED, "device 0"):
            next(refused.call)
        leased.end()
        wait_for(lambda: not worker.jobs()[0])
        metrics = scraped(worker)
        for line in ('requests_total{code="UNIMPLEMENTED",rpc="other"} 1.0', 'requests_total{code="RESOURCE_EXHAUSTED",rpc="ProfileCompute"} 1.0',
                     'shed_total{reason="OVERLOADED",rpc="ProfileCompute"} 1.0', 'duration_seconds_count{rpc="ProfileCompute"} 1.0',
                     'in_flight{rpc="ProfileCompute"} 0.0', "in_flight_limit 64.0"):
            self.assertIn("neuroshard_rpc_" + line, metrics)
        status, log = worker.end()
        lines = [json.loads(line) for line in log.splitlines()]
        events = {line["event"]: line for line in lines}
        self.assertEqual((status, lines[-1]["event"]), (0, "stopped"))
        done = next(line for line in lines if line.get("request_id") == "r-1")
        self.assertEqual(list(done), ["time", "level", "event", "request_id", "trace_id", "caller", "peer", "rpc", "duration_ms"])
        self.assertEqual((done["event"], done["level"], done["rpc"], done["caller"]), ("call_done", "debug", "GetWorkerInfo", "127.0.0.1"))
        self.assertEqual((events["device_leased"]["audit"], events["device_leased"]["device"]), (True, 0))
        self.assertEqual((events["call_failed"]["code"], events["call_failed"]["level"]), ("RESOURCE_EXHAUSTED", "info"))
        self.assertEqual((events["call_refused"]["path"], events["call_refused"]["code"]), ("/neuroshard.v1.WorkerService/Nothing", "UNIMPLEMENTED"))

    @unittest.skipUnless(os.environ.get("NEUROSHARD_BIN"), "NEUROSHARD_BIN: neuroshard-worker to compare with")
    def test_metrics_are_those_of_the_other_worker(self) -> None:
        def helps(text: str) -> Dict[str, str]:
            lines = [line.split(" ", 3) for line in text.splitlines() if line.startswith("# HELP neuroshard_")]
            return {name: text for _, _, name, text in lines if not name.endswith("_created")}

        with NativeWorkerProcess(os.path.join(os.environ["NEUROSHARD_BIN"], "neuroshard-worker")) as native:
            theirs = helps(native.metrics())
        worker = WorkerProcess()
        self.addCleanup(worker.end)
        ours = helps(scraped(worker))
        self.assertEqual(ours, {name: theirs.get(name) for name in ours})
        self.assertEqual(set(theirs) - set(ours), {"neuroshard_build_info", "neuroshard_rpc_connections", "neuroshard_rpc_connections_limit",
                                                   "neuroshard_rpc_connections_total", "neuroshard_tls_reload_failures_total",
                                                   "neuroshard_worker_device_process_deaths_total"})


class LifetimeTest(unittest.TestCase):
    def test_sigterm_finishes_the_running_sample(self) -> None:
        worker = WorkerProcess()
        stream = worker.open_stream(v1.MeasurementSettings(min_iterations=3, max_iterations=10_000, max_time_ms=1000, target_relative_error=1e-9,
                                                            flush_cache=False))
        stream.send(compute_sample())
        wait_for(worker.measuring_processes)
        worker.process.send_signal(signal.SIGTERM)
        self.assertEqual(next(stream.call).measurement.outcome, "ok")
        with fails(self, grpc.StatusCode.UNAVAILABLE, "the worker is shutting down"):
            next(stream.call)
        status, log = worker.end()
        self.assertEqual((status, "Traceback" in log), (0, False), log)

    def test_no_process_outlives_a_killed_worker(self) -> None:
        worker = WorkerProcess()
        stream = worker.open_stream(ENDLESS)
        stream.send(compute_sample())
        (pid,) = wait_for(worker.measuring_processes)
        worker.end(signal.SIGKILL)
        wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists())

    def test_what_cannot_begin_says_why(self) -> None:
        for arguments, status, message in (
            (["--listen", "192.0.2.1:1", "--insecure"], 1, "--listen 192.0.2.1:1: "),
            (["--listen", "0.0.0.0:0"], 1, "--listen 0.0.0.0:0: can be reached from other hosts"),
            (["--tls-key", "a"], 2, "--tls-certificate, --tls-key, --tls-client-ca: all three"),
            (["--tls-role", "plan=a"], 2, "must be one of read, profile, admin"),
            (["--tls-key", "a", "--tls-certificate", "b", "--tls-client-ca", "c"], 1, "--tls-certificate b, --tls-key a: "),
            (["--backend", "cuda"], 1, "torch finds no GPU"),
            (["--cpu-devices", "0"], 2, r"must be in \[1, 1024\], got 0"),
            (["--collective-networks", "10.0.0.1/8"], 2, "has host bits set"),
            (["--collective-host", "localhost"], 2, "does not appear to be"),
            (["--collective-host", "10.0.0.1"], 2, "--collective-networks: must be given with --collective-host 10.0.0.1"),
        ):
            done = subprocess.run([sys.executable, "-m", "neuroshard.worker", *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertRegex(done.stderr, message)
            self.assertNotIn("Traceback", done.stderr)


class TlsTest(unittest.TestCase):
    """As tests/security has it for neuroshard-worker."""

    NAMES = ("server=DNS:localhost,IP:127.0.0.1", "operator=DNS:operator.example.org", "dashboard=DNS:dashboard-1", "stranger=DNS:stranger.example.org")

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.make_certs(self.folder)
        files = (f"--tls-{word}={self.folder / file}" for word, file in (("certificate", "server.pem"), ("key", "server.key"), ("client-ca", "ca.pem")))
        self.worker = WorkerProcess(*files, "--tls-reload-s=1", "--tls-role=profile=operator.example.org", "--tls-role=read=dashboard-*")
        self.addCleanup(self.worker.end)

    def make_certs(self, folder: pathlib.Path) -> None:
        script = pathlib.Path(__file__).resolve().parents[4] / "deploy/make_dev_certs.sh"
        subprocess.run([script, folder, *self.NAMES], check=True)

    def stub(self, name: str, folder: Optional[pathlib.Path] = None) -> Any:
        folder = folder or self.folder
        ca, key, certificate = ((folder / file).read_bytes() for file in ("ca.pem", f"{name}.key", f"{name}.pem"))
        channel = grpc.secure_channel("localhost:" + self.worker.address.rpartition(":")[2], grpc.ssl_channel_credentials(ca, key, certificate))
        self.addCleanup(channel.close)
        return WorkerServiceStub(channel)

    def test_a_role_is_what_a_caller_may_do(self) -> None:
        info, close = v1.GetWorkerInfoRequest(), v1.CloseCommGroupRequest(group_id="none")
        self.stub("operator").GetWorkerInfo(info, timeout=DEADLINE_S)
        self.stub("operator").CloseCommGroup(close, timeout=DEADLINE_S, metadata=(("x-request-id", "r-1"),))
        self.stub("dashboard").GetWorkerInfo(info, timeout=DEADLINE_S)
        with fails(self, grpc.StatusCode.PERMISSION_DENIED, "CloseCommGroup needs the role profile or admin, .* certificate of dashboard-1"):
            self.stub("dashboard").CloseCommGroup(close, timeout=DEADLINE_S)
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub("stranger").GetWorkerInfo(info, timeout=DEADLINE_S, metadata=(("x-request-id", "r-2"),))
        self.assertEqual((caught.exception.code(), dict(caught.exception.trailing_metadata())["x-request-id"]), (grpc.StatusCode.PERMISSION_DENIED, "r-2"))
        metrics = scraped(self.worker)
        for line in ('{code="PERMISSION_DENIED",rpc="CloseCommGroup"} 1.0', '{code="OK",rpc="CloseCommGroup"} 1.0',
                     '{code="PERMISSION_DENIED",rpc="GetWorkerInfo"} 1.0'):
            self.assertIn("neuroshard_rpc_requests_total" + line, metrics)
        _, log = self.worker.end()
        self.assertRegex(log, "comm_group_closed request_id=r-1 trace_id=[0-9a-f]{32} caller=operator.example.org peer=[^ ]+ rpc=CloseCommGroup group=none audit=true")
        self.assertRegex(log, "call_refused request_id=r-2 .* path=/neuroshard.v1.WorkerService/GetWorkerInfo code=PERMISSION_DENIED")

    def test_who_has_no_certificate_is_not_heard(self) -> None:
        only_trusting = grpc.ssl_channel_credentials((self.folder / "ca.pem").read_bytes())
        for channel in (grpc.insecure_channel(self.worker.address), grpc.secure_channel(self.worker.address, only_trusting)):
            with channel, self.assertRaises(grpc.RpcError) as caught:
                WorkerServiceStub(channel).GetWorkerInfo(v1.GetWorkerInfoRequest(), timeout=DEADLINE_S)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        elsewhere = self.folder / "elsewhere"
        self.make_certs(elsewhere)  # of another authority
        for kind in ("pem", "key"):
            (elsewhere / f"operator.{kind}").replace(self.folder / f"false.{kind}")
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub("false").GetWorkerInfo(v1.GetWorkerInfoRequest(), timeout=DEADLINE_S)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_certificates_rotate(self) -> None:
        fresh = self.folder / "fresh"
        self.make_certs(fresh)
        for file in ("server.key", "server.pem", "ca.pem"):
            (self.folder / f"{file}.part").write_bytes((fresh / file).read_bytes())
            (self.folder / f"{file}.part").replace(self.folder / file)

        def served() -> bool:
            try:
                self.stub("operator", fresh).GetWorkerInfo(v1.GetWorkerInfoRequest(), timeout=DEADLINE_S)
            except grpc.RpcError:
                return False
            return True

        wait_for(served)


if __name__ == "__main__":
    unittest.main()
