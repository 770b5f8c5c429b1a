"""The ids of a batch: those that neuroshard-worker makes for the same sample, to the bit (kernels/indices says why they are made this way).

Pure, but for NumPy. Every function raises Fault with INVALID_ARGUMENT for what is out of range.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, List, NamedTuple, Optional

import numpy

from .faults import Fault

REUSE_BINS = 17
MAX_LOOKUPS = 1 << 40  # of a shard in a batch
_LAST_BIN = REUSE_BINS - 1
_MASK = (1 << 64) - 1
_BLOCK = 1 << 16  # ids made at a time: the steps' arrays stay in the cache


def num_lookups(batch_size: int, pooling_factor: float) -> int:
    """Ids of a batch: round(batch_size * pooling_factor), halves up."""
    return _round(batch_size * pooling_factor)


@dataclasses.dataclass
class LookupBatch:
    """Sample b owns ids[offsets[b] : offsets[b + 1]]; weights: one an id, or None."""

    ids: numpy.ndarray
    offsets: numpy.ndarray
    weights: Optional[numpy.ndarray]


class Random:
    """std::mt19937_64, of which C++ takes whole words (common/base/random.h)."""

    _N, _M, _LOW = 312, 156, (1 << 31) - 1

    def __init__(self, seed: int) -> None:
        self._words = [seed & _MASK]
        for i in range(1, self._N):
            last = self._words[-1]
            self._words.append((6364136223846793005 * (last ^ (last >> 62)) + i) & _MASK)
        self._at = 0

    def next(self) -> int:
        words, i = self._words, self._at
        both = (words[i] & ~self._LOW & _MASK) | (words[(i + 1) % self._N] & self._LOW)
        word = words[(i + self._M) % self._N] ^ (both >> 1) ^ (0xB5026F5AA96619E9 if both & 1 else 0)
        words[i], self._at = word, (i + 1) % self._N
        word ^= (word >> 29) & 0x5555555555555555
        word ^= (word << 17) & 0x71D67FFFEDA60000
        word ^= (word << 37) & 0xFFF7EEE000000000
        return word ^ (word >> 43)


def _split_mix(values: numpy.ndarray) -> numpy.ndarray:
    x = values + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def _numbered(seed: int, numbers: numpy.ndarray) -> numpy.ndarray:
    return _split_mix(numpy.array([seed], numpy.uint64) + numbers.astype(numpy.uint64))


class _Permutation:
    """kernels/indices/lookup_rule.h: a random order of [0, size)."""

    def __init__(self, size: int, seed: int) -> None:
        bits = (size - 1).bit_length()
        self._size = numpy.uint64(size)
        self._mask = numpy.uint64((1 << bits) - 1)
        self._fold = numpy.uint64(max(1, (bits + 1) // 2))
        self._keys = _numbered(seed, numpy.arange(6))

    def __call__(self, indices: numpy.ndarray) -> numpy.ndarray:
        values = self._scatter(indices.astype(numpy.uint64))
        outside = numpy.flatnonzero(values >= self._size)
        while len(outside):
            values[outside] = self._scatter(values[outside])
            outside = outside[values[outside] >= self._size]
        return values.astype(numpy.int64)

    def _scatter(self, values: numpy.ndarray) -> numpy.ndarray:
        for step in range(0, 6, 2):
            for key, factor in ((self._keys[step], 0xBF58476D1CE4E5B9), (self._keys[step + 1], 0x94D049BB133111EB)):
                values = (values + key) * numpy.uint64(factor) & self._mask
                values ^= values >> self._fold
        return values


def make_lookups(rows: int, batch_size: int, pooling_factor: float, weighted: bool, seed: int, histogram: List[float],
                 check: Callable[[], None] = lambda: None) -> LookupBatch:
    """Ids of [0, rows) whose reuse histogram is `histogram`, as nearly as whole numbers allow; `check` is called between blocks and may raise.

    8 bytes an id (12 weighted) and 8 a sample."""
    if batch_size * pooling_factor > MAX_LOOKUPS:
        raise Fault.invalid("pooling_factor", f"{pooling_factor:g} ids for each of {batch_size} samples are more than 2^40")
    lookups = num_lookups(batch_size, pooling_factor)
    if lookups and not sum(histogram) > 0:
        raise Fault.invalid("reuse_histogram", f"sums up to {sum(histogram):g}, but {lookups} ids are to be looked up")
    random = Random(seed)
    row_order = _Permutation(rows, random.next())
    key_order = _Permutation(max(1, lookups), random.next())
    random.next()  # of ids that are drawn from Zipf's law
    length_seed, weight_seed = random.next(), random.next()

    counts = choose_reuse_counts(histogram, lookups, rows) if lookups else []
    keys_per_rank = numpy.array([count.times for count in counts], numpy.int64)
    ids_of = numpy.array([count.ids for count in counts], numpy.int64)
    first_rank, first_key = numpy.cumsum(ids_of) - ids_of, numpy.cumsum(ids_of * keys_per_rank) - ids_of * keys_per_rank

    ids = numpy.empty(lookups, numpy.int64)
    weights = numpy.empty(lookups, numpy.float32) if weighted else None
    for begin in range(0, lookups, _BLOCK):
        check()
        positions = numpy.arange(begin, min(begin + _BLOCK, lookups))
        keys = key_order(positions)
        run = numpy.searchsorted(first_key, keys, side="right") - 1
        ids[positions] = row_order(first_rank[run] + (keys - first_key[run]) // keys_per_rank[run])
        if weights is not None:
            weights[positions] = 0.5 + (_numbered(weight_seed, positions) >> numpy.uint64(41)).astype(numpy.float64) * 2.0**-23
    return LookupBatch(ids, _offsets(batch_size, lookups, length_seed), weights)


def _offsets(batch_size: int, lookups: int, length_seed: int) -> numpy.ndarray:
    samples = numpy.arange(batch_size + 1)
    longer = lookups % batch_size
    offsets = samples * (lookups // batch_size)
    if longer == 0:
        return offsets
    stretch = ((samples + 1) * longer - 1) // batch_size
    begin = stretch * batch_size // longer
    bound = ((stretch + 1) * batch_size // longer - begin).astype(numpy.uint64)
    bits = _numbered(length_seed, stretch)
    half = numpy.uint64(32)
    scaled = ((bits >> half) * bound + ((bits & numpy.uint64(0xFFFFFFFF)) * bound >> half)) >> half  # bits * bound / 2^64: bound is below 2^25
    return offsets + stretch + (begin + scaled.astype(numpy.int64) < samples)


# How often the distinct ids occur: kernels/indices/reuse_counts.cc.


class ReuseCount(NamedTuple):
    """`ids` distinct ids occur `times` times each."""

    times: int
    ids: int


def _round(value: float) -> int:
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


def reuse_bin(count: int) -> int:
    """The bin that an id occurring `count` times falls into."""
    return min((count - 1).bit_length(), _LAST_BIN)


_SMALLEST = [1] + [(1 << (k - 1)) + 1 for k in range(1, REUSE_BINS)]
_LARGEST = [1 << k for k in range(REUSE_BINS)]
_TYPICAL = [max(_LARGEST[k] * math.log(2), float(_SMALLEST[k])) for k in range(REUSE_BINS)]


def _total(ids: List[int], counts: list) -> float:
    total = 0.0
    for number, count in zip(ids, counts):
        total += number * float(count)
    return total


def _equal_counts(ids: int, lookups: int) -> List[ReuseCount]:
    if ids == 0:
        return []
    each, more = divmod(lookups, ids)
    return ([ReuseCount(each, ids - more)] if more < ids else []) + ([ReuseCount(each + 1, more)] if more else [])


def _fit_within_bins(ids: List[int], lookups: int) -> List[ReuseCount]:
    smallest, typical, largest = (_total(ids, counts) for counts in (_SMALLEST, _TYPICAL, _LARGEST))
    slide = 0.0
    if lookups < typical:
        slide = (lookups - typical) / (typical - smallest)
    if lookups > typical and ids[_LAST_BIN] == 0:
        slide = (lookups - typical) / (largest - typical)
    of_bin, low, high = [], [], []
    for k in range(REUSE_BINS):
        room = _TYPICAL[k] - _SMALLEST[k] if slide < 0 else _LARGEST[k] - _TYPICAL[k]
        low.append(ids[k] * _SMALLEST[k])
        high.append(lookups if k == _LAST_BIN and ids[k] > 0 else ids[k] * _LARGEST[k])
        of_bin.append(min(max(_round(ids[k] * (_TYPICAL[k] + slide * room)), low[k]), high[k]))
    missing = lookups - sum(of_bin)
    for k in reversed(range(REUSE_BINS)):
        step = min(max(missing, low[k] - of_bin[k]), high[k] - of_bin[k])
        of_bin[k] += step
        missing -= step
    return [count for k in range(REUSE_BINS) for count in _equal_counts(ids[k], of_bin[k])]


def _grow_beyond_bins(ids: List[int], lookups: int) -> List[ReuseCount]:
    factor = lookups / _total(ids, _LARGEST)
    lowest = next(k for k in range(REUSE_BINS) if ids[k])
    counts, left = [], lookups
    for k in range(_LAST_BIN, lowest, -1):
        grown = int(factor * ids[k] * _LARGEST[k])
        counts += _equal_counts(ids[k], grown)
        left -= grown
    return counts + _equal_counts(ids[lowest], left)


def choose_reuse_counts(histogram: List[float], lookups: int, rows: int) -> List[ReuseCount]:
    """Counts whose occurrences sum up to exactly `lookups`, of at most `rows` distinct ids; lookups and rows at least 1."""
    shares, reachable = list(histogram), reuse_bin(lookups)
    for k in range(reachable + 1, REUSE_BINS):
        shares[reachable] += shares[k]
        shares[k] = 0.0
    total = 0.0
    for share in shares:
        total += share
    shares = [share / total for share in shares]

    def per_bin(u: int) -> List[int]:
        return [_round(u * share) for share in shares]

    u, too_large = 0, min(rows, lookups) + REUSE_BINS + 1
    while too_large - u > 1:
        middle = u + (too_large - u) // 2
        ids = per_bin(middle)
        if sum(ids) <= rows and _total(ids, _TYPICAL) <= lookups:
            u = middle
        else:
            too_large = middle
    ids, after = per_bin(u), per_bin(too_large)
    if sum(ids) > 0 and (ids[_LAST_BIN] > 0 or _total(ids, _LARGEST) >= lookups):
        return _fit_within_bins(ids, lookups)
    if sum(after) <= rows and _total(after, _SMALLEST) <= lookups:
        return _fit_within_bins(after, lookups)
    if sum(ids) == 0:
        return [ReuseCount(lookups, 1)]
    if sum(ids) >= rows or sum(after) > rows:
        return _grow_beyond_bins(ids, lookups)
    typical = math.floor(_total(ids, _TYPICAL))
    if typical >= lookups:
        return _fit_within_bins(ids, lookups)
    return _fit_within_bins(ids, typical) + [ReuseCount(lookups - typical, 1)]
