"""PlannerService for threads; aio.py has the same for asyncio."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator, Optional, TypeVar

import grpc

from neuroshard import call, v1
from neuroshard.v1 import planner_pb2_grpc

R = TypeVar("R")


class PlannerClient:
    """Calls of a planner. Thread-safe, except for `close`. Connects with the first call; make it after forking.

    address: "HOST:PORT", or replicas: "IP:PORT,IP:PORT,..." or a HOST of several addresses, which take the calls in turn. None: the environment variable NEUROSHARD_PLANNER, else 127.0.0.1:50051.
    credentials: for TLS, e.g. grpc.ssl_channel_credentials(...). None: plaintext.
    timeout_s: deadline of a call in seconds, retries and the waits between them included. Every method takes another.
    retries: how often a call is repeated while the planner is UNAVAILABLE or overloaded, with backoff; nothing else is repeated.

    Requests are messages of `neuroshard.v1` or mappings of the same shape, answers are messages. Every method raises a `PlannerError`
    (neuroshard/errors.py) when the call fails, and TypeError or ValueError for arguments that are none.
    """

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        credentials: Optional[grpc.ChannelCredentials] = None,
        timeout_s: float = call.DEFAULT_TIMEOUT_S,
        retries: int = call.DEFAULT_RETRIES,
    ):
        self.address = call.planner_address(address)
        self._timeout_s = call.checked_timeout(timeout_s)
        self._retries = call.checked_retries(retries)
        target, options = call.replica_channel(self.address)
        if call.checked_credentials(credentials):
            self._channel = grpc.secure_channel(target, credentials, options=options)
        else:
            self._channel = grpc.insecure_channel(target, options=options)
        self._stub = planner_pb2_grpc.PlannerServiceStub(self._channel)

    def plan(self, request: call.ShardPlanRequestLike, *, timeout_s: Optional[float] = None) -> v1.ShardPlanResponse:
        """Searches a plan. A deadline that passes during the search cuts the search, not the answer: `search.time_limit_reached`."""
        return self._call(self._stub.ShardPlan, call.shard_plan_request(request), timeout_s)

    def plan_stream(self, request: call.ShardPlanRequestLike, *, timeout_s: Optional[float] = None) -> PlanStream:
        """The same search, with its progress and every improvement."""
        return PlanStream(self._stub.ShardPlanStream, call.shard_plan_request(request), self._attempts(timeout_s), self.address)

    def evaluate(self, request: call.ShardPlanRequestLike, plan: call.PlanLike, *, timeout_s: Optional[float] = None) -> v1.EvaluatePlanResponse:
        """Prices a plan and reports every rule it breaks; an illegal plan is an answer, not an error."""
        return self._call(self._stub.EvaluatePlan, call.evaluate_request(request, plan), timeout_s)

    def predict(self, request: call.PredictComputeRequestLike, *, timeout_s: Optional[float] = None) -> v1.PredictComputeResponse:
        """Predicts the compute of one device on sets of shards, without a plan."""
        return self._call(self._stub.PredictCompute, call.predict_compute_request(request), timeout_s)

    def models(self, *, timeout_s: Optional[float] = None) -> v1.ListCostModelsResponse:
        """The cost models that the planner serves, and those it refused."""
        return self._call(self._stub.ListCostModels, v1.ListCostModelsRequest(), timeout_s)

    def model(self, name: str = "", version: int = 0, *, timeout_s: Optional[float] = None) -> v1.GetCostModelResponse:
        """What is known of one cost model. Without a name the planner's default, without a version the one that serves."""
        return self._call(self._stub.GetCostModel, v1.GetCostModelRequest(cost_model=v1.CostModelRef(name=name, version=version)), timeout_s)

    def devices(self, *, timeout_s: Optional[float] = None) -> v1.ListDevicesResponse:
        """The devices that a request's `topology.hosts` may name, with the published figures that stand for them."""
        return self._call(self._stub.ListDevices, v1.ListDevicesRequest(), timeout_s)

    def serve_model(
        self, name: str, version: int, *, share: Optional[float] = None, force: bool = False, timeout_s: Optional[float] = None
    ) -> v1.ServeModelResponse:
        """Has a version serve the requests that name none, or a share of them, on every planner of the same model root. Needs the role "admin".
        FailedPrecondition lists the reasons against the version, unless `force`."""
        return self._call(self._stub.ServeModel, v1.ServeModelRequest(name=name, version=version, share=share, force=force), timeout_s)

    def close(self) -> None:
        """Ends calls in progress; later ones are a ValueError."""
        self._channel.close()

    def __enter__(self) -> PlannerClient:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _attempts(self, timeout_s: Optional[float]) -> call.Attempts:
        return call.Attempts(self._timeout_s if timeout_s is None else call.checked_timeout(timeout_s), self._retries)

    def _call(self, method: Callable[..., R], request: Any, timeout_s: Optional[float]) -> R:
        attempts = self._attempts(timeout_s)
        while True:
            try:
                return method(request, timeout=attempts.remaining_s())
            except grpc.RpcError as fault:
                error = call.planner_error(fault, self.address)
            time.sleep(attempts.wait_s(error))


class PlanStream(Iterator[v1.ShardPlanUpdate]):
    """The updates of one search; iterating waits for the next. The last one has `final` set and the plan in `best`.

    Retried only while nothing was received: a second answer from the start would contradict the first. `cancel`, which any thread may call, ends the search;
    the iteration then raises Cancelled. As a context manager it cancels what is left at the end. Otherwise not thread-safe.
    """

    def __init__(self, method: Callable[..., Any], request: v1.ShardPlanRequest, attempts: call.Attempts, address: str):
        self._open = lambda: method(request, timeout=attempts.remaining_s())
        self._attempts = attempts
        self._address = address
        self._started = False
        self._final = False
        self._cancelled = threading.Event()
        self._call = self._open()

    def cancel(self) -> None:
        self._cancelled.set()
        self._call.cancel()

    def __enter__(self) -> PlanStream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()

    def __iter__(self) -> PlanStream:
        return self

    def __next__(self) -> v1.ShardPlanUpdate:
        while True:
            try:
                update = next(self._call)
            except StopIteration:
                if not self._final:
                    raise call.unfinished(self._address) from None
                raise
            except grpc.RpcError as fault:
                error = call.planner_error(fault, self._address)
            else:
                self._started = True
                self._final = update.final and update.HasField("best")
                return update
            if self._started:
                raise error
            if self._cancelled.wait(self._attempts.wait_s(error)):
                raise call.cancelled(self._address)
            self._call = self._open()
            if self._cancelled.is_set():  # between the wait and the new call
                self._call.cancel()
