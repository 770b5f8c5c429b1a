"""One rank of torch.distributed, and the measurement of a CommSample by it. Imports torch: for measuring processes."""

from __future__ import annotations

import datetime
import hashlib
import secrets
import socket
import statistics
import time
import warnings
from typing import Callable, List, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from neuroshard import v1

from .clock import DeviceClock, wait_until
from .compute import OutOfMemory
from .faults import Fault
from .host import available_memory_bytes, format_bytes, network_of
from .rank_address import BACKEND_NAMES, RankAddress
from .timing import Series, Settings

warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")  # of the calls that TorchRec makes
_WIRE_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_ELEMENT_TYPES = {2: torch.float16, 4: torch.float32, 8: torch.float64}
_GLOO = "neuroshard_gloo"
# What a rank wants at an iteration boundary. The group does the largest wish of all ranks.
_DONE, _CONTINUE, _OUT_OF_TIME, _STOP = range(4)
# Timed in a row of cadence back_to_back, as by the C++ workers.
_ROW_ITERATIONS = 8


def _make_gloo(options: dist.distributed_c10d._DistributedBackendOptions, host: str) -> dist.ProcessGroupGloo:
    """As torch makes it for "gloo", but bound to `host` instead of an interface that it chooses."""
    of_group = dist.ProcessGroupGloo._Options()
    of_group._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    of_group._timeout = options.timeout
    return dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, of_group)


class Rank:
    """A rank of a group, one in the life of a process, whose end closes it. One thread.

    Errors of torch.distributed become Fault ABORTED, after which nothing works on the rank."""

    def __init__(self, rank: int, world_size: int, timeout_ms: int, host: str, device: torch.device) -> None:
        """Rank 0 listens on `host` for the others, on a port that the system chooses."""
        self.rank, self.world_size, self._host, self._device = rank, world_size, host, device
        self._timeout = datetime.timedelta(milliseconds=timeout_ms)
        self._store: Optional[dist.TCPStore] = None
        port, token = 0, ""
        if rank == 0:
            try:
                listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
            except OSError as fault:
                raise Fault("UNAVAILABLE", f"cannot listen on {host}: {fault}") from None
            port, token = listener.getsockname()[1], secrets.token_hex(16)
            self._store = dist.TCPStore(host, port, world_size, is_master=True, timeout=self._timeout, wait_for_workers=False,
                                        master_listen_fd=listener.detach())
        # Over what it meets its peers. NCCL chooses for itself and tells nobody.
        self.network = network_of(host) if device.type == "cpu" else {}
        self.address = RankAddress(BACKEND_NAMES[device.type], host, port, token)

    def connect(self, first: RankAddress) -> None:
        """`first` is rank 0's. Returns when all ranks have come."""
        with _aborting(f"connecting rank {self.rank} in a group of {self.world_size}"):
            if self._store is None:
                self._store = dist.TCPStore(first.host, first.port, self.world_size, timeout=self._timeout, wait_for_workers=False)
            store = dist.PrefixStore(first.token, self._store)
            if self._device.type == "cuda":
                dist.init_process_group("nccl", store=store, rank=self.rank, world_size=self.world_size, timeout=self._timeout, device_id=self._device)
            else:
                dist.Backend.register_backend(_GLOO, lambda options, _: _make_gloo(options, self._host), extended_api=True, devices=["cpu"])
                dist.init_process_group(_GLOO, store=store, rank=self.rank, world_size=self.world_size, timeout=self._timeout)
            dist.barrier()

    def max(self, value: float) -> float:
        """Largest over all ranks."""
        values = torch.tensor([value], dtype=torch.float64, device=self._device)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return float(values[0])


