"""reserve_from: each part against what is known of it, the sum against a training run, and the reservation in plans.

  measured_reservation_test.py [PLANNER CLIENT]
"""

import enum
import logging
import unittest

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.datasets.utils import Batch
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from neuroshard.torchrec import reserve_from
from neuroshard.torchrec.measured_reservation import peak_bytes

SAMPLES = 512
FEATURES = ["a", "b", "c"]
DIM = 16


def bags(rows=1000, device="meta", weighted=False):
    tables = [EmbeddingBagConfig(name=f"t_{name}", feature_names=[name], num_embeddings=rows, embedding_dim=DIM) for name in FEATURES]
    return EmbeddingBagCollection(tables=tables, device=torch.device(device), is_weighted=weighted)


def dlrm(rows=1000, device="meta"):
    return DLRMTrain(DLRM(bags(rows, device), 13, [64, DIM], [64, 1]))


def make_batch(seed=0):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (len(FEATURES) * SAMPLES,), generator=draw)
    ids = torch.randint(0, 1000, (int(lengths.sum()),), generator=draw)
    return Batch(
        dense_features=torch.rand(SAMPLES, 13, generator=draw),
        sparse_features=KeyedJaggedTensor(FEATURES, ids, lengths=lengths),
        labels=torch.randint(0, 2, (SAMPLES,), generator=draw),
    )


def peak_of_training(module, batch, steps=3):
    """Of a run with its tables, beyond module and batch."""
    optimizer = torch.optim.Adam([parameter for name, parameter in module.named_parameters() if "embedding_bags" not in name])
    apply_optimizer_in_backward(torch.optim.SGD, [parameter for name, parameter in module.named_parameters() if "embedding_bags" in name], {"lr": 0.1})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profile:
        for _ in range(steps):
            optimizer.zero_grad()
            module(batch)[0].backward()
            optimizer.step()
    return peak_bytes(profile)


