"""PlannerService for threads; aio.py has the same for asyncio."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable, Iterator, List, Optional

import grpc

from neuroshard import call, v1
from neuroshard.v1 import planner_pb2_grpc


class PlannerClient:
    """Calls of a planner. Thread-safe, except for `close`. Connects with the first call; make it after forking.

    address: "HOST:PORT", or replicas: "HOST:PORT,HOST:PORT,..." or a HOST of several addresses, which take the calls in turn; one of a list that cannot be
      used is said once, by the logger "neuroshard". Or "unix:/PATH". None: the environment variable NEUROSHARD_PLANNER, else the planner of this package,
      which the first call starts (neuroshard_programs/embedded.py); where the package has none, 127.0.0.1:50051.
    credentials: for TLS, e.g. grpc.ssl_channel_credentials(...). None: plaintext.
    tls_server_name: what servers' certificates name; None: the HOST that is called.
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
        tls_server_name: Optional[str] = None,
        timeout_s: float = call.DEFAULT_TIMEOUT_S,
        retries: int = call.DEFAULT_RETRIES,
    ):
        self._embedded = call.embedded_planner(address, credentials)
        self.address = self._embedded.address if self._embedded else call.planner_address(address)
        self._timeout_s = call.checked_timeout(timeout_s)
        self._retries = call.checked_retries(retries)
        credentials = call.checked_credentials(credentials)
        self._replicas = call.Replicas(self.address, call.checked_server_name(tls_server_name, credentials))
        self._channels = [
            grpc.secure_channel(target, credentials, options=options) if credentials else grpc.insecure_channel(target, options=options)
            for target, options in self._replicas.targets()
        ]
        self._stubs = [planner_pb2_grpc.PlannerServiceStub(channel) for channel in self._channels]
        self._states: List[Optional[grpc.ChannelConnectivity]] = [None] * len(self._channels)
        # Into `states`, which knows nothing of this client: channels keep them.
        self._watchers = [functools.partial(self._states.__setitem__, i) for i in range(len(self._channels))]
        self._closed = False

    def plan(self, request: call.ShardPlanRequestLike, *, timeout_s: Optional[float] = None) -> v1.ShardPlanResponse:
        """Searches a plan. A deadline that passes during the search cuts the search, not the answer: `search.time_limit_reached`."""
        return self._call("ShardPlan", call.shard_plan_request(request), timeout_s)

    def plan_stream(self, request: call.ShardPlanRequestLike, *, timeout_s: Optional[float] = None) -> PlanStream:
        """The same search, with its progress and every improvement."""
        return PlanStream(functools.partial(self._start, "ShardPlanStream"), call.shard_plan_request(request), self._attempts(timeout_s), self.address)

    def evaluate(self, request: call.ShardPlanRequestLike, plan: call.PlanLike, *, timeout_s: Optional[float] = None) -> v1.EvaluatePlanResponse:
        """Prices a plan and reports every rule it breaks; an illegal plan is an answer, not an error."""
        return self._call("EvaluatePlan", call.evaluate_request(request, plan), timeout_s)

    def predict(self, request: call.PredictComputeRequestLike, *, timeout_s: Optional[float] = None) -> v1.PredictComputeResponse:
        """Predicts the compute of one device on sets of shards, without a plan."""
        return self._call("PredictCompute", call.predict_compute_request(request), timeout_s)

    def models(self, *, timeout_s: Optional[float] = None) -> v1.ListCostModelsResponse:
        """The cost models that the planner serves, and those it refused."""
        return self._call("ListCostModels", v1.ListCostModelsRequest(), timeout_s)

    def model(self, name: str = "", version: int = 0, *, timeout_s: Optional[float] = None) -> v1.GetCostModelResponse:
        """What is known of one cost model. Without a name the planner's default, without a version the one that serves."""
        return self._call("GetCostModel", v1.GetCostModelRequest(cost_model=v1.CostModelRef(name=name, version=version)), timeout_s)

    def devices(self, *, timeout_s: Optional[float] = None) -> v1.ListDevicesResponse:
        """The devices that a request's `topology.hosts` may name, with the published figures that stand for them."""
        return self._call("ListDevices", v1.ListDevicesRequest(), timeout_s)

    def serve_model(
        self, name: str, version: int, *, share: Optional[float] = None, force: bool = False, timeout_s: Optional[float] = None
    ) -> v1.ServeModelResponse:
        """Has a version serve the requests that name none, or a share of them, on every planner of the same model root. Needs the role "admin".
        FailedPrecondition lists the reasons against the version, unless `force`."""
        return self._call("ServeModel", v1.ServeModelRequest(name=name, version=version, share=share, force=force), timeout_s)

    def close(self) -> None:
        """Ends calls in progress; later ones are a ValueError."""
        self._closed = True
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> PlannerClient:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _attempts(self, timeout_s: Optional[float]) -> call.Attempts:
        return call.Attempts(self._timeout_s if timeout_s is None else call.checked_timeout(timeout_s), self._retries, self._embedded)

    def _start(self, name: str, request: Any, attempts: call.Attempts) -> Any:
        """What the method of the replica whose turn it is returns."""
        while True:
            if len(self._channels) > 1:
                self._watch()
            replica = self._replicas.turn(self._states, attempts)
            if self._closed:
                raise ValueError("the client is closed")
            if replica is not None:
                return getattr(self._stubs[replica], name)(request, timeout=attempts.begin())
            time.sleep(call.LOOK_S)

    def _watch(self) -> None:
        """Connects those that are not connected, at first and after a time without calls."""
        for channel, state, watcher in zip(self._channels, self._states, self._watchers):
            if state in (None, grpc.ChannelConnectivity.IDLE):
                channel.unsubscribe(watcher)
                channel.subscribe(watcher, try_to_connect=True)

    def _call(self, name: str, request: Any, timeout_s: Optional[float]) -> Any:
        attempts = self._attempts(timeout_s)
        while True:
            try:
                return self._start(name, request, attempts)
            except grpc.RpcError as fault:
                error = call.planner_error(fault, self.address)
            time.sleep(attempts.wait_s(error))


class PlanStream(Iterator[v1.ShardPlanUpdate]):
    """The updates of one search; iterating waits for the next. The last one has `final` set and the plan in `best`.

    Retried only while nothing was received: a second answer from the start would contradict the first. `cancel`, which any thread may call, ends the search;
    the iteration then raises Cancelled. As a context manager it cancels what is left at the end. Otherwise not thread-safe.
    """

    def __init__(self, start: Callable[..., Any], request: v1.ShardPlanRequest, attempts: call.Attempts, address: str):
        self._open = lambda: start(request, attempts)
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
