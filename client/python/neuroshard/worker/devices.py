"""The worker's devices, who holds them, and the processes that measure on them. Everything here runs on the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import socket
from typing import Any, Callable, List, NamedTuple, Sequence

from . import wire
from .faults import Fault
from .rank_address import BACKEND_NAMES
from .samples import OPTIMIZERS, WEIGHT_BYTES, Abilities

# Time for a measurement to end after a stop, in step with its peers, before its process is killed.
STOP_GRACE_S = 2.0
# What FBGEMM 1.9 has: split_table_batched_embeddings_ops_training.py, and its CPU kernels for weights.
_ABILITIES = {
    "cpu": Abilities(("fp32", "fp16"), ("sgd", "adagrad", "rowwise_adagrad")),
    "cuda": Abilities(tuple(WEIGHT_BYTES), OPTIMIZERS),
}


class OutOfMemory(Exception):
    """A measurement that did not fit; the text has the sizes."""


class ProcessServer:
    """Forks measuring processes off a process that has imported torch and FBGEMM once and done nothing else."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["neuroshard.worker.measuring_process"])

    async def start(self, entry: str, argument: Any) -> MeasuringProcess:
        """`entry`: a function of measuring_process that takes `argument` and a socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._context.Process(target=wire.begin, args=(entry, argument, theirs), daemon=True)
            starting = asyncio.ensure_future(asyncio.to_thread(process.start))  # the first one waits for the imports
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:
                ours.close()  # which ends the process
                await starting
                raise
        return MeasuringProcess(process, *await asyncio.open_connection(sock=ours, limit=1 << 26))


class MeasuringProcess:
    """The worker's end of a measuring process. One call at a time."""

    def __init__(self, process: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process, self._reader, self._writer = process, reader, writer
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
        await asyncio.to_thread(self._process.join, STOP_GRACE_S)
        if self._process.exitcode is None:
            self.kill()
            await asyncio.to_thread(self._process.join)

    async def _end(self) -> str:
        await asyncio.to_thread(self._process.join, STOP_GRACE_S)
        code = self._process.exitcode
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
        self._processes, self._host, self._busy = processes, host, busy
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
        starting = [asyncio.ensure_future(self._start(device)) for device in devices]
        try:
            processes = await asyncio.gather(*starting)
        except BaseException:
            for process in await asyncio.gather(*starting, return_exceptions=True):
                if isinstance(process, MeasuringProcess):
                    await process.close()
            for device in devices:
                self._hold(device, "")
            raise
        return [Lease(device, process) for device, process in zip(devices, processes)]

    async def release(self, leases: Sequence[Lease]) -> None:
        """Returns when the processes have ended and the devices are free."""
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
