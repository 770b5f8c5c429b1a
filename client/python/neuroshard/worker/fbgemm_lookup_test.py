"""What FBGEMM is made to compute is what the sample says: beside torch's own embedding_bag and the optimizers' formulas."""

import itertools
import unittest

import numpy
import torch

from neuroshard.worker.devices import _ABILITIES
from neuroshard.worker.fbgemm_lookup import EPSILON, LEARNING_RATE, FbgemmLookup
from neuroshard.worker.lookups import LookupBatch, make_lookups

TABLES = [(100, 8), (17, 4), (1000, 64)]
BATCH_SIZE = 50
TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3}


def some_batches(weighted: bool):  # type: ignore[no-untyped-def]
    histogram = [0.4, 0.3, 0.2, 0.1] + [0.0] * 13
    batches = [make_lookups(rows, BATCH_SIZE, 2.5, weighted, 7 + rows, histogram) for rows, _ in TABLES]
    batches[1] = LookupBatch(numpy.zeros(0, numpy.int64), numpy.zeros(BATCH_SIZE + 1, numpy.int64), numpy.zeros(0, numpy.float32) if weighted else None)
    return batches


def updated(weights: torch.Tensor, gradient: torch.Tensor, optimizer: str) -> torch.Tensor:
    if optimizer == "sgd":
        return weights - LEARNING_RATE * gradient
    square = gradient**2 if optimizer == "adagrad" else (gradient**2).mean(1, keepdim=True)
    return weights - LEARNING_RATE * gradient / (square.sqrt() + EPSILON)


class FbgemmLookupTest(unittest.TestCase):
    def test_pools_and_updates_as_torch_does(self) -> None:
        abilities = _ABILITIES["cpu"]
        for optimizer, dtype, mode, weighted in itertools.product(abilities.optimizers, abilities.weight_dtypes, ("sum", "mean"), (False, True)):
            with self.subTest(optimizer=optimizer, dtype=dtype, mode=mode, weighted=weighted):
                self.check(optimizer, dtype, mode, weighted)

    def check(self, optimizer: str, dtype: str, mode: str, weighted: bool) -> None:
        lookup, batches = FbgemmLookup(TABLES, optimizer, dtype, mode, torch.device("cpu")), some_batches(weighted)
        lookup.touch_memory(3)
        before = [weights.detach().clone().float().requires_grad_() for weights in lookup.weights]
        lookup.set_inputs(batches)
        lookup.forward()
        expected = []
        for weights, batch in zip(before, batches):
            factor = torch.ones(len(batch.ids)) if batch.weights is None else torch.from_numpy(batch.weights)
            if mode == "mean":  # divides by the number of ids, whatever they weigh
                lengths = numpy.diff(batch.offsets)
                factor = factor / torch.from_numpy(numpy.repeat(lengths, lengths))
            expected.append(torch.nn.functional.embedding_bag(torch.from_numpy(batch.ids), weights, torch.from_numpy(batch.offsets[:-1]), mode="sum",
                                                             per_sample_weights=factor.float()))
        torch.testing.assert_close(lookup.vectors, torch.cat(expected, 1), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])

        gradient = torch.rand(BATCH_SIZE, sum(cols for _, cols in TABLES), generator=torch.Generator().manual_seed(1)) + 0.1
        torch.cat(expected, 1).backward(gradient)
        lookup.backward(gradient)
        if mode == "mean" and weighted:
            return  # FBGEMM 1.9 on CPUs does not divide this gradient by the number of ids; torch's EmbeddingBag has no weighted mean to compare with
        for weights, after in zip(before, lookup.weights):
            torch.testing.assert_close(after.float(), updated(weights.detach(), weights.grad, optimizer), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])

    def test_looks_up_without_pooling(self) -> None:
        tables = [(100, 8), (17, 8), (1000, 8)]
        for optimizer in _ABILITIES["cpu"].optimizers:
            lookup, batches = FbgemmLookup(tables, optimizer, "fp32", "none", torch.device("cpu")), some_batches(False)
            lookup.touch_memory(3)
            before = [weights.detach().clone().requires_grad_() for weights in lookup.weights]
            lookup.set_inputs(batches)
            lookup.forward()
            expected = torch.cat([weights[torch.from_numpy(batch.ids)] for weights, batch in zip(before, batches)])
            torch.testing.assert_close(lookup.vectors, expected)
            gradient = torch.rand(expected.shape, generator=torch.Generator().manual_seed(1)) + 0.1
            expected.backward(gradient)
            lookup.backward(gradient)
            for weights, after in zip(before, lookup.weights):
                torch.testing.assert_close(after, updated(weights.detach(), weights.grad, optimizer), atol=1e-5, rtol=1e-5)

    def test_touched_memory_holds_ordinary_values(self) -> None:
        lookup = FbgemmLookup(TABLES, "adagrad", "fp32", "sum", torch.device("cpu"))
        lookup.touch_memory((1 << 64) - 1)
        for weights in lookup.weights:
            self.assertGreater(weights.unique().numel(), weights.numel() / 2)
            self.assertLessEqual(weights.abs().max(), 0.01)


if __name__ == "__main__":
    unittest.main()
