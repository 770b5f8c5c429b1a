"""The worker's devices, who holds them, and the processes that measure on them. Everything here runs on the event loop's thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import signal
import socket
from typing import Any, Callable, Coroutine, List, NamedTuple, Optional, Sequence, Set, TypeVar

from . import wire
from .faults import Fault
from .rank_address import BACKEND_NAMES
from .samples import OPTIMIZERS, WEIGHT_DTYPES, Abilities

# Time for a measurement to end after a stop, in step with its peers, before its process is killed.
STOP_GRACE_S = 2.0
# What FBGEMM 1.9 has: split_table_batched_embeddings_ops_training.py, and its CPU kernels for weights.
_ABILITIES = {
    "cpu": Abilities(("fp32", "fp16"), ("sgd", "adagrad", "rowwise_adagrad")),  # its other optimizers have no CPU kernel
    "cuda": Abilities(WEIGHT_DTYPES, OPTIMIZERS),
}

T = TypeVar("T")


class OutOfMemory(Exception):
    """A measurement that did not fit; the text has the sizes."""


class OwnedTasks:
    """Work that goes on to its end when who asked for it is cancelled."""

    def __init__(self) -> None:
        self._tasks: Set[asyncio.Future[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Returns when nothing runs any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ProcessServer:
    """Forks measuring processes off a process that has imported torch and FBGEMM once and done nothing else."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["neuroshard.worker.measuring_process"])
        self._thread = concurrent.futures.ThreadPoolExecutor(1)  # multiprocessing's processes are not for several at a time

    async def start(self, entry: str, argument: Any) -> MeasuringProcess:
        """`entry`: a function of measuring_process that takes `argument` and a socket. The first process waits for the imports."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._context.Process(target=wire.begin, args=(entry, argument, theirs), daemon=True)
            await self.run(process.start)
        return MeasuringProcess(self, process, *await asyncio.open_connection(sock=ours, limit=1 << 26))

    async def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


class MeasuringProcess:
    """The worker's end of a measuring process. One call at a time."""

    def __init__(self, server: ProcessServer, process: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._process, self._reader, self._writer = server, process, reader, writer
        self.killed = False

    async def call(self, verb: str, *arguments: Any) -> Any:
        """What the process answers. Raises its Fault, OutOfMemory, or ABORTED when it ended. A cancelled call stops the measurement at its next
        iteration; a process that does not come there within STOP_GRACE_S is killed."""
        self._writer.write(wire.frame((verb, *arguments)))
        answer = asyncio.ensure_future(self.answer())
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([answer], timeout=STOP_GRACE_S)
            if not answer.done():
                self.kill()
            with contextlib.suppress(Fault, OutOfMemory):
                await answer
            raise

    async def answer(self) -> Any:
        try:
            head = await self._reader.readexactly(wire.HEAD_BYTES)
            kind, value = wire.parse(await self._reader.readexactly(wire.frame_length(head)))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Fault("ABORTED", f"the process that measured ended: {await self._end()}") from None
        if kind == "fault":
            raise value
        if kind == "out_of_memory":
            raise OutOfMemory(value)
        return value

    def stop(self) -> None:
        """The running call raises CANCELLED soon, unless it waits for a peer."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(wire.frame((wire.STOP,)))

    def kill(self) -> None:
        """The running call raises ABORTED."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Returns when the process has ended."""
        self._writer.close()
        if await self._join() is None:
            self.kill()
            await self._join()

    async def _join(self) -> Optional[int]:
        await self._server.run(self._process.join, STOP_GRACE_S)
        return self._process.exitcode

    async def _end(self) -> str:
        code = await self._join()
        if code is None or code >= 0:
            return f"exit status {code}"
        return f"signal {-code} ({signal.Signals(-code).name})"


class Device:
    """index, name, backend and so on as WorkerDevice has them. `running_job`: what holds it; empty: free."""

    backend = "fbgemm"

    def __init__(self, index: int, torch_device: str, name: str, memory_bytes: int) -> None:
        self.index, self.torch_device, self.name, self.memory_bytes = index, torch_device, name, memory_bytes
        kind = torch_device.partition(":")[0]
        self.abilities = _ABILITIES[kind]
        self.collective_backend = BACKEND_NAMES[kind]
        self.running_job = ""


class Lease(NamedTuple):
    """A device with a process to measure on it. To be given back by DeviceInventory.release."""

    device: Device
    process: MeasuringProcess


class DeviceInventory:
    """`threads`: of torch in every measurement. `host`: that ranks of groups listen on. `busy`: told of every change."""

    def __init__(self, devices: List[Device], processes: ProcessServer, threads: int, host: str, busy: Callable[[int, bool], None]) -> None:
        self.devices, self.threads = devices, threads
        self._processes, self._host, self._busy, self._owned = processes, host, busy, OwnedTasks()
        for device in devices:
            busy(device.index, False)

    async def lease(self, wanted: Sequence[int], job: str) -> List[Lease]:
        """All or none, at once: RESOURCE_EXHAUSTED names a device that is held and its holder."""
        devices = [self.devices[index] for index in wanted]
        for device in devices:
            if device.running_job:
                raise Fault("RESOURCE_EXHAUSTED",
                            f"device {device.index} ({device.name}) is held by {device.running_job}; one job at a time per device")
        for device in devices:
            self._hold(device, job)
        starting = asyncio.ensure_future(self._owned.run(self._start_all(devices)))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._release_what_started)
            raise

    async def release(self, leases: Sequence[Lease]) -> None:
        """Returns when the processes have ended and the devices are free."""
        await self._owned.run(self._release(leases))

    async def settle(self) -> None:
        """Returns when every device that was given back is free."""
        await self._owned.settle()

    async def _start_all(self, devices: Sequence[Device]) -> List[Lease]:
        results = await asyncio.gather(*map(self._start, devices), return_exceptions=True)
        faults = [result for result in results if isinstance(result, BaseException)]
        if faults:
            await asyncio.gather(*(result.close() for result in results if isinstance(result, MeasuringProcess)))
            for device in devices:
                self._hold(device, "")
            raise faults[0]
        return [Lease(device, process) for device, process in zip(devices, results)]

    def _release_what_started(self, starting: asyncio.Future[List[Lease]]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            asyncio.ensure_future(self.release(starting.result()))

    async def _release(self, leases: Sequence[Lease]) -> None:
        await asyncio.gather(*(lease.process.close() for lease in leases))
        for lease in leases:
            self._hold(lease.device, "")

    async def _start(self, device: Device) -> MeasuringProcess:
        try:
            return await self._processes.start("run", wire.Job(device.torch_device, self.threads, device.memory_bytes, self._host))
        except (OSError, EOFError) as fault:
            raise Fault("INTERNAL", f"device {device.index}: no process to measure in: {fault}") from None

    def _hold(self, device: Device, job: str) -> None:
        device.running_job = job
        self._busy(device.index, bool(job))
