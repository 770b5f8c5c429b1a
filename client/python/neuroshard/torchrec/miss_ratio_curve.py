"""TorchRec's CacheStatistics as what a request has of a table's ids: the exponent of Zipf's law whose caches miss as much."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torchrec.distributed.types import CacheStatistics

LOAD_FACTORS = torch.tensor([0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8], dtype=torch.float64)
MOST_EXPONENT = 4.0  # Table.zipf_exponent
HALVINGS = 40


class ZipfFit(NamedTuple):
    exponent: float
    difference: float
    """Largest difference of the rows that a batch misses, of those that were compared, as a share of CacheStatistics.expected_lookups."""


def zipf_fit(stats: CacheStatistics, rows: int, ids: float) -> ZipfFit:
    """The exponent whose missed rows are nearest, without a cache and behind those of LOAD_FACTORS that hold a batch: in smaller ones FBGEMM keeps the rows
    of the batch, and an LRU curve does not say what that catches.

    `ids`: that a global batch looks up in the table. ValueError where the statistics give no numbers, or no lookups.
    """
    lookups = float(stats.expected_lookups)
    shares = [1.0] + [float(stats.expected_miss_rate(float(load_factor))) for load_factor in LOAD_FACTORS]
    if not (math.isfinite(lookups) and lookups > 0 and all(0 <= share <= 1 for share in shares)):
        raise ValueError(f"expected_lookups {lookups:g} and miss rates {shares[1:]} must be a positive number and numbers from 0 to 1")
    missed = lookups * torch.tensor(shares, dtype=torch.float64)
    compared = torch.cat([torch.tensor([True]), LOAD_FACTORS * rows >= lookups])

    near = torch.linspace(0, MOST_EXPONENT, 41, dtype=torch.float64)
    for step in (0.01, 0.001, 0.0):
        off = (missed_rows(rows, ids, near) - missed)[:, compared].abs() / lookups
        best = int(off.sum(1).argmin())
        if step:
            near = (near[best] + step * torch.arange(-10, 11)).clamp(0, MOST_EXPONENT)
    return ZipfFit(round(float(near[best]), 3), float(off[best].max()))


def missed_rows(rows: int, ids: float, exponents: torch.Tensor) -> torch.Tensor:
    """Rows that a batch of `ids` ids by Zipf's law misses, a line for each exponent: without a cache (all that it looks up), then behind LRU caches of
    LOAD_FACTORS x rows. What the service expects (common/domain/expected_lookups.h has the formulas); ranks are in groups that grow by a sixteenth."""
    edges = [1]
    while edges[-1] <= rows:
        edges.append(min(rows + 1, max(edges[-1] + 1, edges[-1] + edges[-1] // 16)))
    ends = torch.tensor(edges, dtype=torch.float64)
    count = ends[1:] - ends[:-1]
    weight = (ends[:-1] * (ends[1:] - 1)).sqrt() ** -exponents[:, None]
    mean = (ids * weight / (count * weight).sum(1, keepdim=True))[:, None]  # exponent, load factor, group
    in_batch = -torch.expm1(-mean)

    def held(log_time: torch.Tensor) -> torch.Tensor:
        """Probability that a row is cached after so many batches, or, below one, where a batch leaves that part of its rows there."""
        time = log_time.exp()[..., None]
        part = in_batch * time / (1 - in_batch + in_batch * time)
        return torch.where(time < 1, part, -torch.expm1(-mean * time))

    low = torch.full((len(exponents), len(LOAD_FACTORS)), -50.0, dtype=torch.float64)
    high = -low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = (count * held(middle)).sum(2) < LOAD_FACTORS * rows
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return torch.cat([(count * in_batch).sum(2), (count * in_batch * (1 - held(low))).sum(2)], 1)
