"""Models with embedding tables, trained sharded under DistributedModelParallel and whole, with the same batches."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardingType
from torchrec.types import DataType
from torchrec.datasets.random import RandomRecDataset
from torchrec.datasets.utils import Batch
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.optimizers import in_backward_optimizer_filter

LOCAL_BATCH = 6
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.2, "eps": 1e-8}),
    "rowwise_adagrad": (RowWiseAdagrad, {"lr": 0.2, "eps": 1e-8}),
}


class AnyTypeSharder(EmbeddingBagCollectionSharder):
    """TorchRec's sharder offers no row_wise family on CPUs, though what it makes runs there."""

    def sharding_types(self, compute_device_type):
        return [each.value for each in ShardingType]


SHARDERS = [AnyTypeSharder(), EmbeddingCollectionSharder()]


def bags(*tables, weighted=False):
    """An EmbeddingBagCollection of (name, rows, cols[, settings])."""
    return EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(**{"name": name, "num_embeddings": rows, "embedding_dim": cols, "feature_names": [f"f_{name}"], **dict(*more)})
            for name, rows, cols, *more in tables
        ],
        is_weighted=weighted,
    )


def sequences(*tables):
    """An EmbeddingCollection of (name, rows, cols)."""
    return EmbeddingCollection(
        tables=[EmbeddingConfig(name=name, num_embeddings=rows, embedding_dim=cols, feature_names=[f"f_{name}"]) for name, rows, cols in tables]
    )


def _configs(collection):
    return collection.embedding_configs() if isinstance(collection, EmbeddingCollection) else collection.embedding_bag_configs()


class Model(nn.Module):
    """Collections by name and a dense layer on what they give. Its output is the loss, a mean over samples."""

    def __init__(self, **collections):
        super().__init__()
        self.sparse = nn.ModuleDict(collections)
        # Attributes of sharded modules differ, so what batches need is noted here.
        self.features = {name: [(f, c.num_embeddings, c.embedding_dim) for c in _configs(part) for f in c.feature_names] for name, part in collections.items()}
        self.weighted = {name: isinstance(part, EmbeddingBagCollection) and part.is_weighted() for name, part in collections.items()}
        self.unpooled = {name for name, part in collections.items() if isinstance(part, EmbeddingCollection)}
        self.over = nn.Linear(sum(dim for features in self.features.values() for _, _, dim in features), 1)

    def forward(self, batch):
        parts = []
        for name, collection in self.sparse.items():
            found = collection(batch[name])
            for feature, _, _ in self.features[name]:
                values = found[feature]
                if name in self.unpooled:  # of each sample the sum, its ids told apart by their place
                    jagged = values
                    places = torch.cat([torch.arange(1, int(length) + 1) for length in jagged.lengths()]).unsqueeze(1)
                    samples = torch.repeat_interleave(torch.arange(len(jagged.lengths())), jagged.lengths().long())
                    values = torch.zeros(len(jagged.lengths()), jagged.values().shape[1]).index_add(0, samples, jagged.values() / places)
                parts.append(values)
        return ((self.over(torch.cat(parts, dim=1)) - 1.0) ** 2).mean()

    def random_batch(self, samples, seed):
        """{collection: KeyedJaggedTensor}: 0 to 4 ids a sample and feature, some of them often."""
        generator = torch.Generator().manual_seed(seed)
        batch = {}
        for name, features in self.features.items():
            lengths = torch.randint(0, 5, (len(features) * samples,), generator=generator)
            counts = lengths.view(len(features), samples).sum(1).tolist()
            ids = [(torch.rand(count, generator=generator) ** 3 * rows).long() for count, (_, rows, _) in zip(counts, features)]
            weights = torch.rand(int(lengths.sum()), generator=generator) if self.weighted[name] else None
            batch[name] = KeyedJaggedTensor(keys=[feature for feature, _, _ in features], values=torch.cat(ids), lengths=lengths, weights=weights)
        return batch

    def join(self, batches):
        """The global batch of local ones."""
        return {name: join_jagged([batch[name] for batch in batches]) for name in batches[0]}


class Dlrm(DLRMTrain):
    """TorchRec's DLRM on its random data."""

    def __init__(self, tables=6, dim=16):
        self.rows = [100 * (index + 1) for index in range(tables)]
        super().__init__(
            DLRM(
                embedding_bag_collection=bags(*((f"t{index}", rows, dim) for index, rows in enumerate(self.rows))),
                dense_in_features=4, dense_arch_layer_sizes=[8, dim], over_arch_layer_sizes=[8, 1],
            )
        )

    def forward(self, batch):
        return super().forward(batch)[0]

    def random_batch(self, samples, seed):
        return next(iter(RandomRecDataset(
            keys=[f"f_t{index}" for index in range(len(self.rows))], batch_size=samples, hash_sizes=self.rows, ids_per_feature=3, num_dense=4,
            manual_seed=seed, num_batches=1, num_generated_batches=1,
        )))

    def join(self, batches):
        return Batch(
            torch.cat([batch.dense_features for batch in batches]), join_jagged([batch.sparse_features for batch in batches]),
            torch.cat([batch.labels for batch in batches]),
        )


