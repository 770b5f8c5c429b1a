"""WorkerService (proto/neuroshard/v1/worker.proto): admits, decodes, measures in the devices' processes, answers. One event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Optional, Tuple, Union

import grpc

from neuroshard import v1
from neuroshard.v1.worker_pb2_grpc import WorkerServiceServicer

from . import host
from .comm_groups import CommGroups
from .devices import Device, DeviceInventory, Lease, OutOfMemory
from .faults import Fault
from .logs import FailureLines, Log
from .metrics import OTHER, RpcMetrics, WorkerMetrics
from .samples import POOLING_MODES, check_casts, check_comm_sample_of_group, decode_comm_sample, decode_compute_sample, decode_group_spec, decode_settings
from .security import Caller, Tls
from .timing import Settings

MAX_IN_FLIGHT = 64
SERVICE = "/neuroshard.v1.WorkerService/"
RPCS = ("GetWorkerInfo", "ProfileCompute", "OpenCommGroup", "ConnectCommGroup", "ProfileComm", "CloseCommGroup")
_CHEAP = ("GetWorkerInfo",)  # always answered


def _decode(decode: Callable[..., Any], message: Any, prefix: str, *more: Any) -> Any:
    """decode(message, *more); its violations are of the field `prefix` of the request."""
    try:
        return decode(message, *more)
    except Fault as fault:
        raise fault.below(prefix) from None


def _decode_all(*parts: Tuple[Callable[..., Any], Any, str]) -> List[Any]:
    """_decode of several parts of a request, and the violations of all."""
    results, faults = [], []
    for part in parts:
        try:
            results.append(_decode(*part))
        except Fault as fault:
            faults.append(fault)
    Fault.raise_all(faults)
    return results


def _decode_header(request: v1.ProfileComputeRequest, num_devices: int) -> Tuple[int, Settings]:
    if not request.HasField("header"):
        raise Fault("INVALID_ARGUMENT", "header: the first message of the stream must carry it")

    def decode_device(device: int) -> int:
        if not 0 <= device < num_devices:
            raise Fault.invalid("device", f"must be in [0, {num_devices}), got {device}")
        return device

    device, settings = _decode_all((decode_device, request.header.device, "header."), (decode_settings, request.header.settings, "header.settings."))
    return device, settings


class WorkerService(WorkerServiceServicer):
    """tls: whose roles callers need; None: every caller may do everything. stream_idle_timeout_s: how long a ProfileCompute stream may wait for its client
    before it is cancelled and its device is free again."""

    def __init__(self, inventory: DeviceInventory, groups: CommGroups, calls: CallLog, metrics: WorkerMetrics, version: str, tls: Optional[Tls] = None,
                 stream_idle_timeout_s: float = 60.0) -> None:
        self._inventory, self._groups, self._calls, self._metrics = inventory, groups, calls, metrics
        self._version, self._tls, self._stream_idle_timeout_s = version, tls, stream_idle_timeout_s
        self._environment = {**host.environment(), "threads": str(inventory.threads)}
        self._in_flight = 0
        self.draining = False

    # The calls.

    async def GetWorkerInfo(self, request: v1.GetWorkerInfoRequest, context: Any) -> v1.WorkerInfo:
        async with self._serving("GetWorkerInfo", context):
            info = v1.WorkerInfo(version=self._version, git_commit="unknown", hostname=host.hostname(), environment=self._environment,
                                 now_unix_ms=int(time.time() * 1000))
            for device in self._inventory.devices:
                info.devices.add(index=device.index, name=device.name, backend=device.backend, collective_backend=device.collective_backend,
                                 memory_bytes=device.memory_bytes, running_job=device.running_job, weight_dtypes=device.abilities.weight_dtypes,
                                 optimizers=device.abilities.optimizers, pooling_modes=POOLING_MODES,
                                 compute_kernels=["fused"])
            return info

    async def ProfileCompute(self, requests: Any, context: Any) -> None:
        async with self._serving("ProfileCompute", context) as caller:
            first = await self._waiting_for_client(context.read())
            if first is grpc.aio.EOF:
                raise Fault("INVALID_ARGUMENT", "header: the stream ended before it")
            device, settings = _decode_header(first, len(self._inventory.devices))
            leases = await self._inventory.lease([device], f"ProfileCompute of {context.peer()}")
            audit = {**caller.fields(), "rpc": "ProfileCompute", "device": device}
            self._calls.log.audit("device_leased", **audit)
            try:
                while (request := await self._waiting_for_client(context.read())) is not grpc.aio.EOF:
                    response = v1.ProfileComputeResponse(measurement=await self._measure_compute(leases[0], request, settings))
                    await self._waiting_for_client(context.write(response))
                    if self.draining:
                        raise Fault("UNAVAILABLE", "the worker is shutting down")
            finally:
                await self._inventory.release(leases)
                self._calls.log.audit("device_returned", **audit)

    async def OpenCommGroup(self, request: v1.OpenCommGroupRequest, context: Any) -> v1.OpenCommGroupResponse:
        async with self._serving("OpenCommGroup", context) as caller:
            group = await self._groups.open(decode_group_spec(request, len(self._inventory.devices)))
            devices = ",".join(str(device) for _, device in group.spec.local_ranks)
            self._calls.log.audit("comm_group_opened", **caller.fields(), rpc="OpenCommGroup", group=request.group_id, world_size=request.world_size,
                                  devices=devices)
            response = v1.OpenCommGroupResponse(token=group.token)
            for (rank, _), address in zip(group.spec.local_ranks, group.addresses):
                response.addresses.add(rank=rank, address=address)
            return response

    async def ConnectCommGroup(self, request: v1.ConnectCommGroupRequest, context: Any) -> v1.ConnectCommGroupResponse:
        async with self._serving("ConnectCommGroup", context):
            await self._groups.connect(request.group_id, request.token, request.addresses)
            return v1.ConnectCommGroupResponse()

    async def ProfileComm(self, request: v1.ProfileCommRequest, context: Any) -> v1.ProfileCommResponse:
        async with self._serving("ProfileComm", context):
            settings, sample = _decode_all((decode_settings, request.settings, "settings."), (decode_comm_sample, request.sample, "sample."))
            spec = self._groups.spec(request.group_id, request.token)
            _decode(check_comm_sample_of_group, sample, "sample.", spec.world_size, spec.timeout_ms)
            _decode(check_casts, sample, "sample.", [self._inventory.devices[device].collective_backend for _, device in spec.local_ranks])
            with self._metrics.sample("comm") as outcome:
                answers = await self._groups.measure(request.group_id, request.token, "comm", sample.SerializeToString(), settings)
                response = v1.ProfileCommResponse()
                for (rank, device), answer in zip(spec.local_ranks, answers):
                    record = response.measurements.add(sample_id=sample.sample_id, rank=rank)
                    properties = {"collective": sample.collective, "cadence": sample.cadence or "barrier", "world_size": str(spec.world_size)}
                    self._fill(record, self._inventory.devices[device], settings, answer, properties)
                outcome.set(response.measurements[0].outcome)
            return response

    async def CloseCommGroup(self, request: v1.CloseCommGroupRequest, context: Any) -> v1.CloseCommGroupResponse:
        async with self._serving("CloseCommGroup", context) as caller:
            await self._groups.close(request.group_id, request.token)
            self._calls.log.audit("comm_group_closed", **caller.fields(), rpc="CloseCommGroup", group=request.group_id)
            return v1.CloseCommGroupResponse()

    # Their steps.

    async def _measure_compute(self, lease: Lease, request: v1.ProfileComputeRequest, settings: Settings) -> v1.ComputeMeasurement:
        if not request.HasField("sample"):
            raise Fault("INVALID_ARGUMENT", "sample: every message after the first must carry one")
        sample = _decode(decode_compute_sample, request.sample, "sample.", lease.device.abilities)
        record = v1.ComputeMeasurement(sample_id=sample.sample_id)
        with self._metrics.sample("compute") as outcome:
            try:
                answer: Union[dict, OutOfMemory] = await lease.process.call("compute", sample.SerializeToString(), settings)
            except OutOfMemory as fault:
                answer = fault
            except Fault as fault:
                raise fault.below("sample.") from None
            self._fill(record, lease.device, settings, answer, {})
            outcome.set(record.outcome)
        return record

    def _fill(self, record: Any, device: Device, settings: Settings, answer: Union[dict, OutOfMemory], properties: Dict[str, str]) -> None:
        """Outcome, series and environment of a record."""
        record.outcome, record.detail = "ok", ""
        if isinstance(answer, OutOfMemory):
            record.outcome, record.detail = "out_of_memory", str(answer)
        else:
            for series in set(answer) - {"properties"}:
                getattr(record, series).CopyFrom(v1.TimedSeries(**answer[series]))
            properties = {**properties, **answer.get("properties", {})}
        if isinstance(record, v1.CommMeasurement):
            properties["collective_backend"] = device.collective_backend
        record.environment.CopyFrom(v1.MeasurementEnvironment(
            worker_version=self._version, git_commit="unknown", hostname=host.hostname(), device=device.name, backend=device.backend,
            properties={**self._environment, "device_memory_bytes": str(device.memory_bytes), "settings": str(settings), **properties},
            measured_at_unix_ms=int(time.time() * 1e3)))

    async def _waiting_for_client(self, step: Awaitable[Any]) -> Any:
        # Not asyncio.wait_for, which before Python 3.12 swallows a cancel that comes together with the step's end: of a client that sends and leaves.
        task = asyncio.ensure_future(step)
        try:
            done, _ = await asyncio.wait([task], timeout=self._stream_idle_timeout_s)
        finally:
            task.cancel()  # nothing when it is done
        if not done:
            raise Fault("CANCELLED", f"the client neither sent nor read anything for {self._stream_idle_timeout_s * 1e3:.0f} ms")
        return task.result()

    @contextlib.asynccontextmanager
    async def _serving(self, rpc: str, context: Any) -> AsyncIterator[Caller]:
        """Admits the call, and turns what it raises into its status."""
        caller = Caller(context)
        told = (("x-request-id", caller.request_id),)
        context.set_trailing_metadata(told)
        if self._tls is not None:
            try:
                self._tls.check_role(rpc, caller.names)
            except Fault as fault:
                self._calls.refused(caller, SERVICE + rpc, rpc, fault)
                await context.abort(fault.status_code, str(fault), told)
        begin, code, reason = time.monotonic(), "CANCELLED", ""  # unless something else is said below
        self._in_flight += rpc not in _CHEAP
        self._calls.metrics.began(rpc)
        try:
            if self.draining:
                reason = "DRAINING"
                raise Fault("UNAVAILABLE", "the server is draining; try another replica")
            if rpc not in _CHEAP and self._in_flight > MAX_IN_FLIGHT:
                raise Fault("RESOURCE_EXHAUSTED", f"{MAX_IN_FLIGHT} calls are in flight, which is this server's limit; try again later")
            yield caller
            code = "OK"
            self._calls.done(caller, rpc, time.monotonic() - begin)
        except Exception as error:
            fault = error if isinstance(error, Fault) else Fault("INTERNAL", f"unexpected exception: {error!r}")
            code, reason = fault.code, reason or ("OVERLOADED" if fault.code == "RESOURCE_EXHAUSTED" else "")
            self._calls.failed(caller, rpc, time.monotonic() - begin, fault, None if isinstance(error, Fault) else error)
            await context.abort(fault.status_code, str(fault), (*fault.trailers(), *told))
        finally:
            self._in_flight -= rpc not in _CHEAP
            self._calls.metrics.ended(rpc, code, reason, time.monotonic() - begin)


class CallLog:
    """What is said and counted of calls, by the words of the C++ servers."""

    def __init__(self, log: Log, metrics: RpcMetrics) -> None:
        self.log, self.metrics = log, metrics
        self._lines = {True: FailureLines(), False: FailureLines()}  # of faults that are the worker's, and of others

    def done(self, caller: Caller, rpc: str, seconds: float) -> None:
        if self.log.writes("debug"):
            self.log.debug("call_done", **caller.fields(), rpc=rpc, duration_ms=1e3 * seconds)

    def failed(self, caller: Caller, rpc: str, seconds: float, fault: Fault, unexpected: Optional[BaseException]) -> None:
        ours = fault.code in ("INTERNAL", "UNKNOWN", "DATA_LOSS")
        more = {} if unexpected is None else {"traceback": "".join(traceback.format_exception(type(unexpected), unexpected, unexpected.__traceback__))}
        self._failure("error" if ours else "info", "call_failed", {**caller.fields(), "rpc": rpc},
                      {"duration_ms": 1e3 * seconds, "code": fault.code, "message": str(fault), **more})

    def refused(self, caller: Caller, path: str, rpc: str, fault: Fault) -> None:
        """Before its handler ran."""
        self.metrics.refused_outside(rpc, fault.code)
        self._failure("info", "call_refused", caller.fields(), {"path": path[:200], "code": fault.code, "message": str(fault)})

    def _failure(self, level: str, event: str, who: Dict[str, str], fields: Dict[str, Any]) -> None:
        if self.log.writes(level) and (before := self._lines[level == "error"].admit()) is not None:
            self.log.write(level, event, {**who, **before, **fields})


class UnknownCalls(grpc.aio.ServerInterceptor):
    """Answers methods that there are not, which gRPC would do without a word to anybody."""

    def __init__(self, calls: CallLog) -> None:
        self._calls = calls

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is not None:
            return handler

        async def refuse(_: Any, context: Any) -> None:
            caller = Caller(context)
            fault = Fault("UNIMPLEMENTED", "no such method")
            self._calls.refused(caller, details.method, OTHER, fault)
            await context.abort(fault.status_code, str(fault), (("x-request-id", caller.request_id),))

        return grpc.stream_stream_rpc_method_handler(refuse)
