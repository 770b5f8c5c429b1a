"""Least squares of relative errors without negative coefficients, for models of times."""

from __future__ import annotations

import itertools
import math
from typing import List, Sequence

import numpy


def fit_non_negative(rows: Sequence[Sequence[float]], times: Sequence[float]) -> List[float]:
    """The coefficients, none negative, with the least squares of predicted / measured - 1: the best of all subsets of columns whose own fit has no
    negative one, so exact. For few columns."""
    matrix = numpy.array(rows, dtype=float) / numpy.array(times, dtype=float)[:, None]
    norms = numpy.maximum(numpy.linalg.norm(matrix, axis=0), 1e-300)
    matrix = matrix / norms
    columns = matrix.shape[1]
    best, least = numpy.zeros(columns), math.inf
    for count in range(1, columns + 1):
        for subset in itertools.combinations(range(columns), count):
            part = matrix[:, subset]
            found, _, rank, _ = numpy.linalg.lstsq(part, numpy.ones(len(part)), rcond=None)
            if rank < count or (found < 0).any():
                continue
            error = float(((part @ found - 1) ** 2).sum())
            if error < least - 1e-12:
                best, least = numpy.zeros(columns), error
                best[list(subset)] = found
    return [float(value) for value in best / norms]
