"""PlannerService for asyncio: the names and arguments of neuroshard.PlannerClient (client.py), where its calls are explained."""

from __future__ import annotations

import asyncio
import functools
import weakref
from typing import Any, AsyncIterator, Callable, List, Optional

import grpc
import grpc.aio

from neuroshard import call, v1
from neuroshard.v1 import planner_pb2_grpc


class PlannerClient:
    """As neuroshard.PlannerClient, for the event loop of its first call. A cancelled task cancels its call, and the planner's search with it. An embedded
    planner holds the loop up while it starts."""

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
        self._credentials = call.checked_credentials(credentials)
        self._timeout_s = call.checked_timeout(timeout_s)
        self._retries = call.checked_retries(retries)
        self._replicas = call.Replicas(self.address, call.checked_server_name(tls_server_name, self._credentials))
        self._channels: List[grpc.aio.Channel] = []
        self._stubs: List[planner_pb2_grpc.PlannerServiceStub] = []
        self._calls: weakref.WeakSet[grpc.aio.Call] = weakref.WeakSet()
        self._closed = False

    async def plan(self, request: call.ShardPlanRequestLike, *, timeout_s: Optional[float] = None) -> v1.ShardPlanResponse:
        return await self._call("ShardPlan", call.shard_plan_request(request), timeout_s)

    def plan_stream(self, request: call.ShardPlanRequestLike, *, timeout_s: Optional[float] = None) -> PlanStream:
        """For `async for`; needs a running event loop."""
        start = functools.partial(self._start, "ShardPlanStream", call.shard_plan_request(request))
        return PlanStream(start, self._attempts(timeout_s), self.address, lambda: self._closed)

    async def evaluate(self, request: call.ShardPlanRequestLike, plan: call.PlanLike, *, timeout_s: Optional[float] = None) -> v1.EvaluatePlanResponse:
        return await self._call("EvaluatePlan", call.evaluate_request(request, plan), timeout_s)

    async def predict(self, request: call.PredictComputeRequestLike, *, timeout_s: Optional[float] = None) -> v1.PredictComputeResponse:
        return await self._call("PredictCompute", call.predict_compute_request(request), timeout_s)

    async def models(self, *, timeout_s: Optional[float] = None) -> v1.ListCostModelsResponse:
        return await self._call("ListCostModels", v1.ListCostModelsRequest(), timeout_s)

    async def model(self, name: str = "", version: int = 0, *, timeout_s: Optional[float] = None) -> v1.GetCostModelResponse:
        return await self._call("GetCostModel", v1.GetCostModelRequest(cost_model=v1.CostModelRef(name=name, version=version)), timeout_s)

    async def devices(self, *, timeout_s: Optional[float] = None) -> v1.ListDevicesResponse:
        return await self._call("ListDevices", v1.ListDevicesRequest(), timeout_s)

    async def serve_model(
        self, name: str, version: int, *, share: Optional[float] = None, force: bool = False, timeout_s: Optional[float] = None
    ) -> v1.ServeModelResponse:
        return await self._call("ServeModel", v1.ServeModelRequest(name=name, version=version, share=share, force=force), timeout_s)

    async def close(self) -> None:
        """Ends calls in progress; later ones are a ValueError."""
        self._closed = True
        for running in list(self._calls):  # the channel does not end streams
            running.cancel()
        for channel in self._channels:
            await channel.close()

    async def __aenter__(self) -> PlannerClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def _start(self, name: str, request: Any, attempts: call.Attempts) -> Optional[grpc.aio.Call]:
        """A call of the replica whose turn it is; None: ask again in LOOK_S."""
        if self._closed:
            raise ValueError("the client is closed")
        if not self._channels:
            for target, options in self._replicas.targets():
                if self._credentials:
                    self._channels.append(grpc.aio.secure_channel(target, self._credentials, options=options))
                else:
                    self._channels.append(grpc.aio.insecure_channel(target, options=options))
            self._stubs = [planner_pb2_grpc.PlannerServiceStub(channel) for channel in self._channels]
        replica = self._replicas.turn([channel.get_state(try_to_connect=True) for channel in self._channels], attempts)
        if replica is None:
            return None
        running = getattr(self._stubs[replica], name)(request, timeout=attempts.begin())
        self._calls.add(running)
        return running

    def _attempts(self, timeout_s: Optional[float]) -> call.Attempts:
        return call.Attempts(self._timeout_s if timeout_s is None else call.checked_timeout(timeout_s), self._retries, self._embedded)

    async def _call(self, name: str, request: Any, timeout_s: Optional[float]) -> Any:
        attempts = self._attempts(timeout_s)
        while True:
            try:
                running = self._start(name, request, attempts)
                if running is None:
                    await asyncio.sleep(call.LOOK_S)
                    continue
                return await running
            except grpc.RpcError as fault:
                error = call.planner_error(fault, self.address)
            except asyncio.CancelledError:
                if self._closed and not _task_is_cancelled():
                    raise call.cancelled(self.address) from None
                raise
            await asyncio.sleep(attempts.wait_s(error))


class PlanStream(AsyncIterator[v1.ShardPlanUpdate]):
    """As neuroshard.PlanStream, for `async for` and `async with`."""

    def __init__(self, start: Callable[[call.Attempts], Optional[grpc.aio.Call]], attempts: call.Attempts, address: str, closed: Callable[[], bool]):
        self._open = functools.partial(start, attempts)
        self._attempts = attempts
        self._address = address
        self._started = False
        self._final = False
        self._closed = closed
        self._cancelled = False
        self._call = self._open()

    def cancel(self) -> None:
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> PlanStream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.cancel()

    def __aiter__(self) -> PlanStream:
        return self

    async def __anext__(self) -> v1.ShardPlanUpdate:
        while True:
            try:
                if self._call is None:
                    await asyncio.sleep(call.LOOK_S)
                    if self._cancelled or self._closed():
                        raise call.cancelled(self._address)
                    self._call = self._open()
                    continue
                update = await self._call.read()
                if update is not grpc.aio.EOF:
                    self._started = True
                    self._final = update.final and update.HasField("best")
                    return update
                if not self._final:
                    raise call.unfinished(self._address)
                raise StopAsyncIteration
            except grpc.RpcError as fault:
                error = call.planner_error(fault, self._address)
            except asyncio.CancelledError:
                if (self._cancelled or self._closed()) and not _task_is_cancelled():
                    raise call.cancelled(self._address) from None
                raise
            if self._started:
                raise error
            await asyncio.sleep(self._attempts.wait_s(error))
            if self._cancelled or self._closed():
                raise call.cancelled(self._address)
            self._call = self._open()


def _task_is_cancelled() -> bool:
    """Whether somebody cancelled the running task. Python before 3.11 does not tell it from a cancelled call."""
    return bool(getattr(asyncio.current_task(), "cancelling", lambda: 0)())
