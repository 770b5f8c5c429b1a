#!/usr/bin/env python3
"""Peak memory of training jobs beside what `reserve_from` and the plan say of them. Runs in the environment of bench/pytorch/setup_environment.sh.

    PYTHONPATH=build/dev/client/python/package build/pytorch/bin/python bench/torchrec/reserve.py --bin build/release/bin [--ranks 1] [--models dlrm,dcn,deepfm,hstu]

Each job is DistributedModelParallel over Gloo with FBGEMM's lookups: four steps, Adam for dense parameters, SGD for tables, with no pipeline and with
TrainPipelineSparseDist. Measured: the most that PyTorch's CPU allocator had given out at once, dense parameters and batches included, on the fullest rank.
Predicted: reserve_from with its margin, and the plan's memory of that rank; on one rank, which exchanges nothing, without the reserve for exchanges and without
the plan's outputs, which are the vectors among the activations there. The tables are small, so that the dense part decides. On two ranks and more Gloo's
threads give buffers of exchanges back late, another number of them in every run. hstu is made here after the paper (three layers, sequences of at most 64);
DLRM, DCN and DeepFM are TorchRec's. Exits 1 where a prediction is below what was measured.
"""

import argparse
import logging
import os
import pathlib
import socket
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor  # noqa: E402
from torchrec.datasets.utils import Batch  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402
from torchrec.distributed.planner import Topology  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator  # noqa: E402
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator  # noqa: E402
from torchrec.distributed.sharding_plan import get_default_sharders  # noqa: E402
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist  # noqa: E402
from torchrec.distributed.types import PipelineType  # noqa: E402
from torchrec.models.deepfm import SimpleDeepFMNN  # noqa: E402
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRMTrain  # noqa: E402
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward  # noqa: E402
from torchrec.optim.optimizers import in_backward_optimizer_filter  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from neuroshard.torchrec import NeuroShardPlanner, reserve_from  # noqa: E402
from neuroshard.torchrec.measured_reservation import peak_bytes  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

logging.disable(logging.WARNING)

STEPS = 4
FEATURES, ROWS, DIM, SAMPLES = 10, 2000, 64, 2048
LENGTH, SEQUENCES = 64, 256  # of hstu


class LossOf(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        logits = self.model(batch.dense_features, batch.sparse_features).squeeze(-1)
        return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels.float()), logits


class Hstu(nn.Module):
    def __init__(self, layers=3, heads=4):
        super().__init__()
        table = EmbeddingConfig(name="t0", feature_names=["f0"], num_embeddings=ROWS, embedding_dim=DIM)
        self.tables, self.heads = EmbeddingCollection(tables=[table]), heads
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.LayerNorm(DIM), nn.Linear(DIM, DIM)]) for _ in range(layers)
        )
        self.head = nn.Linear(DIM, 1)

    def forward(self, batch):
        x = self.tables(batch.sparse_features)["f0"].to_padded_dense(LENGTH)
        earlier = torch.tril(torch.ones(LENGTH, LENGTH))
        for norm, project, norm_out, out in self.layers:
            parts = nn.functional.silu(project(norm(x))).chunk(4, -1)
            u, v, q, k = [parts[i].unflatten(-1, (self.heads, -1)).transpose(1, 2) for i in range(4)]
            attention = nn.functional.silu(q @ k.transpose(-1, -2)) * earlier / LENGTH
            x = x + out(norm_out((attention @ v).transpose(1, 2).flatten(-2)) * u.transpose(1, 2).flatten(-2))
        logits = self.head(x[:, -1]).squeeze(-1)
        return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels.float()), logits


def make_model(name):
    if name == "hstu":
        return Hstu()
    bags = EmbeddingBagCollection(
        tables=[EmbeddingBagConfig(name=f"t{i}", feature_names=[f"f{i}"], num_embeddings=ROWS, embedding_dim=DIM) for i in range(FEATURES)]
    )
    if name == "deepfm":
        return LossOf(SimpleDeepFMNN(13, bags, DIM, 16))
    dense = [512, 256, DIM]
    return DLRMTrain(DLRM(bags, 13, dense, [512, 512, 256, 1]) if name == "dlrm" else DLRM_DCN(bags, 13, dense, [1024, 1024, 512, 256, 1], 3, 128))


def samples_of(name):
    return SEQUENCES if name == "hstu" else SAMPLES


