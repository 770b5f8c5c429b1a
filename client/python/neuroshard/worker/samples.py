"""Samples and settings as they come over the network: checked field by field, defaults filled in. The limits are those of common/codec.

Every function raises Fault with INVALID_ARGUMENT and all violations, paths relative to the message.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence, Tuple

from neuroshard import v1

from .faults import Violations
from .lookups import MAX_LOOKUPS, REUSE_BINS
from .timing import Settings

_MAX_NAME_BYTES = 512
_MAX_EXTENT = 1 << 48
_MAX_DIM = 65536
_MAX_POOLING_FACTOR = 1e6
_MAX_BATCH = 1 << 24
_MAX_SHARDS = 4096
MAX_RANKS = 1024
_MAX_START_OFFSET_MS = 60_000

POOLING_MODES = ("sum", "mean", "none")
WEIGHT_DTYPES = ("fp32", "fp16", "bf16")
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam", "lamb", "lars_sgd")
CADENCES = ("barrier", "back_to_back")
WIRE_DTYPES = ("fp32", "fp16", "bf16")  # that pooled vectors are cast to
COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
DIRECTIONS = ("forward", "backward")


class Abilities(NamedTuple):
    """What FBGEMM has on a kind of device, of the vocabulary."""

    weight_dtypes: Tuple[str, ...]
    optimizers: Tuple[str, ...]


class _Check:
    """Checks of the fields of the message at `path`."""

    def __init__(self, path: str, violations: Violations) -> None:
        self._path, self._violations = path, violations

    def fail(self, field: str, description: str) -> None:
        self._violations.add(f"{self._path}.{field}" if self._path else field, description)

    def in_range(self, field: str, value: float, low: float, high: float) -> bool:
        if math.isnan(value):
            self.fail(field, f"must be a number from {_text(low)} to {_text(high)}, got nan")
        elif value < low:
            self.fail(field, f"must be at least {_text(low)}, got {_text(value)}")
        elif value > high:
            self.fail(field, f"must be at most {_text(high)}, got {_text(value)}")
        else:
            return True
        return False

    def is_text(self, field: str, text: str, max_bytes: int) -> None:
        size = len(text.encode())
        if size > max_bytes:
            self.fail(field, f"must be at most {max_bytes} bytes, got {size}")
        elif any(c < " " or c == "\x7f" for c in text):
            self.fail(field, f"must not contain control characters, got {quoted(text)}")

    def word(self, field: str, text: str, words: Sequence[str], default: str = "") -> str:
        if not text and default:
            return default
        if text not in words:
            self.fail(field, f"must be one of {', '.join(words)}, got {quoted(text)}")
            return words[0]
        return text


def _text(value: float) -> str:
    return str(int(value)) if isinstance(value, int) or (abs(value) < 1e16 and value == int(value)) else repr(value)


def quoted(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text[:60])
    return f'"{shown}..."' if len(text) > 60 else f'"{shown}"'


def decode_settings(message: v1.MeasurementSettings) -> Settings:
    defaults, violations = Settings(), Violations()
    check = _Check("", violations)
    least, most = message.min_iterations or defaults.min_iterations, message.max_iterations or defaults.max_iterations
    if message.max_iterations and not message.min_iterations:
        least = min(least, most)  # a maximum alone, below the default minimum, means the maximum
    elif message.min_iterations and not message.max_iterations:
        most = max(least, most)
    settings = Settings(
        warmup_iterations=message.warmup_iterations if message.HasField("warmup_iterations") else defaults.warmup_iterations,
        min_iterations=least,
        max_iterations=most,
        target_relative_error=message.target_relative_error or defaults.target_relative_error,
        max_time_ms=message.max_time_ms or defaults.max_time_ms,
        flush_cache=message.flush_cache if message.HasField("flush_cache") else defaults.flush_cache,
    )
    check.in_range("warmup_iterations", settings.warmup_iterations, 0, 1000)
    ordered = check.in_range("min_iterations", least, 1, 10_000) & check.in_range("max_iterations", most, 1, 10_000)
    if ordered and least > most:
        check.fail("min_iterations", f"must be at most max_iterations = {most}, got {least}")
    if not 0 < settings.target_relative_error < 1:
        check.fail("target_relative_error", f"must be greater than 0 and less than 1, got {_text(settings.target_relative_error)}")
    check.in_range("max_time_ms", settings.max_time_ms, 1, 600_000)
    violations.raise_if_any()
    return settings


def _check_histogram(shard: v1.MeasuredShard, check: _Check) -> None:
    histogram = shard.reuse_histogram
    if len(histogram) != REUSE_BINS:
        check.fail("reuse_histogram", f"must have {REUSE_BINS} entries, got {len(histogram)}")
    elif all(check.in_range(f"reuse_histogram[{k}]", share, 0.0, 1.0) for k, share in enumerate(histogram)):
        total = sum(histogram)
        if abs(total - 1) > 1e-3 and not (total == 0 and shard.pooling_factor == 0):
            check.fail("reuse_histogram", f"must sum to 1 (within 0.001), got {total:.6g}")


def decode_compute_sample(message: v1.ComputeSample, abilities: Abilities) -> v1.ComputeSample:
    """The sample with its defaults."""
    sample, violations = v1.ComputeSample(), Violations()
    sample.CopyFrom(message)
    check = _Check("", violations)
    check.is_text("sample_id", sample.sample_id, _MAX_NAME_BYTES)
    batch_is_legal = check.in_range("batch_size", sample.batch_size, 1, _MAX_BATCH)
    sample.optimizer = check.word("optimizer", sample.optimizer, OPTIMIZERS, "sgd")
    if sample.optimizer not in abilities.optimizers:
        check.fail("optimizer", f"must be one of {', '.join(abilities.optimizers)}, which FBGEMM has on this device, got {sample.optimizer}")
    if not 1 <= len(sample.shards) <= _MAX_SHARDS:
        check.fail("shards", f"must have 1 to {_MAX_SHARDS} entries, got {len(sample.shards)}")
    else:
        for i, shard in enumerate(sample.shards):
            of_shard = _Check(f"shards[{i}]", violations)
            of_shard.is_text("table", shard.table, _MAX_NAME_BYTES)
            of_shard.in_range("rows", shard.rows, 1, _MAX_EXTENT)
            if of_shard.in_range("cols", shard.cols, 1, _MAX_DIM) and shard.cols % 4:
                of_shard.fail("cols", f"must be a multiple of 4 for FBGEMM, got {shard.cols}")
            pooling_is_legal = of_shard.in_range("pooling_factor", shard.pooling_factor, 0.0, _MAX_POOLING_FACTOR)
            if batch_is_legal and pooling_is_legal and sample.batch_size * shard.pooling_factor > MAX_LOOKUPS:
                of_shard.fail("pooling_factor", f"{_text(shard.pooling_factor)} ids for each of {sample.batch_size} samples are more than 2^40")
            _check_histogram(shard, of_shard)
            shard.weight_dtype = of_shard.word("weight_dtype", shard.weight_dtype, WEIGHT_DTYPES, "fp32")
            if shard.weight_dtype not in abilities.weight_dtypes:
                of_shard.fail("weight_dtype", f"{shard.weight_dtype} cannot be measured on this device")
            shard.pooling_mode = of_shard.word("pooling_mode", shard.pooling_mode, POOLING_MODES, "sum")
            if shard.weighted and shard.pooling_mode == "none":
                of_shard.fail("weighted", 'must not be given for pooling_mode "none", which adds up nothing')
            if shard.compute_kernel not in ("", "fused"):
                of_shard.fail("compute_kernel", f"this device measures fused, got {shard.compute_kernel}")
            elif shard.cache_load_factor:
                of_shard.fail("cache_load_factor", "is for compute_kernel \"fused_uvm_caching\" alone")
    violations.raise_if_any()
    return sample


def decode_comm_sample(message: v1.CommSample) -> v1.CommSample:
    """The sample with its defaults."""
    sample, violations = v1.CommSample(), Violations()
    sample.CopyFrom(message)
    check = _Check("", violations)
    check.is_text("sample_id", sample.sample_id, _MAX_NAME_BYTES)
    sample.collective = check.word("collective", sample.collective, COLLECTIVES, "all_to_all")
    all_to_all = sample.collective == "all_to_all"
    sample.direction = check.word("direction", sample.direction, DIRECTIONS, "" if all_to_all else "forward")
    ranks = len(sample.dim_sums)
    if not 1 <= ranks <= MAX_RANKS:
        check.fail("dim_sums", f"must have 1 to {MAX_RANKS} entries, got {ranks}")
    else:
        for i, dim_sum in enumerate(sample.dim_sums):
            check.in_range(f"dim_sums[{i}]", dim_sum, 0, 1 << 32)
        if not all_to_all and len(set(sample.dim_sums)) > 1:
            check.fail("dim_sums", f"must be the same on every rank for {sample.collective}, got {', '.join(map(str, sample.dim_sums))}")
    if len(sample.start_offsets_ms) not in (0, ranks):
        check.fail("start_offsets_ms", f"must have none or as many entries as dim_sums, {ranks}, got {len(sample.start_offsets_ms)}")
    else:
        for i, offset in enumerate(sample.start_offsets_ms):
            check.in_range(f"start_offsets_ms[{i}]", offset, 0.0, _MAX_START_OFFSET_MS)
    if check.in_range("batch_size", sample.batch_size, 1, _MAX_BATCH) and ranks and sample.batch_size % ranks:
        check.fail("batch_size", f"must be a multiple of the {ranks} ranks, got {sample.batch_size}")
    sample.wire_dtype = check.word("wire_dtype", sample.wire_dtype, WIRE_DTYPES, "fp32")
    sample.element_bytes = sample.element_bytes or 4
    reduces = sample.collective in ("reduce_scatter", "all_reduce")
    if check.in_range("element_bytes", sample.element_bytes, 1, 16) and reduces and sample.element_bytes != 4:
        check.fail("element_bytes", f"must be 4 for {sample.collective}, which adds fp32 numbers, got {sample.element_bytes}")
    cadence = check.word("cadence", sample.cadence, CADENCES, "barrier")
    sample.cadence = "" if cadence == "barrier" else cadence  # ranks of workers of before there was the field agree on a barrier
    if sample.cadence and sample.start_offsets_ms:
        check.fail("start_offsets_ms", f"must be empty for cadence {cadence}, which has no barrier to count from")
    if sample.wire_dtype != "fp32":
        if not all_to_all:
            check.fail("wire_dtype", f"goes with collective all_to_all alone, got {sample.collective}")
        if message.element_bytes not in (0, 2):
            check.fail("element_bytes", f"must be absent or 2 for wire_dtype {sample.wire_dtype}, got {sample.element_bytes}")
        sample.element_bytes = 2
    violations.raise_if_any()
    return sample


def check_comm_sample_of_group(sample: v1.CommSample, world_size: int, timeout_ms: int) -> None:
    """What only the sample's group can tell."""
    violations = Violations()
    if len(sample.dim_sums) != world_size:
        violations.add("dim_sums", f"must have one entry for each of the group's {world_size} ranks, got {len(sample.dim_sums)}")
    offsets = list(sample.start_offsets_ms)
    if offsets and max(offsets) - min(offsets) >= timeout_ms:
        violations.add(f"start_offsets_ms[{offsets.index(max(offsets))}]",
                       f"must be less than the group's timeout of {timeout_ms} ms after the first, got {_text(max(offsets) - min(offsets))} ms")
    violations.raise_if_any()


