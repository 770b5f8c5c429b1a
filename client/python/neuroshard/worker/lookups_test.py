"""The ids of samples: those of neuroshard-worker, in a file that both read."""

import pathlib
import unittest

import numpy

from neuroshard.worker.faults import Fault
from neuroshard.worker.lookups import LookupBatch, Random, choose_reuse_counts, make_lookups, num_lookups, reuse_bin

FILE = pathlib.Path(__file__).resolve().parents[4] / "kernels/indices/testdata/lookups.txt"


def digest(batch: LookupBatch) -> int:
    """FNV-1a over the bytes of ids, offsets and the weights' bits, each in 8 bytes."""
    words = [batch.ids, batch.offsets] + ([] if batch.weights is None else [batch.weights.view(numpy.uint32)])
    hashed = 0xCBF29CE484222325
    for byte in numpy.concatenate([array.astype("<u8") for array in words]).tobytes():
        hashed = (hashed ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return hashed


class LookupsTest(unittest.TestCase):
    def test_are_those_of_the_file_that_cpp_reads_too(self) -> None:
        lines = FILE.read_text().splitlines()
        self.assertEqual(len(lines), 24)
        for number, line in enumerate(lines, 1):
            rows, batch_size, pooling_factor, weighted, seed, *histogram, expected = line.split()
            batch = make_lookups(int(rows), int(batch_size), float(pooling_factor), weighted == "1", int(seed), list(map(float, histogram)))
            self.assertEqual(f"{digest(batch):x}", expected, f"line {number}")

    def test_have_the_histogram_that_was_asked_for(self) -> None:
        histogram = [0.5, 0.25, 0.125, 0.125] + [0.0] * 13
        batch = make_lookups(100_000, 1000, 20.3, False, 5, histogram)
        self.assertEqual(len(batch.ids), num_lookups(1000, 20.3))
        _, counts = numpy.unique(batch.ids, return_counts=True)
        shares = numpy.bincount([reuse_bin(int(count)) for count in counts], minlength=17) / len(counts)
        numpy.testing.assert_allclose(shares, histogram, atol=9 / len(counts))

    def test_lengths_of_samples_differ_by_one_at_most(self) -> None:
        offsets = make_lookups(50, 333, 2.6, False, 5, [1.0] + [0.0] * 16).offsets
        self.assertEqual((offsets[0], offsets[-1], len(offsets)), (0, num_lookups(333, 2.6), 334))
        self.assertEqual(set(numpy.diff(offsets)), {2, 3})

    def test_counts_sum_up_for_random_histograms(self) -> None:
        random = numpy.random.default_rng(1)
        for _ in range(300):
            histogram = random.random(17) * (random.random(17) < 0.3)
            histogram[random.integers(17)] += 0.1
            lookups, rows = int(random.integers(1, 100_000)), int(random.integers(1, 10_000))
            counts = choose_reuse_counts(list(histogram / histogram.sum()), lookups, rows)
            self.assertEqual(sum(count * ids for count, ids in counts), lookups)
            self.assertLessEqual(sum(ids for _, ids in counts), rows)
            self.assertTrue(all(count >= 1 and ids >= 1 for count, ids in counts))

    def test_random_words_are_the_standards(self) -> None:
        random = Random(5489)  # [rand.predef]: the 10,000th of std::mt19937_64
        for _ in range(9999):
            random.next()
        self.assertEqual(random.next(), 9981545732273789042)

    def test_what_cannot_be_made_is_refused(self) -> None:
        for pooling_factor, histogram, field in ((1e6, [1.0] + [0.0] * 16, "pooling_factor"), (1.0, [0.0] * 17, "reuse_histogram")):
            with self.assertRaises(Fault) as caught:
                make_lookups(10, 1 << 24, pooling_factor, False, 1, histogram)
            self.assertEqual([violation.field for violation in caught.exception.violations], [field])

    def test_asks_between_blocks_whether_to_stop(self) -> None:
        def stop() -> None:
            raise Fault("CANCELLED", "")

        with self.assertRaises(Fault):
            make_lookups(10, 10, 1.0, False, 1, [1.0] + [0.0] * 16, stop)


if __name__ == "__main__":
    unittest.main()
