"""Statistics of the tables in a file of Meta's dlrm_datasets (.pt), in the CSV format of configs/workloads/dlrm_2021_tables856.csv.

  neuroshard-dataset-statistics fbgemm_t856_bs65536.pt --out tables.csv

The file is a tuple or list of three integer tensors: ids (table by table), offsets (tables x batch + 1, where each sample's ids start) and lengths
(tables x batch). It is read in pieces, so that memory does not depend on its size; nothing in it is executed. A file that is compressed with gzip, as Meta
publishes them, is decompressed to disk first. Needs NumPy, not PyTorch.
"""

import argparse
import contextlib
import csv
import gzip
import os
import sys
import tempfile
import time
import zlib

try:
    import numpy
except ImportError:
    raise SystemExit("neuroshard-dataset-statistics: needs NumPy (pip install neuroshard[dataset]; Debian: apt-get install python3-numpy)") from None

from neuroshard import torch_file
from neuroshard.command_line import parse_arguments
from neuroshard.dataset.table_statistics import BINS, table_statistics
from neuroshard.torch_file import TorchFileError

PIECE_IDS = 1 << 20
MAX_BATCH = 1 << 26  # a table's offsets and lengths are read at once


class DatasetError(Exception):
    """A data set that is not what it should be, with the file and the reason."""


class Values:
    """An integer tensor that stays in the file."""

    def __init__(self, path, tensor, what):
        if not isinstance(tensor, torch_file.Tensor) or tensor.storage.code not in ("q", "i"):
            raise DatasetError(f"{path}: {what} is no tensor of 32- or 64-bit integers")
        if not tensor.is_contiguous:
            raise DatasetError(f"{path}: {what} is not contiguous; save it again after .contiguous()")
        self._tensor, self.count, self.shape = tensor, tensor.count, tensor.shape
        self._type = numpy.dtype({"q": "i8", "i": "i4"}[tensor.storage.code]).newbyteorder("<" if tensor.storage.byte_order == "little" else ">")

    def read(self, first, count):
        data = self._tensor.storage.read(self._tensor.offset + first, count)
        return numpy.frombuffer(data, dtype=self._type).astype(numpy.int64, copy=False)

    def pieces(self, first, count, length):
        for start in range(first, first + count, length):
            yield self.read(start, min(length, first + count - start))


class Dataset:
    """The three tensors of a file, checked against each other table by table as they are read."""

    def __init__(self, path, batch_size=None, shown_as=None):
        value = torch_file.load(path)
        path = self.path = shown_as or path
        if isinstance(value, dict) and all(key in value for key in ("indices", "offsets", "lengths")):
            value = [value["indices"], value["offsets"], value["lengths"]]
        if not isinstance(value, (tuple, list)) or len(value) != 3:
            raise DatasetError(f"{path}: is not a tuple or list of ids, offsets and lengths")
        self._ids, self._offsets, self._lengths = (Values(path, tensor, what) for tensor, what in zip(value, ("the ids", "the offsets", "the lengths")))
        if len(self._lengths.shape) == 2 and batch_size in (None, self._lengths.shape[1]):
            self.num_tables, self.batch_size = self._lengths.shape
        elif len(self._lengths.shape) == 1 and batch_size and self._lengths.count % batch_size == 0:
            self.num_tables, self.batch_size = self._lengths.count // batch_size, batch_size
        else:
            raise DatasetError(f"{path}: lengths of shape {list(self._lengths.shape)} are not tables x batch" + (f" of {batch_size}" if batch_size else "; give --batch-size"))
        if self.num_tables < 1 or not 1 <= self.batch_size <= MAX_BATCH:
            raise DatasetError(f"{path}: {self.num_tables} tables at batch {self.batch_size}")
        if self._offsets.count != self._lengths.count + 1:
            raise DatasetError(f"{path}: {self._offsets.count} offsets for {self._lengths.count} lengths; there must be one more")
        if int(self._offsets.read(0, 1)[0]) != 0 or int(self._offsets.read(self._offsets.count - 1, 1)[0]) != self._ids.count:
            raise DatasetError(f"{path}: offsets do not go from 0 to the number of ids, {self._ids.count}")

    @property
    def num_ids(self):
        return self._ids.count

    def statistics(self, table, piece_ids=PIECE_IDS, **limits):
        """(number of ids, TableStatistics) of a table."""
        first = table * self.batch_size
        offsets, lengths = self._offsets.read(first, self.batch_size + 1), self._lengths.read(first, self.batch_size)
        if (lengths < 0).any() or not numpy.array_equal(numpy.diff(offsets), lengths):
            raise DatasetError(f"{self.path}: table {table}: its lengths are not the steps of its offsets")
        start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        del offsets, lengths
        try:
            return count, table_statistics(lambda: self._ids.pieces(start, count, piece_ids), self.batch_size, **limits)
        except ValueError as fault:
            raise DatasetError(f"{self.path}: table {table}: {fault}") from None


