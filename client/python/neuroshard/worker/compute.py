"""Measurement of a ComputeSample: the warm-up, flush, time and stop loop of neuroshard-worker (worker/README.md), around FBGEMM.
Imports torch: for measuring processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Tuple

import torch

from .clock import DeviceClock
from .fbgemm_lookup import FbgemmLookup
from .host import available_memory_bytes, format_bytes
from .lookups import LookupBatch, Random, make_lookups, num_lookups
from .timing import Series, Settings

if TYPE_CHECKING:  # bench/gpu/fbgemm_tbe.py has no protobuf
    from neuroshard import v1

# As neuroshard-worker: smaller samples rotate two distinct batches.
_MAX_ROTATED_LOOKUPS = 1 << 20
_MAX_ROTATED_BYTES = 64 << 20
_ROTATED_BATCHES = 2
_WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_STATE_BYTES = {  # of a row with `cols` columns
    "sgd": lambda cols: 0,
    "rowwise_adagrad": lambda cols: 4,
    "adagrad": lambda cols: 4 * cols,
    "adam": lambda cols: 8 * cols,
    "partial_rowwise_adam": lambda cols: 4 * cols + 4,
    "lamb": lambda cols: 8 * cols,
    "lars_sgd": lambda cols: 4 * cols,
}
# Of a batch: as it was made, joined for FBGEMM, and sorted by row for the update.
_BYTES_PER_LOOKUP_BYTE = 4


class OutOfMemory(Exception):
    """A sample that does not fit; the text has the sizes."""


def _lookup_bytes(sample: v1.ComputeSample) -> int:
    """Of one batch."""
    return sum(num_lookups(sample.batch_size, s.pooling_factor) * (12 if s.weighted else 8) + (sample.batch_size + 1) * 8 for s in sample.shards)


def _num_vectors(shard: v1.MeasuredShard, batch_size: int) -> int:
    return num_lookups(batch_size, shard.pooling_factor) if shard.pooling_mode == "none" else batch_size


def _check_memory(sample: v1.ComputeSample, device: torch.device, device_bytes: int) -> None:
    tables = sum(s.rows * (s.cols * _WEIGHT_BYTES[s.weight_dtype] + _STATE_BYTES[sample.optimizer](s.cols)) for s in sample.shards)
    vectors = 2 * 4 * sum(_num_vectors(s, sample.batch_size) * s.cols for s in sample.shards)
    ids = _BYTES_PER_LOOKUP_BYTE * _lookup_bytes(sample)
    needed = tables + vectors + ids
    if needed > device_bytes:
        raise OutOfMemory(f"tables and optimizer state ({format_bytes(tables)}), activations and ids take {format_bytes(needed)}, "
                          f"the device has {format_bytes(device_bytes)}")
    of_host, available = ids if device.type == "cuda" else needed, available_memory_bytes()
    if of_host > available:
        raise OutOfMemory(f"the sample takes {format_bytes(of_host)} of the host's memory, which has {format_bytes(available)} left")


def _make_batches(sample: v1.ComputeSample, number: int, check: Callable[[], None]) -> List[LookupBatch]:
    """Of all shards; what differs between batch numbers is a function of the sample's seed."""
    seeds = Random(sample.seed ^ (0x9E3779B97F4A7C15 * (number + 1) & (1 << 64) - 1))
    return [make_lookups(s.rows, sample.batch_size, s.pooling_factor, s.weighted, seeds.next(), list(s.reuse_histogram), check) for s in sample.shards]


class _Lookups:
    """The sample's shards. Those with the same weight dtype, pooling mode and weighting (and cols, without pooling) are looked up together, as TorchRec groups tables
    (torchrec/distributed/embedding_sharding.py, group_tables)."""

    def __init__(self, sample: v1.ComputeSample, device: torch.device) -> None:
        shards_of: Dict[Tuple[str, str, bool, int], List[int]] = {}
        for i, shard in enumerate(sample.shards):
            own_cols = shard.cols if shard.pooling_mode == "none" else 0
            shards_of.setdefault((shard.weight_dtype, shard.pooling_mode, shard.weighted, own_cols), []).append(i)
        self._members = list(shards_of.values())
        self._lookups, self._gradients = [], []
        for (weight_dtype, pooling_mode, _, own_cols), members in shards_of.items():
            tables = [(sample.shards[i].rows, sample.shards[i].cols) for i in members]
            self._lookups.append(FbgemmLookup(tables, sample.optimizer, weight_dtype, pooling_mode, device))
            self._lookups[-1].touch_memory(sample.seed)
            gradient = torch.linspace(-1e-3, 1e-3, 1008, device=device)  # ordinary values, none of them 0
            columns = own_cols or sum(cols for _, cols in tables)
            vectors = sum(_num_vectors(sample.shards[i], sample.batch_size) for i in members) if own_cols else sample.batch_size
            self._gradients.append(gradient.repeat(vectors * columns // len(gradient) + 1)[: vectors * columns].view(-1, columns))

    def __len__(self) -> int:
        return len(self._lookups)

    def set_inputs(self, batches: List[LookupBatch]) -> None:
        for lookup, members in zip(self._lookups, self._members):
            lookup.set_inputs([batches[i] for i in members])

    def forward(self) -> None:
        for lookup in self._lookups:
            lookup.forward()

    def backward(self) -> None:
        for lookup, gradient in zip(self._lookups, self._gradients):
            lookup.backward(gradient)


def measure_compute(sample: v1.ComputeSample, settings: Settings, device: torch.device, clock: DeviceClock, memory_bytes: int,
                    check: Callable[[], None]) -> dict:
    """forward and backward (fields of TimedSeries) and properties of the record. `check` is called between iterations and raises to stop.

    Raises OutOfMemory, and Fault for a sample that cannot be made."""
    _check_memory(sample, device, memory_bytes)
    total = sum(num_lookups(sample.batch_size, shard.pooling_factor) for shard in sample.shards)
    rotate = total < _MAX_ROTATED_LOOKUPS and _lookup_bytes(sample) <= _MAX_ROTATED_BYTES
    lookups = _Lookups(sample, device)
    batches = [_make_batches(sample, number, check) for number in range(_ROTATED_BATCHES if rotate else 1)]

    def timed(work: Callable[[], None]) -> float:
        check()
        if settings.flush_cache:
            clock.flush_cache()
        return clock.time_ms(work)

    forward, backward = Series(settings), Series(settings)
    iteration = -settings.warmup_iterations
    while not (forward.finished and backward.finished):
        if iteration >= settings.min_iterations and forward.total_ms + backward.total_ms >= settings.max_time_ms:
            break
        if rotate or iteration == -settings.warmup_iterations:
            lookups.set_inputs(batches[iteration % len(batches)])
        forward_ms, backward_ms = timed(lookups.forward), timed(lookups.backward)
        if iteration >= 0:
            forward.add(forward_ms)
            backward.add(backward_ms)
        iteration += 1
    return {"forward": forward.summary(), "backward": backward.summary(),
            "properties": {"distinct_batches": str(len(batches)), "table_batches": str(len(lookups))}}