class _aborting:  # noqa: N801
    """What torch.distributed raises becomes ABORTED."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        if isinstance(error, (RuntimeError, ValueError)):
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise Fault("ABORTED", f"{self._what}: {lines[0]}") from error


class Exchange(NamedTuple):
    """What one rank has and gets: elements, by peer for an all-to-all."""

    collective: str
    send: Sequence[int]
    receive: Sequence[int]
    element_bytes: int
    wire_dtype: str = "fp32"

    @property
    def bytes(self) -> int:
        """Of all buffers, those of partial sums and of values that are cast included."""
        partial = sum(self.send) if self.collective in ("reduce_scatter", "all_reduce") else 0
        cast_bytes = 4 if self.wire_dtype in _WIRE_TYPES else 0
        return (sum(self.send) + sum(self.receive) + partial) * (self.element_bytes + cast_bytes)


def exchange_of(sample: v1.CommSample, rank: int) -> Exchange:
    """Of a sample with one entry of dim_sums a rank."""
    ranks = len(sample.dim_sums)
    samples = sample.batch_size // ranks
    mine, of_all = [samples * sample.dim_sums[rank]] * ranks, [samples * columns for columns in sample.dim_sums]
    if sample.collective == "all_to_all":
        send, receive = (mine, of_all) if sample.direction == "forward" else (of_all, mine)
    else:
        send = mine[:1] if sample.collective == "all_gather" else mine
        receive = mine[:1] if sample.collective == "reduce_scatter" else mine
    return Exchange(sample.collective, send, receive, sample.element_bytes, sample.wire_dtype or "fp32")


def _quantized_call(exchange: Exchange, device: torch.device, casts_ms: List[float]) -> Callable[[], object]:
    """An all-to-all as TorchRec's codecs of fp16 and bf16 make it (fbgemm_gpu.quantize_comm): a cast before and one after. casts_ms gets what both took."""
    dtype = _WIRE_TYPES[exchange.wire_dtype]
    given = torch.ones(sum(exchange.send), device=device)

    def call() -> None:
        start = time.perf_counter()
        wire = given.to(dtype)
        output = torch.empty(sum(exchange.receive), dtype=dtype, device=device)
        cast = time.perf_counter()
        dist.all_to_all_single(output, wire, exchange.receive, exchange.send, async_op=True).wait()
        came = time.perf_counter()
        output.to(torch.float32)
        casts_ms.append(1e3 * (cast - start + time.perf_counter() - came))

    return call


def exchange_call(exchange: Exchange, device: torch.device) -> Callable[[], object]:
    """What TorchRec 1.9 issues for whole tables, cut rows and replicas (torchrec/distributed/comm_ops.py, and DDP): a new output every time."""
    dtype = _ELEMENT_TYPES.get(exchange.element_bytes, torch.uint8)
    scale = 1 if dtype.itemsize == exchange.element_bytes else exchange.element_bytes
    send, receive = ([count * scale for count in counts] for counts in (exchange.send, exchange.receive))
    given = torch.ones(sum(send), dtype=dtype, device=device)

    def output() -> torch.Tensor:
        return torch.empty(sum(receive), dtype=dtype, device=device)

    if exchange.collective == "all_to_all":
        return lambda: dist.all_to_all_single(output(), given, receive, send, async_op=True).wait()
    if exchange.collective == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(output(), given, async_op=True).wait()
    if exchange.collective == "all_gather":
        return lambda: dist.all_gather_into_tensor(output(), given, async_op=True).wait()
    given.zero_()  # sums of sums stay finite
    return lambda: dist.all_reduce(given, async_op=True).wait()


def _fingerprint(sample: v1.CommSample, settings: Settings) -> float:
    """What a double holds exactly."""
    text = sample.SerializeToString(deterministic=True) + str(settings).encode()
    return float(int.from_bytes(hashlib.sha256(text).digest()[:6], "big"))