def is_gzip(path):
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def decompress(path, file, report):
    """Writes what is in the gzip file `path` to `file`; `report` is called with the share done, now and then."""
    size, pieces = os.path.getsize(path), 0
    try:
        with open(path, "rb") as packed, gzip.open(packed) as unpacked:
            while piece := unpacked.read(1 << 20):
                file.write(piece)
                pieces += 1
                if pieces % 64 == 0:
                    report(packed.tell() / size)
        file.flush()
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise DatasetError(f"{path}: {fault}") from None


class Progress:
    """A line on stderr with the share done and the time left; on a terminal rewritten, in a log every ten seconds."""

    def __init__(self, what, quiet):
        self._what, self._quiet, self._live = what, quiet, sys.stderr.isatty()
        self._started = self._shown = time.monotonic()

    def report(self, share, detail="", last=False):
        now = time.monotonic()
        if self._quiet or (not last and now - self._shown < (0.2 if self._live else 10)):
            return
        self._shown = now
        elapsed = now - self._started
        left = f", {elapsed / share - elapsed:.0f} s left" if 0 < share < 1 else ""
        end = "\r" if self._live and not last else "\n"
        print(f"{self._what} {share:6.1%}{detail}, {elapsed:.0f} s{left}   ", end=end, file=sys.stderr, flush=True)


def statistics_of_all(dataset, quiet):
    progress, tables, done = Progress("statistics", quiet), [], 0
    for table in range(dataset.num_tables):
        ids, found = dataset.statistics(table)
        tables.append(found)
        done += ids
        share = done / dataset.num_ids if dataset.num_ids else 1
        progress.report(share, f", table {table + 1} of {dataset.num_tables}", last=table + 1 == dataset.num_tables)
    return tables


def write_csv(path, tables, replace):
    """The file appears complete or not at all."""
    if os.path.lexists(path) and not replace:
        raise DatasetError(f"{path}: exists already; --replace overwrites it")
    temporary = os.path.join(os.path.dirname(os.path.abspath(path)), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["index", "row", "pooling_factor", *[f"bin_{i}" for i in range(BINS)]])
            for index, table in enumerate(tables):
                writer.writerow([index, table.rows, table.pooling_factor, *table.bins])
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", metavar="FILE.pt")
    parser.add_argument("--out", metavar="FILE.csv", required=True)
    parser.add_argument("--replace", action="store_true", help="overwrite FILE.csv")
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples a table; only needed where lengths have one dimension")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--scratch", metavar="DIR", help="where a compressed file is decompressed to, for as long as it takes (default: beside FILE.csv)")
    options = parse_arguments(parser)
    try:
        if os.path.lexists(options.out) and not options.replace:
            raise DatasetError(f"{options.out}: exists already; --replace overwrites it")
        with contextlib.ExitStack() as scratch:
            path = options.dataset
            if is_gzip(path):
                folder = options.scratch or os.path.dirname(os.path.abspath(options.out))
                file = scratch.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix=".dataset.", suffix=".tmp"))
                decompress(path, file, Progress("decompressed", options.quiet).report)
                path = file.name
            dataset = Dataset(path, options.batch_size, shown_as=options.dataset)
            tables = statistics_of_all(dataset, options.quiet)
        write_csv(options.out, tables, options.replace)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (DatasetError, TorchFileError, OSError) as fault:
        raise SystemExit(f"neuroshard-dataset-statistics: {fault}") from None
    print(f"{options.out}: {dataset.num_tables} tables, {dataset.num_ids} ids, batch {dataset.batch_size}")


if __name__ == "__main__":
    main()