class PartsTest(unittest.TestCase):
    def test_parameters_gradients_state_and_batches_are_those_of_the_module(self):
        module = dlrm()
        dense = sum(parameter.numel() for name, parameter in module.named_parameters() if "embedding_bags" not in name) * 4
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in module.buffers())
        batch = make_batch()
        sparse = batch.sparse_features
        ids, rest = (sum(t.numel() * t.element_size() for t in parts) for parts in (
            (sparse.values(), sparse.lengths(), sparse.offsets()), (batch.dense_features, batch.labels)))
        for pipeline, batches in (("none", 1), ("train_sparse_dist", 3)):
            found = reserve_from(module, batch, optimizer=torch.optim.Adam, pipeline=pipeline)
            self.assertEqual((dense + buffers, dense), (found.parts["parameters"], found.parts["gradients"]))
            self.assertAlmostEqual(2 * dense, found.parts["optimizer"], delta=4 * 2 * 20)  # and Adam's count of steps of each parameter
            self.assertEqual(batches * (ids + rest), found.parts["batches"])
            self.assertGreater(found.parts["activations"], SAMPLES * 4 * (64 + 64 + len(FEATURES) * DIM))
            self.assertEqual(round(sum(found.parts.values()) * 1.03), found.bytes)
            vectors = (1 if pipeline == "none" else 2) * SAMPLES * len(FEATURES) * DIM * 4
            self.assertEqual(vectors + batches * ids, found.parts["exchanges"])
        self.assertEqual(0, reserve_from(module, batch).parts["optimizer"])
        self.assertIn("activations", str(found))

    def test_a_run_with_small_tables_needs_what_is_reserved(self):
        module, batch = dlrm(rows=1000, device="cpu"), make_batch()
        found = reserve_from(module, batch, optimizer=torch.optim.Adam, pipeline="none", margin=0)
        measured = peak_of_training(module, batch)
        predicted = found.bytes - found.parts["parameters"] - found.parts["batches"] - found.parts["exchanges"]
        tables = sum(parameter.numel() for name, parameter in module.named_parameters() if "embedding_bags" in name) * 4  # their gradients, dense here
        self.assertGreaterEqual(predicted + tables, measured)
        self.assertLess(predicted, 1.05 * measured)

    def test_the_module_is_left_as_it_was_and_its_tables_may_be_of_any_size(self):
        module = dlrm(rows=10**11)
        before = {name: (parameter.shape, parameter.device, parameter.grad) for name, parameter in module.named_parameters()}
        self.assertLess(reserve_from(module, make_batch()).bytes, 10**8)
        self.assertEqual(before, {name: (parameter.shape, parameter.device, parameter.grad) for name, parameter in module.named_parameters()})

    def test_sequences_and_feature_processors(self):
        class Sequences(nn.Module):
            def __init__(self):
                super().__init__()
                tables = [EmbeddingConfig(name=f"t_{name}", feature_names=[name, "shared"], num_embeddings=10**11, embedding_dim=DIM) for name in FEATURES]
                self.tables = EmbeddingCollection(tables=tables, device=torch.device("meta"))
                self.top = nn.Linear(DIM, 1, device="meta")

            def forward(self, features):
                found = self.tables(features)
                return sum(self.top(found[name].values()).sum() for name in ("a", "shared@t_b"))

        lengths = torch.tensor([1, 2, 0, 3, 1, 1, 2, 2])
        features = KeyedJaggedTensor([*FEATURES, "shared"], torch.arange(12), lengths=lengths)
        found = reserve_from(Sequences(), features)
        self.assertEqual((DIM + 1) * 4, found.parts["parameters"])
        self.assertGreaterEqual(found.parts["activations"], 20 * DIM * 4)  # a vector an id, and for each of the 4 of "shared" one a table

        processed = FeatureProcessedEmbeddingBagCollection(bags(weighted=True), PositionWeightedModuleCollection({name: 4 for name in FEATURES}))
        found = reserve_from(processed, make_batch(), step=lambda module, batch: module(batch.sparse_features).values().sum())
        self.assertEqual(len(FEATURES) * 4 * 4, found.parts["parameters"])

    def test_collections_that_are_called_twice_shared_parameters_and_batches_of_any_class(self):
        class Twice(nn.Module):
            def __init__(self, calls):
                super().__init__()
                self.tables, self.calls = bags(), calls
                self.a, self.b = (nn.Linear(len(FEATURES) * DIM, 1, bias=False, device="meta") for _ in range(2))
                self.b.weight = self.a.weight

            def forward(self, batch):
                return sum((self.a(self.tables(batch.f).values()) + self.b(self.tables(batch.f).values())).sum() for _ in range(self.calls))

        class Kind(enum.Enum):
            ONE = 1

        class Holder:
            def __init__(self):
                self.f, self.kind, self.itself = make_batch().sparse_features, Kind.ONE, self

        once, twice = (reserve_from(Twice(calls), Holder()) for calls in (1, 2))
        self.assertEqual(len(FEATURES) * DIM * 4, once.parts["parameters"])
        vectors = 2 * 2 * SAMPLES * len(FEATURES) * DIM * 4  # two buffers, of two calls more
        self.assertEqual(once.parts["exchanges"] + vectors, twice.parts["exchanges"])

    def test_bad_arguments_are_named(self):
        batch = make_batch()
        for error, text, arguments in (
            (ValueError, "pipeline: must be one of none, .*, got 'fast'", {"pipeline": "fast"}),
            (ValueError, "margin: must not be negative, got -1", {"margin": -1}),
            (TypeError, r"step: must give a loss .*, got a tensor of shape \(512,\)", {"step": lambda module, batch: module(batch)[1][1]}),
            (TypeError, "step: must give a loss .*, got NoneType", {"step": lambda module, batch: None}),
        ):
            with self.assertRaisesRegex(error, text):
                reserve_from(dlrm(), batch, **arguments)
        with self.assertRaisesRegex(ValueError, "module: has no parameters beside its tables"):
            reserve_from(bags(), batch)

    def test_planners_leave_it_free(self):
        found = reserve_from(dlrm(), make_batch(), optimizer=torch.optim.Adam)
        topology = Topology(world_size=2, compute_device="cuda", hbm_cap=found.bytes + 10**6)
        planner = EmbeddingShardingPlanner(topology=topology, batch_size=SAMPLES, storage_reservation=found, debug=False, stats=[])
        planner.plan(dlrm(), get_default_sharders())
        self.assertEqual(10**6, found.last_reserved_topology.devices[0].storage.hbm)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    unittest.main(argv=["measured_reservation_test.py"])
