"""Groups of ranks, this worker's part of them. Everything here runs on the event loop's thread.

A group leaves the registry, and its devices are free again, when it is closed, when it was idle for too long, or when a call broke it."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from typing import Any, Callable, Dict, List, Optional, Sequence

from neuroshard import v1

from .devices import STOP_GRACE_S, DeviceInventory, Lease, OutOfMemory, OwnedTasks
from .faults import Fault
from .rank_address import Network, decode_first
from .samples import GroupSpec, by_rank


class CommGroup:
    def __init__(self, spec: GroupSpec, leases: List[Lease], addresses: List[bytes]) -> None:
        self.spec, self.leases, self.addresses = spec, leases, addresses
        self.connected = self.closed = False
        self.token = secrets.token_hex(16)
        self.running: Optional[asyncio.Future[None]] = None  # done when the running call is
        self.idle: Optional[asyncio.TimerHandle] = None

    async def on_every_rank(self, call: Callable[[int, Lease], Any]) -> List[Any]:
        """call(rank, lease) for all local ranks at once. OutOfMemory is a result. The first Fault that breaks the group kills all processes, so that no
        rank here or elsewhere waits for the timeout."""
        calls = [asyncio.ensure_future(call(rank, lease)) for (rank, _), lease in zip(self.spec.local_ranks, self.leases)]
        for one in calls:
            one.add_done_callback(self._kill_if_broken)
        try:
            results = await asyncio.gather(*calls, return_exceptions=True)
        except asyncio.CancelledError:
            for one in calls:
                one.cancel()
            await asyncio.wait(calls)
            raise
        faults = [result for result in results if isinstance(result, BaseException) and not isinstance(result, OutOfMemory)]
        if faults:
            # A killed process only says that it was killed.
            raise next((fault for fault in faults if not (isinstance(fault, Fault) and "SIGKILL" in fault.message)), faults[0])
        return results

    def _kill_if_broken(self, call: asyncio.Future[Any]) -> None:
        error = None if call.cancelled() else call.exception()
        if isinstance(error, Fault) and error.breaks_group:
            self.kill()

    def kill(self) -> None:
        for lease in self.leases:
            lease.process.kill()

    @property
    def broken(self) -> bool:
        return any(lease.process.killed for lease in self.leases)


class CommGroups:
    """`networks`: where ranks may be that this worker connects to. `count`: told how many groups are open."""

    def __init__(self, inventory: DeviceInventory, networks: Sequence[Network], count: Callable[[int], None]) -> None:
        self._inventory, self._networks, self._count = inventory, networks, count
        self._groups: Dict[str, Optional[CommGroup]] = {}  # None: being opened
        self._owned = OwnedTasks()

    async def open(self, spec: GroupSpec) -> CommGroup:
        """ALREADY_EXISTS when the id is in use, RESOURCE_EXHAUSTED when a device is."""
        if spec.group_id in self._groups:
            raise Fault("ALREADY_EXISTS", f"comm group '{spec.group_id}' is open already")
        self._groups[spec.group_id] = None
        try:
            leases = await self._inventory.lease([device for _, device in spec.local_ranks], f"a comm group of {spec.world_size} ranks")
            try:
                group = CommGroup(spec, leases, [])
                group.addresses = await group.on_every_rank(
                    lambda rank, lease: lease.process.call("open_rank", rank, spec.world_size, spec.timeout_ms))
            except BaseException:
                await self._inventory.release(leases)
                raise
        except BaseException:
            del self._groups[spec.group_id]
            raise
        self._groups[spec.group_id] = group
        self._changed()
        self._wait_for_calls(group)
        return group

    async def connect(self, group_id: str, token: str, addresses: Sequence[v1.RankAddress]) -> None:
        """Returns when all ranks of the group have come; ABORTED otherwise, and the group is closed."""
        group = self._find(group_id, token)
        backend = group.leases[0].device.collective_backend
        first = decode_first(by_rank(addresses, group.spec.world_size), backend, self._networks)
        await self._call(group, False, lambda rank, lease: lease.process.call("connect_rank", tuple(first)))
        group.connected = True

    def spec(self, group_id: str, token: str) -> GroupSpec:
        return self._find(group_id, token).spec

    async def measure(self, group_id: str, token: str, verb: str, *arguments: Any) -> List[Any]:
        """The answer of each local rank's process, or OutOfMemory in its place."""
        group = self._find(group_id, token)
        return await self._call(group, True, lambda rank, lease: lease.process.call(verb, *arguments))

    async def close(self, group_id: str, token: str) -> None:
        """Returns when the devices are free. An unknown id is fine."""
        if self._groups.get(group_id) is not None:
            await self._remove(self._find(group_id, token))

    async def close_all(self) -> None:
        await asyncio.gather(*(self._remove(group) for group in list(self._groups.values()) if group is not None))

    def _find(self, group_id: str, token: str) -> CommGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise Fault("NOT_FOUND", f"no comm group '{group_id}': never opened here, closed, idle for too long, or aborted")
        if not hmac.compare_digest(group.token.encode(), token.encode()):
            raise Fault("PERMISSION_DENIED", f"token: not the one that comm group '{group_id}' was opened with")
        return group

    async def _call(self, group: CommGroup, connected: bool, call: Callable[[int, Lease], Any]) -> List[Any]:
        if group.running is not None:
            raise Fault("FAILED_PRECONDITION", f"comm group '{group.spec.group_id}' is busy with another call")
        if group.connected != connected:
            state = "connected already" if group.connected else "not connected yet"
            raise Fault("FAILED_PRECONDITION", f"comm group '{group.spec.group_id}' is {state}")
        group.running = asyncio.get_running_loop().create_future()
        if group.idle is not None:
            group.idle.cancel()
        try:
            return await group.on_every_rank(call)
        finally:
            group.running.set_result(None)
            group.running = None
            if group.broken:
                await self._remove(group)
            elif not group.closed:
                self._wait_for_calls(group)

    async def _remove(self, group: CommGroup) -> None:
        await self._owned.run(self._end(group))

    async def _end(self, group: CommGroup) -> None:
        if group.closed:
            return
        group.closed = True
        if group.idle is not None:
            group.idle.cancel()
        del self._groups[group.spec.group_id]
        self._changed()
        if group.running is not None:
            for lease in group.leases:
                lease.process.stop()
            await asyncio.wait([group.running], timeout=STOP_GRACE_S)
        group.kill()  # at once: there is nothing to save, and a rank whose peer is gone may not look
        await self._inventory.release(group.leases)

    def _wait_for_calls(self, group: CommGroup) -> None:
        loop = asyncio.get_running_loop()
        group.idle = loop.call_later(group.spec.idle_timeout_ms / 1e3, lambda: loop.create_task(self._remove(group)))

    def _changed(self) -> None:
        self._count(sum(group is not None for group in self._groups.values()))