def make_batch(name, seed):
    draw = torch.Generator().manual_seed(seed)
    samples, features = samples_of(name), 1 if name == "hstu" else FEATURES
    lengths = torch.randint(*((LENGTH // 2, LENGTH + 1) if name == "hstu" else (1, 6)), (features * samples,), generator=draw)
    ids = torch.randint(0, ROWS, (int(lengths.sum()),), generator=draw)
    sparse = KeyedJaggedTensor([f"f{i}" for i in range(features)], ids, lengths=lengths)
    return Batch(torch.rand(samples, 13, generator=draw), sparse, torch.randint(0, 2, (samples,), generator=draw))


def table_parameters(module):
    return [p for each in module.modules() if isinstance(each, (EmbeddingBagCollection, EmbeddingCollection)) for p in each.parameters()]


def make_planner(address, name, pipeline, ranks):
    topology = Topology(world_size=ranks, local_world_size=ranks, compute_device="cpu")
    storage = EmbeddingStorageEstimator(topology=topology, pipeline_type=PipelineType(pipeline))
    enumerator = EmbeddingEnumerator(topology, samples_of(name), estimator=[EmbeddingPerfEstimator(topology=topology), storage])
    return NeuroShardPlanner(address, topology=topology, batch_size=samples_of(name), enumerator=enumerator, debug=False, stats=[])


def train(rank, ranks, name, pipeline, address, port, peaks):
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    batches = [make_batch(name, step * ranks + rank) for step in range(STEPS)]
    model = make_model(name)
    apply_optimizer_in_backward(torch.optim.SGD, table_parameters(model), {"lr": 0.01})
    sharders = get_default_sharders()
    plan = make_planner(address, name, pipeline, ranks).collective_plan(model, sharders, dist.GroupMember.WORLD)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profile:
        # Copies within the profile: what is made outside of it is not counted.
        sharded = DistributedModelParallel(make_dense_anew(model), device=torch.device("cpu"), plan=plan, sharders=sharders)
        optimizer = torch.optim.Adam([parameter for _, parameter in in_backward_optimizer_filter(sharded.named_parameters())])
        copies = (clone(batch) for batch in batches)
        if pipeline == "none":
            for batch in copies:
                optimizer.zero_grad()
                sharded(batch)[0].backward()
                optimizer.step()
        else:
            runner = TrainPipelineSparseDist(sharded, optimizer, torch.device("cpu"))
            for _ in range(STEPS):
                runner.progress(copies)
    peaks.put((rank, peak_bytes(profile)))
    dist.barrier()


def clone(batch):
    sparse = batch.sparse_features
    return Batch(
        batch.dense_features.clone(), KeyedJaggedTensor(list(sparse.keys()), sparse.values().clone(), lengths=sparse.lengths().clone()), batch.labels.clone()
    )


def make_dense_anew(model):
    tables = {id(p) for p in table_parameters(model)}
    for each in model.modules():
        for name, parameter in list(each._parameters.items()):
            if parameter is not None and id(parameter) not in tables:
                each._parameters[name] = nn.Parameter(parameter.detach().clone())
    return model


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard-planner")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--models", default="dlrm,dcn,deepfm,hstu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    is_enough = True
    print("| model | pipeline | reserved, MiB | plan, MiB | measured, MiB | predicted / measured |\n|" + "---|" * 6)
    with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder)) as server:
        for name in options.models.split(","):
            for pipeline in ("none", "train_sparse_dist"):
                model = make_model(name)
                reservation = reserve_from(model, make_batch(name, 0), optimizer=torch.optim.Adam, pipeline=pipeline)
                planner = make_planner(server.address, name, pipeline, options.ranks)
                planner.plan(model, get_default_sharders())
                exchanged = options.ranks > 1
                memory = [rank.memory for rank in planner.response.cost.ranks]
                planned = [of.total_bytes - of.reserve_bytes - (0 if exchanged else of.output_bytes) for of in memory]
                peaks = mp.get_context("spawn").SimpleQueue()
                mp.spawn(train, args=(options.ranks, name, pipeline, server.address, free_port(), peaks), nprocs=options.ranks)
                measured = dict(peaks.get() for _ in range(options.ranks))
                rank = max(measured, key=measured.get)
                reserved = reservation.bytes - (0 if exchanged else reservation.parts["exchanges"] * (1 + reservation.margin))
                ratio = (reserved + planned[rank]) / measured[rank]
                mib = [value / 2**20 for value in (reserved, planned[rank], measured[rank])]
                print(f"| {name} | {pipeline} | {mib[0]:.1f} | {mib[1]:.1f} | {mib[2]:.1f} | {ratio:.3f} |", flush=True)
                is_enough &= ratio >= 1
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