def join_jagged(batches):
    parts = [batch.to_dict() for batch in batches]
    keys = batches[0].keys()
    weighted = batches[0].weights_or_none() is not None
    return KeyedJaggedTensor(
        keys=keys,
        values=torch.cat([part[key].values() for key in keys for part in parts]),
        lengths=torch.cat([part[key].lengths() for key in keys for part in parts]),
        weights=torch.cat([part[key].weights() for key in keys for part in parts]) if weighted else None,
    )


def make_optimizers(named_parameters, optimizer):
    """Tables have `optimizer` where the backward pass does not train them already, the dense layer SGD."""
    kind, arguments = OPTIMIZERS[optimizer]
    tables, dense = [], []
    for name, parameter in named_parameters:
        (tables if ".embedding" in name else dense).append(parameter)
    return [torch.optim.SGD(dense, lr=0.1)] + ([kind(tables, **arguments)] if tables else [])


def backward_and_step(loss, optimizers):
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


class WholeTraining:
    """The unsharded model on global batches: what is right."""

    def __init__(self, model, optimizer):
        self.model = model
        self._optimizers = make_optimizers(model.named_parameters(), optimizer)

    def step(self, batch):
        loss = self.model(batch)
        backward_and_step(loss, self._optimizers)
        return float(loss.detach())


def state_pieces(state):
    """(key, tensor of this rank, slices of the whole tensor) of a sharded state_dict."""
    for key, value in state.items():
        if isinstance(value, ShardedTensor):
            for shard in value.local_shards():
                at = zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes)
                yield key, shard.tensor, tuple(slice(offset, offset + size) for offset, size in at)
        elif isinstance(value, torch.Tensor):
            yield key, value, ()


class ShardedTraining:
    """`model` under DistributedModelParallel with a plan, its tables trained in the backward pass; starts from `weights` (a state_dict)."""

    def __init__(self, model, plan, optimizer, weights, sharders=None):
        kind, arguments = OPTIMIZERS[optimizer]
        apply_optimizer_in_backward(kind, [p for name, p in model.named_parameters() if ".embedding" in name], dict(arguments))
        self.plan = plan
        self.model = DistributedModelParallel(model, plan=plan, sharders=SHARDERS if sharders is None else sharders, device=torch.device("cpu"))
        self._optimizers = make_optimizers(in_backward_optimizer_filter(self.model.named_parameters()), optimizer)
        with torch.no_grad():
            for key, piece, part in state_pieces(self.model.state_dict()):
                piece.copy_(weights[key][part])

    def step(self, batch):
        loss = self.model(batch)
        backward_and_step(loss, self._optimizers)
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()

    def reshard(self, delta, plan, optimizer):
        """Goes on with `plan`, without being made anew; `delta` is what changes, by module (neuroshard.torchrec.reshard_delta)."""
        for path, change in delta.items():
            self.model.reshard({path: change}, path)
        self.plan = plan
        self._optimizers = make_optimizers(in_backward_optimizer_filter(self.model.named_parameters()), optimizer)

    def whole_weights(self):
        """The state_dict of the unsharded model, gathered from all ranks."""
        pieces = [(key, piece.clone(), part) for key, piece, part in state_pieces(self.model.state_dict())]
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, pieces)
        whole = {}
        for key, value in self.model.state_dict().items():
            whole[key] = torch.full(tuple(value.shape), float("nan"), dtype=value.dtype)
        for rank in gathered:
            for key, piece, part in rank:
                whole[key][part] = piece
        return whole

    def placed(self):
        """{state_dict key: [(offsets, sizes, rank)]} of the sharded tables, as they are and not as they were planned; "whole" for the others."""
        found = {}
        for key, value in self.model.state_dict().items():
            if isinstance(value, ShardedTensor):
                found[key] = sorted((list(m.shard_offsets), list(m.shard_sizes), m.placement.rank()) for m in value.metadata().shards_metadata)
            else:
                found[key] = "whole"
        return found


def local_batches(model, step):
    return [model.random_batch(LOCAL_BATCH, 1000 * step + rank) for rank in range(dist.get_world_size())]


def assert_close(found, expected, what, tolerance):
    worst = float((found.double() - expected.double()).abs().max()) if found.numel() else 0.0
    if not worst <= tolerance:  # NaN too
        raise AssertionError(f"{what}: {worst} away from the unsharded model's, of {tolerance}")


def train_both(whole, sharded, steps, tolerance):
    """Trains both on the same batches; AssertionError where losses or any weight differ by more."""
    rank = dist.get_rank()
    for step in steps:
        batches = local_batches(whole.model, step)
        expected, found = whole.step(whole.model.join(batches)), sharded.step(batches[rank])
        assert_close(torch.tensor(found), torch.tensor(expected), f"loss of step {step}", tolerance)
    expected = whole.model.state_dict()
    found = sharded.whole_weights()
    assert set(found) == set(expected), (set(found), set(expected))
    for key in expected:
        assert found[key].dtype == expected[key].dtype, (key, found[key].dtype, expected[key].dtype)
        assert_close(found[key], expected[key], key, tolerance)


def copies(make, seed=7):
    """Two models with the same weights."""
    torch.manual_seed(seed)
    model = make()
    return model, copy.deepcopy(model)
