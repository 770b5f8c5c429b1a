"""What NeuroShard knows of a table, from the ids that a batch looks up in it: exact, in bounded memory."""

import numpy

BINS = 17
MIN_ROWS = 100
MAX_DISTINCT = 8 << 20  # distinct ids that are counted at a time: 128 MiB of ids and counts


class CountOverflow(Exception):
    """More distinct ids than are counted at a time."""


class DistinctCounts:
    """How often each id occurs: sorted ids and their counts, added to piece by piece."""

    def __init__(self, most):
        self._most = most
        self.ids = numpy.empty(0, dtype=numpy.int64)
        self.counts = numpy.empty(0, dtype=numpy.int64)

    def add(self, piece):
        """CountOverflow when the distinct ids are more than are allowed."""
        self.add_counts(*numpy.unique(piece, return_counts=True))

    def add_counts(self, ids, counts):
        """Sorted distinct ids, and how often each occurs; CountOverflow as in add."""
        places = numpy.searchsorted(self.ids, ids)
        known = numpy.zeros(len(ids), dtype=bool)
        inside = places < len(self.ids)
        known[inside] = self.ids[places[inside]] == ids[inside]
        self.counts[places[known]] += counts[known]
        new = ~known
        if not new.any():
            return
        if len(self.ids) + int(new.sum()) > self._most:
            raise CountOverflow
        self.ids = numpy.insert(self.ids, places[new], ids[new])
        self.counts = numpy.insert(self.counts, places[new], counts[new])

    def bins(self):
        """Numbers of ids by count: bin 0 for once, bin k for 2^(k-1) < count <= 2^k, the last for everything above 2^15."""
        edges = numpy.left_shift(1, numpy.arange(BINS - 1, dtype=numpy.int64))
        return numpy.bincount(numpy.searchsorted(edges, self.counts), minlength=BINS)


class TableStatistics:
    """rows, pooling_factor and the 17 bins (shares of the distinct ids) of one table."""

    def __init__(self, rows, pooling_factor, bins):
        self.rows, self.pooling_factor, self.bins = rows, pooling_factor, bins


def _part_of(ids, parts):
    """Which of `parts` (a power of two) an id is counted in; near-by ids are spread (Fibonacci hashing)."""
    mixed = ids.view(numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    return mixed >> numpy.uint64(64 - (parts.bit_length() - 1))


def table_statistics(pieces, batch_size, most_distinct=MAX_DISTINCT):
    """Statistics of a table.

    pieces      called once or more; yields the table's ids as int64 arrays of moderate length, each time the same
    batch_size  samples, at least 1

    Where a table has more distinct ids than are counted at a time, the ids are counted in parts, with another pass for each part. An id
    is in one part, so nothing is estimated. ValueError for a negative id.
    """
    count, largest = 0, -1
    parts = 1
    while True:
        try:
            bins = numpy.zeros(BINS, dtype=numpy.int64)
            for part in range(parts):
                distinct = DistinctCounts(most_distinct)
                count, largest = 0, -1
                for piece in pieces():
                    if len(piece) == 0:
                        continue
                    if piece.min() < 0:
                        raise ValueError(f"id {piece.min()} is negative")
                    count, largest = count + len(piece), max(largest, int(piece.max()))
                    distinct.add(piece if parts == 1 else piece[_part_of(piece, parts) == part])
                bins += distinct.bins()
            break
        except CountOverflow:
            parts *= 2
    total = int(bins.sum())
    return TableStatistics(max(MIN_ROWS, largest + 1), count / batch_size, [int(each) / total if total else 0.0 for each in bins])