def check_casts(sample: v1.CommSample, backends: Sequence[str]) -> None:
    """Casts are timed by the host's clock, beside exchanges that it waits for."""
    violations = Violations()
    for backend in sorted(set(backends) - {"torch-gloo"}):
        if sample.wire_dtype != "fp32":
            violations.add("wire_dtype", f"{sample.wire_dtype} is measured by torch-gloo alone here, and a rank has {backend}")
    violations.raise_if_any()


class GroupSpec(NamedTuple):
    group_id: str
    world_size: int
    local_ranks: Tuple[Tuple[int, int], ...]  # (rank, device)
    timeout_ms: int
    idle_timeout_ms: int


def decode_group_spec(request: v1.OpenCommGroupRequest, num_devices: int) -> GroupSpec:
    violations = Violations()
    check = _Check("", violations)
    size = len(request.group_id.encode())
    if not 1 <= size <= 128:
        check.fail("group_id", f"must have 1 to 128 bytes, got {size}")
    else:
        check.is_text("group_id", request.group_id, 128)
    if not 1 <= request.world_size <= MAX_RANKS:
        check.fail("world_size", f"must be in [1, {MAX_RANKS}], got {request.world_size}")
    if not 1 <= len(request.local_ranks) <= MAX_RANKS:
        check.fail("local_ranks", f"must have 1 to {MAX_RANKS} entries, got {len(request.local_ranks)}")
    ranks, devices = set(), set()
    for i, local in enumerate(request.local_ranks[:MAX_RANKS]):
        if not 0 <= local.rank < request.world_size:
            check.fail(f"local_ranks[{i}].rank", f"must be in [0, {request.world_size}), got {local.rank}")
        elif local.rank in ranks:
            check.fail(f"local_ranks[{i}].rank", f"rank {local.rank} appears twice")
        if not 0 <= local.device < num_devices:
            check.fail(f"local_ranks[{i}].device", f"must be in [0, {num_devices}), got {local.device}")
        elif local.device in devices:
            check.fail(f"local_ranks[{i}].device", f"device {local.device} appears twice; each rank needs its own")
        ranks.add(local.rank)
        devices.add(local.device)
    spec = GroupSpec(request.group_id, request.world_size, tuple((local.rank, local.device) for local in request.local_ranks),
                     request.timeout_ms or 30_000, request.idle_timeout_ms or 60_000)
    for field in ("timeout_ms", "idle_timeout_ms"):
        if not 100 <= getattr(spec, field) <= 600_000:
            check.fail(field, f"must be in [100, 600000], got {getattr(spec, field)}")
    violations.raise_if_any()
    return spec


def by_rank(addresses: Sequence[v1.RankAddress], world_size: int) -> Tuple[bytes, ...]:
    """ConnectCommGroupRequest.addresses in the order of ranks."""
    violations, seen = Violations(), {}
    if len(addresses) > world_size:
        violations.add("addresses", f"must have one entry for each of {world_size} ranks, got {len(addresses)}")
    for i, one in enumerate(addresses[:world_size]):
        if not 0 <= one.rank < world_size:
            violations.add(f"addresses[{i}].rank", f"must be in [0, {world_size}), got {one.rank}")
        elif one.rank in seen:
            violations.add(f"addresses[{i}].rank", f"rank {one.rank} has an address already")
        seen[one.rank] = one.address
    for rank in range(world_size):
        if rank not in seen:
            violations.add("addresses", f"none of rank {rank}")
    violations.raise_if_any()
    return tuple(seen[rank] for rank in range(world_size))
