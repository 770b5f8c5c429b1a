"""Statistics of data sets: against counting by hand, whatever the size of pieces and parts, in memory that does not grow with the file."""

import collections
import csv
import gzip
import os
import subprocess
import sys
import tempfile
import unittest

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testdata"))

import write_dataset
from neuroshard.dataset.dataset_statistics import Dataset
from neuroshard.dataset.table_statistics import table_statistics

DATA = os.path.join(HERE, "..", "..", "testdata")


def counted(ids):
    """Shares of the distinct ids by count, by the definition."""
    bins = [0] * 17
    for count in collections.Counter(ids).values():
        place = next((k for k in range(16) if count <= 2**k), 16)
        bins[place] += 1
    return [number / sum(bins) for number in bins] if ids else [0.0] * 17


class DatasetStatisticsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = self.path("tables.csv")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, ids, lengths, **how):
        path = self.path("data.pt")
        write_dataset.write(path, [numpy.array(ids, dtype=numpy.int64)], len(ids), numpy.array(lengths), **how)
        return path

    def run_script(self, *options):
        command = [sys.executable, "-B", "-m", "neuroshard.dataset.dataset_statistics", "--out", self.out, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def assert_refused(self, words, *options):
        done = self.run_script(*options)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(os.path.exists(self.out))

    def test_what_pytorch_wrote_in_either_format(self):
        for name in ("dataset.pt", "dataset_legacy_int.pt"):
            done = self.run_script(os.path.join(DATA, name), "--replace")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(self.out, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([(int(row["row"]), float(row["pooling_factor"])) for row in rows], [(901, 1.25), (100, 0.0), (100, 2.0)])
            for row, ids in zip(rows, ([5, 5, 5, 7, 900], [], [0, 1, 1, 1, 2, 2, 40, 41])):
                self.assertEqual([float(row[f"bin_{k}"]) for k in range(17)], counted(ids))

    def test_counting_in_pieces_and_parts_is_exact(self):
        random = numpy.random.default_rng(7)
        for rows, exponent in ((50, 1), (3000, 3), (1 << 40, 2), (100000, 40)):
            ids = (rows * random.random(40000) ** exponent).astype(numpy.int64)
            wanted = counted(ids.tolist())
            for length, most in ((40000, 1 << 20), (999, 1 << 20), (7001, 2500)):
                pieces = lambda: (ids[start : start + length] for start in range(0, len(ids), length))
                found = table_statistics(pieces, 100, most)
                self.assertEqual((found.rows, found.pooling_factor), (max(100, int(ids.max()) + 1), 400.0))
                self.assertEqual(found.bins, wanted, (rows, length, most))

    def test_bins_end_at_powers_of_two(self):
        for count, place in ((1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 15, 15), ((1 << 15) + 1, 16)):
            found = table_statistics(lambda: [numpy.full(count, 3, dtype=numpy.int64)], 1)
            self.assertEqual(found.bins.index(1.0), place, count)

    def test_tables_are_told_apart_in_any_byte_order_and_width(self):
        ids, lengths = [1, 2, 3, 700, 9], [[1, 2], [0, 0], [1, 1]]
        for how in ({}, {"byte_order": "big"}, {"kinds": ("Long", "Int", "Long")}, {"kinds": ("Int", "Int", "Int"), "byte_order": "big"}):
            dataset = Dataset(self.write(ids, lengths, **how))
            self.assertEqual([dataset.statistics(t)[1].rows for t in range(3)], [100, 100, 701])
        flat = self.write(ids, numpy.array(lengths).ravel())
        self.assertEqual(Dataset(flat, 2).num_tables, 3)

    def test_a_compressed_file_is_read_and_nothing_is_left_beside_it(self):
        with open(os.path.join(DATA, "dataset.pt"), "rb") as plain, gzip.open(self.path("d.pt.gz"), "wb") as packed:
            packed.write(plain.read())
        self.assertEqual(self.run_script(self.path("d.pt.gz")).returncode, 0)
        with open(self.out, encoding="utf-8") as file:
            unpacked = file.read()
        self.run_script(os.path.join(DATA, "dataset.pt"), "--replace")
        with open(self.out, encoding="utf-8") as file:
            self.assertEqual(file.read(), unpacked)
        self.assertEqual(sorted(os.listdir(self.folder)), ["d.pt.gz", "tables.csv"])

    def test_faults_are_named_and_leave_nothing(self):
        self.assert_refused("table 1: id -4 is negative", self.write([1, -4], [[1], [1]]))
        self.assert_refused("give --batch-size", self.write([1, 2], [1, 1]))
        self.assert_refused("not tables x batch of 3", self.write([1, 2], [1, 1]), "--batch-size", "3")
        self.assert_refused("from 0 to the number of ids, 3", self.write([1, 2, 3], [[1, 1]]))
        self.assert_refused("not the steps of its offsets", self.write([1], [[2, -1]]))
        self.assert_refused("is not a tuple or list", os.path.join(DATA, "compute.pt"))
        self.assert_refused("No such file", self.path("absent.pt"))
        self.assert_refused("is refused", os.path.join(DATA, "whole_module.pt"))
        with gzip.open(self.path("whole.gz"), "wb") as whole, open(self.path("cut.gz"), "wb") as cut:
            whole.write(bytes(1000))
            whole.close()
            with open(self.path("whole.gz"), "rb") as packed:
                cut.write(packed.read()[:-9])
        self.assert_refused("cut.gz", self.path("cut.gz"))
        with open(self.path("short.pt"), "wb") as short, open(self.write([1], [[1]]), "rb") as whole:
            short.write(whole.read()[:-30])
        self.assert_refused("short.pt", self.path("short.pt"))
        self.assertEqual(self.run_script(os.path.join(DATA, "dataset.pt")).returncode, 0)
        self.assertIn("exists already", self.run_script(os.path.join(DATA, "dataset.pt")).stderr)

    def test_memory_does_not_grow_with_the_file(self):
        peaks = []
        for number in (1, 12):  # 4 MiB and 48 MiB of ids
            lengths = numpy.full((2, 128), number << 12)
            path = self.path(f"{number}.pt")
            random = numpy.random.default_rng(3)
            write_dataset.write(path, (random.integers(0, 5000, 1 << 20) for _ in range(number)), number << 20, lengths)
            # Linux: ru_maxrss of a child counts what it inherited at the fork, so the script runs two processes down.
            code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
            command = [sys.executable, "-c", code, sys.executable, "-B", "-m", "neuroshard.dataset.dataset_statistics", path, "--out", self.path(f"{number}.csv")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks.append(int(done.stdout))
        self.assertLess(peaks[1] - peaks[0], 16 << 10)  # KiB


if __name__ == "__main__":
    unittest.main()
