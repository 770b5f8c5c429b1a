"""Both clients against real planner processes: answers, errors, deadlines, retries, cancellation, planners that drain or die. Every test runs with each.

  client_test.py PLANNER     path of neuroshard-planner
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import inspect
import logging
import os
import pickle
import socket
import sys
import threading
import time
import types
import unittest
import unittest.mock

import grpc
from google.protobuf import json_format
from held_port import HeldPort
from planner_process import PlannerProcess

import neuroshard
from neuroshard import aio, errors, v1
from neuroshard.v1 import planner_pb2_grpc

REQUEST = {
    "tables": [
        {"name": "users", "num_embeddings": 400000, "embedding_dim": 64, "pooling_factor": 3},
        {"name": "items", "num_embeddings": 50000, "embedding_dim": 32, "pooling_factor": 20, "zipf_exponent": 1.05},
    ],
    "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 33}]},
    "global_batch_size": 1024,
}
# The planner's own limit, 300 s, would end it.
LONG_REQUEST = {
    "tables": [{"name": f"t{i}", "num_embeddings": 1000 + 7919 * i, "embedding_dim": 4 + 4 * (i % 16), "pooling_factor": 1 + i % 13} for i in range(50)],
    "topology": {"hosts": [{"num_devices": 8, "memory_bytes": 1 << 33}]},
    "global_batch_size": 4096,
    "search": {"time_budget_ms": 3600000},
}


class ThreadsAsAio:
    """neuroshard.PlannerClient with the methods of aio.PlannerClient, each in a thread."""

    def __init__(self, *arguments, **options):
        self.client = neuroshard.PlannerClient(*arguments, **options)

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if not callable(method) or name == "plan_stream":
            return method
        return lambda *arguments, **options: asyncio.to_thread(method, *arguments, **options)

    def plan_stream(self, *arguments, **options):
        return ThreadStreamAsAio(self.client.plan_stream(*arguments, **options))

    async def __aenter__(self):
        self.client.__enter__()
        return self

    async def __aexit__(self, *reason):
        await asyncio.to_thread(self.client.__exit__, *reason)


class ThreadStreamAsAio:
    def __init__(self, stream):
        self.stream = stream
        self.cancel = stream.cancel

    def __aiter__(self):
        return self

    async def __anext__(self):
        update = await asyncio.to_thread(next, self.stream, None)  # StopIteration cannot leave a thread
        if update is None:
            raise StopAsyncIteration
        return update

    async def __aenter__(self):
        self.stream.__enter__()
        return self

    async def __aexit__(self, *reason):
        self.stream.__exit__(*reason)


class ScriptedPlanner(planner_pb2_grpc.PlannerServiceServicer):
    """Answers each call with the next of its statuses, then with OK: for what a real planner cannot be made to send."""

    def __init__(self, *statuses):
        self.statuses = collections.deque(statuses)  # (code, text, google.rpc.Status or bytes or None), or None for OK
        self.times = []

    def _next(self, context):
        self.times.append(time.monotonic())
        status = self.statuses.popleft() if self.statuses else None
        if status:
            code, text, details = status
            if details is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", details if isinstance(details, bytes) else details.SerializeToString()),))
            context.abort(code, text)

    def ListCostModels(self, request, context):
        self._next(context)
        return v1.ListCostModelsResponse()

    def ShardPlanStream(self, request, context):
        self._next(context)
        yield v1.ShardPlanUpdate(progress=0.5)
        self._next(context)

    @contextlib.contextmanager
    def serve(self):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None)


def status_with(code, **details):
    """A google.rpc.Status with details: message name -> fields."""
    status = errors._MESSAGES["google.rpc.Status"](code=code.value[0])
    for name, fields in details.items():
        status.details.add().Pack(errors._MESSAGES[f"google.rpc.{name}"](**fields))
    return status


@contextlib.contextmanager
def silent_port():
    """Accepts connections, in its backlog, and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def greeting_port(greeting):
    """An address where every connection is greeted so and then closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def greet():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(greeting)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 12):
                        pass

        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class ClientTests:
    Client = None  # with the methods of aio.PlannerClient

    @classmethod
    def setUpClass(cls):
        cls.planner = PlannerProcess(PLANNER)
        cls.addClassCleanup(cls.planner.stop)

    def held_port(self):
        port = HeldPort()
        self.addCleanup(port.close)
        return port

    def client(self, address=None, **options):
        return self.Client(address or self.planner.address, **options)

    async def assert_fails(self, kind, awaitable):
        with self.assertRaises(neuroshard.PlannerError) as caught:
            await awaitable
        self.assertIs(type(caught.exception), kind, caught.exception)
        return caught.exception

    # ---- answers

    async def test_every_call_gets_its_answer(self):
        async with self.client() as client:
            response = await client.plan(REQUEST)
            self.assertEqual([table.name for table in response.plan.tables], ["users", "items"])
            self.assertGreater(response.cost.embedding_cost_ms, 0)

            updates = [update async for update in client.plan_stream(REQUEST)]
            self.assertEqual([update.final for update in updates], [False] * (len(updates) - 1) + [True])
            self.assertEqual(updates[-1].best.plan, response.plan)

            for plan in (response, response.plan, as_dict(response.plan)):
                evaluated = await client.evaluate(REQUEST, plan)
                self.assertTrue(evaluated.legal)
                self.assertAlmostEqual(evaluated.cost.embedding_cost_ms, response.cost.embedding_cost_ms)

            shard = {"table": "users", "rows": 1000, "cols": 32, "pooling_factor": 3, "reuse_histogram": [1] + [0] * 16}
            predicted = await client.predict({"sets": [{"shards": [shard], "batch_size": 1024}]})
            self.assertGreater(predicted.predictions[0].total_ms, 0)

            self.assertIn("analytic", [model.name for model in (await client.models()).models])
            self.assertEqual((await client.model("cpu-amd-epyc", 3)).summary.version, 3)
            self.assertIn("h100-sxm", [device.name for device in (await client.devices()).devices])
            error = await self.assert_fails(neuroshard.PlannerError, client.serve_model("no-such-model", 3, share=0.5))
            self.assertIn("there is no version 3 here", str(error))
            self.assertTrue((await client.model()).summary.name)

    async def test_words_of_other_projects_are_translated_by_the_planner(self):
        table = {**REQUEST["tables"][0], "weight_dtype": "float32", "pooling_mode": "avg"}
        rule = {"tables": [table["name"]], "sharding_types": ["colum_wise"], "compute_kernels": ["uvm"]}
        request = {
            **REQUEST, "tables": [table], "optimizer": "row_wise_adagrad", "constraints": {"tables": [rule]},
            "topology": {"hosts": [{"num_devices": 2, "device": "NVIDIA H100"}]},
        }
        async with self.client() as client:
            error = await self.assert_fails(neuroshard.InvalidRequest, client.plan(request))
        for meant in ("fp32", "mean", "column_wise", "fused_uvm", "rowwise_adagrad", "h100-sxm"):
            self.assertIn(f"did you mean {meant}?", str(error))

    async def test_devices_go_by_name(self):
        async with self.client() as client:
            named = {**REQUEST, "topology": {"hosts": [{"device": "a100-sxm-80gb", "num_devices": 2}]}}
            response = await client.plan(named)
            self.assertEqual(response.cost_model.name, "analytic")
            self.assertIn("published figures of a100-sxm-80gb", response.price_basis.text)
            self.assertEqual(response.cost.ranks[0].memory.capacity_bytes, 80_000_000_000)
            # The shipped model of that card, and who does not say that his is one.
            named["topology"]["hosts"][0]["device"] = "h100-sxm"
            response = await client.plan(named)
            self.assertEqual(response.cost_model.name, "h100-sxm")
            self.assertIn("compute measured with neuroshard-cuda kernels on NVIDIA H100 80GB HBM3, until 2026-11-27, and on published figures of the fabric",
                          response.price_basis.text)
            unnamed = {**REQUEST, "topology": {"compute_device": "cuda", "hosts": [{"memory_bytes": 1 << 33, "num_devices": 2}]}}
            response = await client.plan(unnamed)
            self.assertEqual(response.cost_model.name, "analytic")
            self.assertTrue(response.price_basis.text.endswith("naming the device h100-sxm takes a cost model that was measured on it"), response.price_basis.text)
            named["topology"]["hosts"][0]["device"] = "h100-smx"
            with self.assertRaises(neuroshard.InvalidRequest) as caught:
                await client.plan(named)
            self.assertEqual([fault.field for fault in caught.exception.violations], ["topology.hosts[0].device"])
            self.assertIn("did you mean h100-sxm?", str(caught.exception))

    async def test_messages_and_mappings_are_the_same_request(self):
        message = v1.ShardPlanRequest(
            tables=[v1.Table(**table) for table in REQUEST["tables"]],
            topology=v1.Topology(hosts=[v1.HostGroup(num_devices=2, memory_bytes=1 << 33)]),
            global_batch_size=1024,
        )
        async with self.client() as client:
            read_only = types.MappingProxyType({**REQUEST, "tables": tuple(types.MappingProxyType(table) for table in REQUEST["tables"])})
            answers = [await client.plan(request) for request in (REQUEST, message, read_only)]
        for answer in answers:
            self.assertEqual(answer.request_fingerprint, answers[0].request_fingerprint)
            self.assertEqual(answer.plan, answers[0].plan)

    async def test_calls_run_side_by_side(self):
        async with self.client() as client:
            answers = await asyncio.gather(*(client.plan({**REQUEST, "request_id": f"{i}"}) for i in range(6)))
        self.assertEqual([answer.request_id for answer in answers], [f"{i}" for i in range(6)])

    # ---- addresses and arguments

    async def test_the_environment_names_the_planner(self):
        with unittest.mock.patch.dict(os.environ, {"NEUROSHARD_PLANNER": self.planner.address}):
            async with self.Client() as client:
                self.assertTrue((await client.models()).models)
        with unittest.mock.patch.dict(os.environ, {"NEUROSHARD_PLANNER": ""}):
            self.assertEqual(self.Client().address, "127.0.0.1:50051")

    async def test_arguments_that_are_none(self):
        for arguments, options, fault in (
            ([7], {}, TypeError), ([""], {}, ValueError), ([], {"timeout_s": 0}, ValueError), ([], {"timeout_s": float("inf")}, ValueError),
            ([], {"timeout_s": "1"}, TypeError), ([], {"timeout_s": True}, TypeError), ([], {"retries": -1}, ValueError), ([], {"retries": 1.5}, TypeError),
            ([], {"credentials": "secret"}, TypeError),
        ):
            with self.subTest(arguments=arguments, options=options), self.assertRaises(fault):
                self.Client(*arguments, **options)
        async with self.client() as client:
            for request in (7, None, "tables: []", v1.Table(), [REQUEST]):
                with self.subTest(request=request), self.assertRaisesRegex(TypeError, "neuroshard.v1.ShardPlanRequest or a dict"):
                    await client.plan(request)
            with self.assertRaisesRegex(TypeError, "^plan: .*neuroshard.v1.Plan "):
                await client.evaluate(REQUEST, 7)
            with self.assertRaises(ValueError):
                await client.plan(REQUEST, timeout_s=-1)

    async def test_a_closed_client_is_no_client(self):
        client = self.client()
        await client.models()
        await client.close()
        with self.assertRaises(ValueError):
            await client.models()

    # ---- errors

    async def test_every_fault_of_a_request_is_listed(self):
        async with self.client() as client:
            bad = {**REQUEST, "tables": [{"name": "users", "num_embeddings": -4, "embedding_dim": 0}], "search": {"strategy": "best"}}
            error = await self.assert_fails(neuroshard.InvalidRequest, client.plan(bad))
            self.assertEqual(error.code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual([fault.field for fault in error.violations], ["search.strategy", "tables[0].num_embeddings", "tables[0].embedding_dim"])
            self.assertEqual(error.violations[1].description, "must be at least 1, got -4")
            self.assertIn(self.planner.address, str(error))
            error = await self.assert_fails(neuroshard.InvalidRequest, collected(client.plan_stream(bad)))
            self.assertEqual(len(error.violations), 3)
            error = await self.assert_fails(neuroshard.InvalidRequest, client.evaluate(bad, {"world_size": -1}))
            self.assertIn("request.tables[0].embedding_dim", [fault.field for fault in error.violations])

    async def test_what_cannot_be_planned(self):
        async with self.client() as client:
            tiny = {**REQUEST, "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 20}]}}
            error = await self.assert_fails(neuroshard.Infeasible, client.plan(tiny))
            self.assertEqual((error.code, [fault.field for fault in error.violations]), (grpc.StatusCode.FAILED_PRECONDITION, ["topology"]))
            with self.assertRaises(neuroshard.PlannerError) as caught:
                await client.model("no-such-model")
            self.assertEqual(caught.exception.code, grpc.StatusCode.FAILED_PRECONDITION)
            self.assertIn("no-such-model", caught.exception.message)

    async def test_faults_of_a_mapping_are_found_before_the_call(self):
        async with self.client("127.0.0.1:1") as client:
            bad = {
                "tables": [{"name": "users"}, {"nmae": "items", "embedding_dim": "wide", "features": "f", "weighted": 3}, 7],
                "global_batch_size": 1 << 70, "topology": {"hosts": [{"num_devices": 1.5}]}, "serach": {}, "search": {"max_threads": None},
            }
            error = await self.assert_fails(neuroshard.InvalidRequest, client.plan(bad))
            self.assertEqual([str(fault) for fault in error.violations], [
                "tables[1].nmae: unknown field; did you mean name?",
                "tables[1].embedding_dim: must be an integer of 64 bits, got 'wide'",
                "tables[1].features: must be a list, got 'f'",
                "tables[1].weighted: must be true or false, got 3",
                "tables[2]: must be a mapping, got 7",
                "global_batch_size: must be an integer of 64 bits, got 1180591620717411303424",
                "topology.hosts[0].num_devices: must be an integer of 32 bits, got 1.5",
                "serach: unknown field; did you mean search?",
            ])
            for mapping, said in (
                ({"search": {"steps": 9}}, "search.steps: unknown field; did you mean refine_steps?"),
                ({"batch_size": 9}, "batch_size: unknown field; did you mean global_batch_size (of all ranks together)?"),
                ({"topology": {"hosts": [{"hbm_cap": 9}]}}, "topology.hosts[0].hbm_cap: unknown field; did you mean memory_bytes (of one device)?"),
                ({"tables": [{"embeddingDim": 9, "rows": 9}]}, "tables[0].rows: unknown field; did you mean num_embeddings?"),
                ({"colour": 9}, "colour: unknown field; known: request_id, tables, topology, "),
            ):
                error = await self.assert_fails(neuroshard.InvalidRequest, client.plan(mapping))
                self.assertEqual(len(error.violations), 1)
                self.assertTrue(str(error.violations[0]).startswith(said), str(error))
            error = await self.assert_fails(neuroshard.InvalidRequest, client.evaluate(REQUEST, {"tables": [{"nam": 1}]}))
            self.assertEqual([fault.field for fault in error.violations], ["plan.tables[0].nam"])
            error = await self.assert_fails(neuroshard.InvalidRequest, client.plan({"tables": [{"x": 1}] * 1000}))
            self.assertEqual((len(error.violations), error.violations[-1].field), (101, "..."))

    async def test_errors_survive_pickling(self):
        async with self.client() as client:
            error = await self.assert_fails(neuroshard.InvalidRequest, client.plan({**REQUEST, "tables": []}))
        copy = pickle.loads(pickle.dumps(error))
        self.assertIs(type(copy), type(error))
        self.assertEqual((str(copy), copy.code, copy.violations, copy.address), (str(error), error.code, error.violations, error.address))

    async def test_details_of_other_kinds(self):
        code = grpc.StatusCode
        cases = (
            (code.FAILED_PRECONDITION, {"ErrorInfo": {"reason": "OUT_OF_MEMORY"}}, neuroshard.Infeasible, "OUT_OF_MEMORY", None),
            (code.FAILED_PRECONDITION, {"ErrorInfo": {"reason": "NO_MODEL"}}, neuroshard.NoModel, "NO_MODEL", None),
            (code.FAILED_PRECONDITION, None, neuroshard.Infeasible, None, None),
            (code.RESOURCE_EXHAUSTED, {"RetryInfo": {"retry_delay": {"seconds": 2, "nanos": 500000000}}}, neuroshard.LimitExceeded, None, 2.5),
            (code.INTERNAL, {}, neuroshard.PlannerError, None, None),
            (code.INTERNAL, b"\xff no message", neuroshard.PlannerError, None, None),
        )
        for status, details, kind, reason, delay in cases:
            if isinstance(details, dict):
                details = status_with(status, **details)
            with self.subTest(details=details), ScriptedPlanner((status, "why", details)).serve() as address:
                async with self.client(address, retries=0) as client:
                    error = await self.assert_fails(kind, client.models())
                self.assertEqual((error.code, error.message, error.reason, error.retry_delay_s, error.violations), (status, "why", reason, delay, []))

    async def test_a_server_that_is_no_planner(self):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, None)
        async with self.client(f"127.0.0.1:{port}") as client:
            error = await self.assert_fails(neuroshard.PlannerError, client.models())
        self.assertEqual(error.code, grpc.StatusCode.UNIMPLEMENTED)

    async def test_a_port_of_metrics(self):
        address = self.planner.metrics_address
        async with self.client(address, retries=0) as client:
            error = await self.assert_fails(neuroshard.Unavailable, client.models())
        self.assertEqual(str(error), f"planner at {address}: what listens there speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps")

    async def test_a_server_that_speaks_no_grpc(self):
        for greeting in (b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.0 400 Bad request syntax\r\nConnection: close\r\n\r\n", b"-ERR unknown command\r\n" * 9):
            with greeting_port(greeting) as address:
                async with self.client(address, retries=0, timeout_s=20) as client:
                    error = await self.assert_fails(neuroshard.Unavailable, client.models())
                self.assertRegex(str(error), f"planner at {address}: (what listens there|the connection was closed)")

    async def test_tls_to_a_planner_without_it(self):
        async with self.client(credentials=grpc.ssl_channel_credentials(), retries=0) as client:
            await self.assert_fails(neuroshard.Unavailable, client.models())

    # ---- deadlines

    async def test_a_deadline_cuts_the_search_not_the_answer(self):
        async with self.client() as client:
            response = await client.plan(LONG_REQUEST, timeout_s=2)
        self.assertTrue(response.search.time_limit_reached)
        self.assertEqual(len(response.plan.tables), 50)

    async def test_a_deadline_that_passes(self):
        with silent_port() as address:
            async with self.client(address, timeout_s=0.5) as client:
                started = time.monotonic()
                error = await self.assert_fails(neuroshard.DeadlineExceeded, client.plan(REQUEST))
                self.assertEqual(error.code, grpc.StatusCode.DEADLINE_EXCEEDED)
                await self.assert_fails(neuroshard.DeadlineExceeded, collected(client.plan_stream(REQUEST)))
                await self.assert_fails(neuroshard.DeadlineExceeded, client.models(timeout_s=0.1))
                self.assertLess(time.monotonic() - started, 60)  # far below the default of 600 s

    async def test_retries_end_with_the_deadline(self):
        async with self.client(self.held_port().address, timeout_s=0.5, retries=1000000) as client:
            with self.assertRaises((neuroshard.Unavailable, neuroshard.DeadlineExceeded)):  # the last attempt may have a millisecond left
                await client.models()

    # ---- retries

    async def test_nobody_listens(self):
        address = self.held_port().address
        async with self.client(address) as client:
            error = await self.assert_fails(neuroshard.Unavailable, client.plan(REQUEST))
            self.assertEqual(str(error), f"planner at {address}: nothing listens there (Connection refused)")
            await self.assert_fails(neuroshard.Unavailable, collected(client.plan_stream(REQUEST)))

    async def test_only_unavailable_is_retried_with_growing_waits(self):
        unavailable = (grpc.StatusCode.UNAVAILABLE, "draining", None)
        scripted = ScriptedPlanner(unavailable, unavailable, unavailable)
        with scripted.serve() as address:
            async with self.client(address) as client:
                await client.models()
        waits = [later - earlier for earlier, later in zip(scripted.times, scripted.times[1:])]
        for wait, least in zip(waits, (0.05, 0.1, 0.2)):
            self.assertGreaterEqual(wait, least)
        self.assertEqual(len(waits), 3)

        for retries, calls in ((0, 1), (2, 3)):
            scripted = ScriptedPlanner(*[unavailable] * 10)
            with scripted.serve() as address:
                async with self.client(address, retries=retries) as client:
                    await self.assert_fails(neuroshard.Unavailable, client.models())
            self.assertEqual(len(scripted.times), calls)

        scripted = ScriptedPlanner((grpc.StatusCode.RESOURCE_EXHAUSTED, "64 calls in flight", None))
        with scripted.serve() as address:
            async with self.client(address) as client:
                await self.assert_fails(neuroshard.LimitExceeded, client.models())
        self.assertEqual(len(scripted.times), 1)

    async def test_the_server_may_ask_for_a_longer_wait(self):
        details = status_with(grpc.StatusCode.UNAVAILABLE, RetryInfo={"retry_delay": {"nanos": 400000000}})
        scripted = ScriptedPlanner((grpc.StatusCode.UNAVAILABLE, "draining", details))
        with scripted.serve() as address:
            async with self.client(address) as client:
                await client.models()
        self.assertGreaterEqual(scripted.times[1] - scripted.times[0], 0.4)

    async def test_a_stream_is_retried_only_while_nothing_was_received(self):
        unavailable = (grpc.StatusCode.UNAVAILABLE, "draining", None)
        scripted = ScriptedPlanner(unavailable, unavailable, None, unavailable)
        with scripted.serve() as address:
            async with self.client(address) as client:
                stream = client.plan_stream(REQUEST)
                self.assertEqual((await anext_of(stream)).progress, 0.5)
                await self.assert_fails(neuroshard.Unavailable, anext_of(stream))
                self.assertEqual(len(scripted.times), 4)  # two failures, one stream with a beginning and an end
                error = await self.assert_fails(neuroshard.PlannerError, collected(client.plan_stream(REQUEST)))
                self.assertIn("without a final plan", str(error))

    async def test_a_planner_that_comes_up_late_is_found(self):
        address = self.held_port().address
        async with self.client(address, retries=100) as client:
            calls = [asyncio.ensure_future(client.plan(REQUEST)), asyncio.ensure_future(collected(client.plan_stream(REQUEST)))]
            with PlannerProcess(PLANNER, listen=address):
                response, updates = await asyncio.gather(*calls)
        self.assertEqual(updates[-1].best.plan, response.plan)

    # ---- planners that end

    async def test_kill_9_in_the_middle_of_a_call(self):
        with PlannerProcess(PLANNER, listen=self.held_port().address) as first:
            async with self.client(first.address, retries=100) as client:
                stream = client.plan_stream(LONG_REQUEST)
                await anext_of(stream)
                alone = asyncio.ensure_future(client.plan({**LONG_REQUEST, "search": {"time_budget_ms": 4000}}))
                await asyncio.to_thread(first.wait_for_metric, 'neuroshard_rpc_in_flight{rpc="ShardPlan"} 1')
                first.kill()
                await self.assert_fails(neuroshard.Unavailable, collected(stream))  # a part of its answer was seen
                with PlannerProcess(PLANNER, listen=first.address):
                    self.assertEqual(len((await alone).plan.tables), 50)  # asked again

    async def test_a_draining_planner_answers_what_it_has_begun(self):
        with PlannerProcess(PLANNER) as planner:
            async with self.client(planner.address, retries=0) as client:
                stream = client.plan_stream(LONG_REQUEST)
                while not (await anext_of(stream)).HasField("best"):  # a planner that has no plan yet has nothing to answer
                    pass
                planner.drain()
                last = (await collected(stream))[-1]
                self.assertTrue(last.final and last.best.search.time_limit_reached)
                await self.assert_fails(neuroshard.Unavailable, client.plan(REQUEST))
                self.assertEqual(await asyncio.to_thread(planner.process.wait, 30), 0)

    # ---- cancelling

    async def test_a_cancelled_stream_ends_the_search(self):
        with PlannerProcess(PLANNER) as planner:
            async with self.client(planner.address) as client:
                stream = client.plan_stream(LONG_REQUEST)
                await anext_of(stream)
                stream.cancel()
                await self.assert_fails(neuroshard.Cancelled, collected(stream))
                async with client.plan_stream(LONG_REQUEST) as stream:
                    await anext_of(stream)
                await asyncio.to_thread(planner.wait_for_metric, 'neuroshard_rpc_duration_seconds_count{rpc="ShardPlanStream"} 2')

    async def test_closing_ends_calls_in_progress(self):
        with PlannerProcess(PLANNER) as planner:
            client = self.client(planner.address)
            stream = client.plan_stream(LONG_REQUEST)
            await anext_of(stream)
            calls = [asyncio.ensure_future(collected(stream)), asyncio.ensure_future(client.plan(LONG_REQUEST))]
            await asyncio.to_thread(planner.wait_for_metric, 'neuroshard_rpc_in_flight{rpc="ShardPlan"} 1')
            await client.close()
            for call in calls:
                await self.assert_fails(neuroshard.Cancelled, call)


class ThreadsTest(ClientTests, unittest.IsolatedAsyncioTestCase):
    Client = ThreadsAsAio


class AioTest(ClientTests, unittest.IsolatedAsyncioTestCase):
    Client = aio.PlannerClient

    async def test_a_cancelled_task_ends_the_search(self):
        with PlannerProcess(PLANNER) as planner:
            async with self.client(planner.address) as client:
                task = asyncio.ensure_future(client.plan(LONG_REQUEST))
                await asyncio.to_thread(planner.wait_for_metric, 'neuroshard_rpc_in_flight{rpc="ShardPlan"} 1')
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.to_thread(planner.wait_for_metric, 'neuroshard_rpc_duration_seconds_count{rpc="ShardPlan"} 1')


class TwinsTest(unittest.TestCase):
    def test_both_clients_have_the_same_methods(self):
        def methods(client):
            return {
                name: [str(parameter) for parameter in inspect.signature(method).parameters.values()]
                for name, method in vars(client).items() if not name.startswith("_") or name == "__init__"
            }

        self.assertEqual(methods(neuroshard.PlannerClient), methods(aio.PlannerClient))


def as_dict(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


async def collected(stream):
    return [update async for update in stream]


async def anext_of(stream):
    return await stream.__anext__()


if __name__ == "__main__":
    PLANNER = sys.argv[1]
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # what took long under its debug mode
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