def measure_comm(rank: Rank, sample: v1.CommSample, settings: Settings, device: torch.device, clock: DeviceClock, memory_bytes: int,
                 check: Callable[[], None]) -> dict:
    """series (fields of TimedSeries) and properties of the record. Every rank calls this at the same time, and all run the same number of iterations:
    until every rank's rule is satisfied, any rank has spent max_time_ms in timed iterations, offsets included, or any rank's `check` raises.

    Raises OutOfMemory where any rank has too little; Fault FAILED_PRECONDITION when the ranks were given different samples, CANCELLED when any was
    stopped, after both of which the group is in step; ABORTED when it broke."""
    with _aborting(f"rank {rank.rank} of {rank.world_size}"):
        fingerprint = _fingerprint(sample, settings)
        if rank.max(fingerprint) != -rank.max(-fingerprint):
            raise Fault("FAILED_PRECONDITION", "the ranks of the group were given different samples or settings")
        casts_ms: List[float] = []
        call = _reserve(rank, exchange_of(sample, rank.rank), device, memory_bytes, casts_ms)
        measured = {"series": _iterate(rank, call, sample, settings, clock, check)}
        measured["properties"] = dict(rank.network)
        timed = casts_ms[settings.warmup_iterations:]
        if timed:
            measured["properties"].update(wire_dtype=sample.wire_dtype, casts_ms=repr(statistics.median(timed)))
        return measured


def _reserve(rank: Rank, exchange: Exchange, device: torch.device, memory_bytes: int, casts_ms: List[float]) -> Callable[[], object]:
    """The exchange with its input in memory, on all ranks or on none."""
    call: Callable[[], object] = lambda: None  # noqa: E731
    fault = ""
    if exchange.bytes > memory_bytes:
        fault = f"rank {rank.rank} exchanges {exchange.bytes} bytes, its device has {format_bytes(memory_bytes)}"
    elif device.type == "cpu" and exchange.bytes > available_memory_bytes():
        fault = f"rank {rank.rank}: the host has no memory left for {exchange.bytes} bytes of buffers"
    else:
        try:
            call = _quantized_call(exchange, device, casts_ms) if exchange.wire_dtype in _WIRE_TYPES else exchange_call(exchange, device)
        except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
            fault = f"rank {rank.rank}: {str(error).splitlines()[0]}"
    if rank.max(1 if fault else 0):
        raise OutOfMemory(fault or "another rank of the group ran out of memory")
    return call


def _iterate(rank: Rank, call: Callable[[], object], sample: v1.CommSample, settings: Settings, clock: DeviceClock, check: Callable[[], None]) -> dict:
    offsets = list(sample.start_offsets_ms)
    offset_s = (offsets[rank.rank] - min(offsets)) / 1e3 if offsets else 0.0
    in_rows = sample.cadence == "back_to_back"
    series, spent_ms = Series(settings), 0.0
    stop: Optional[Fault] = None

    def wish() -> int:
        nonlocal stop
        try:
            check()
        except Fault as fault:
            stop = fault
            return _STOP
        if series.finished and series.reason != "max_time":
            return _DONE
        enough = len(series.samples_ms) >= settings.min_iterations
        return _OUT_OF_TIME if enough and spent_ms >= settings.max_time_ms else _CONTINUE

    iteration = -settings.warmup_iterations
    while True:
        agreed = rank.max(wish())
        if agreed == _STOP:
            raise stop or Fault("CANCELLED", "stopped while measuring")
        if agreed != _CONTINUE:
            break
        dist.barrier()
        together = time.perf_counter()
        wait_until(together + offset_s, lambda: None)
        if in_rows:
            clock.time_ms(call)  # begins at the barrier
        left = settings.max_iterations - iteration
        for iteration in range(iteration, iteration + (max(1, min(_ROW_ITERATIONS, left)) if in_rows else 1)):
            before = time.perf_counter() if in_rows else together
            duration_ms = clock.time_ms(call)
            if iteration >= 0:
                series.add(duration_ms)
                spent_ms += 1e3 * (time.perf_counter() - before)
        iteration += 1
    return series.summary()
