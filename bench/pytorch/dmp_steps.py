#!/usr/bin/env python3
"""The embedding part of a TorchRec trainer's steps beside what a plan's prediction says of it.

    bench/pytorch/dmp_steps.py REQUEST.json PLAN.json      PLAN: neuroshard plan --format json

A model with the request's modules (an EmbeddingBagCollection each) and a dense layer trains under DistributedModelParallel over Gloo, a process
a rank on this machine, sharded as the plan says, on ids with the tables' pooling factors and reuse histograms. neuroshard.torchrec.StepRecorder
times lookups, exchanges and the distribution of ids while the steps follow each other as in training, without barriers. A rank's time is the
median of its steps; the plan's is the slowest rank's, as its predicted cost is. The distribution of ids counts with --pipeline none alone.
"""

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import numpy
    import torch
    import torch.distributed as dist
    from google.protobuf import json_format
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
    from torchrec.datasets.utils import Batch
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.types import Topology
    from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
    from torchrec.distributed.types import ShardingType
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
except ImportError as fault:
    sys.exit(f"{fault}; run bench/pytorch/setup_environment.sh and the Python that it names")
from neuroshard import v1
from neuroshard.torchrec import StepRecord, StepRecorder, load_plan
from neuroshard.worker.lookups import make_lookups

OPTIMIZERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rowwise_adagrad": RowWiseAdagrad}
WARMUP, BATCHES = 5, 4
PIPELINES = ("none", "train_sparse_dist")


class AnyTypeSharder(EmbeddingBagCollectionSharder):
    """TorchRec's sharder offers no row_wise for CPUs, though what it makes runs there."""

    def sharding_types(self, compute_device_type):
        return [each.value for each in ShardingType]


class Model(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.sparse = torch.nn.ModuleDict()
        for module in sorted({table.get("module", "") for table in tables}):
            self.sparse[module.rpartition(".")[2]] = EmbeddingBagCollection(
                device=torch.device("meta"),
                tables=[EmbeddingBagConfig(name=t["name"], num_embeddings=int(t["num_embeddings"]), embedding_dim=int(t["embedding_dim"]),
                                           feature_names=[t["name"]], pooling=PoolingType.SUM) for t in tables if t.get("module", "") == module])
        self.over = torch.nn.Linear(sum(int(table["embedding_dim"]) for table in tables), 1)

    def forward(self, batch):
        vectors = [collection(batch.sparse_features).values() for collection in self.sparse.values()]
        loss = self.over(torch.cat(vectors, dim=1)).square().mean()
        return loss, loss.detach()


def modules_renamed(message):
    """The request or plan with modules by the names that they have in Model."""
    names = {name: f"m{number}" for number, name in enumerate(sorted({table.get("module", "") for table in message["tables"]}))}
    return {**message, "tables": [{**table, "module": f"sparse.{names[table.get('module', '')]}"} for table in message["tables"]]}


def torchrec_plan(plan):
    """What `neuroshard plan --format torchrec` prints."""
    modules = {}
    for table in plan["tables"]:
        modules.setdefault(table["module"], {})[table["name"]] = {
            "sharding_type": table["sharding_type"], "compute_kernel": table["compute_kernel"], "ranks": [shard.get("rank", 0) for shard in table["shards"]],
            "shards": [{"shard_offsets": [int(s.get("row_offset", 0)), int(s.get("col_offset", 0))], "shard_sizes": [int(s.get("rows", 0)), int(s["cols"])],
                        "placement": f"rank:{s.get('rank', 0)}/cpu"} for s in table["shards"]]}
    return {"plan": modules}


def batch_of(tables, samples, rank, number):
    """This rank's share of the batch: ids of samples drawn as the whole batch's are."""
    features = [make_lookups(int(t["num_embeddings"]), samples, t.get("pooling_factor", 0), False, 1000 * number + 10 * i + rank,
                             t.get("reuse_histogram") or [1.0] + 16 * [0.0]) for i, t in enumerate(tables)]
    ids = KeyedJaggedTensor(
        keys=[t["name"] for t in tables],
        values=torch.from_numpy(numpy.concatenate([feature.ids for feature in features])),
        lengths=torch.from_numpy(numpy.concatenate([numpy.diff(feature.offsets) for feature in features])),
    )
    return Batch(torch.empty(0), ids, torch.empty(0))


def join(rank, ranks, port):
    """This process becomes a rank of a Gloo group on this machine."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")


def sharded_model(request, plan_file, ranks):
    """Under DistributedModelParallel, and the optimizer of its dense layer."""
    model = Model(request["tables"])
    apply_optimizer_in_backward(OPTIMIZERS[request.get("optimizer", "sgd")], model.sparse.parameters(), {"lr": 0.01})
    sharding = load_plan(plan_file, model, Topology(world_size=ranks, local_world_size=ranks, compute_device="cpu"), [AnyTypeSharder()])
    model = DistributedModelParallel(model, device=torch.device("cpu"), plan=sharding, sharders=[AnyTypeSharder()])
    return model, torch.optim.SGD(model.module.over.parameters(), lr=1e-6)


def batches_of(request, ranks, rank):
    return itertools.cycle([batch_of(request["tables"], int(request["global_batch_size"]) // ranks, rank, number) for number in range(BATCHES)])


def step_of(model, dense, batches, pipeline):
    """What one call trains a batch by."""
    if pipeline == "train_sparse_dist":
        train = TrainPipelineSparseDist(model, dense, torch.device("cpu"))
        return lambda: train.progress(batches)

    def step():
        dense.zero_grad()
        model(next(batches))[0].backward()
        dense.step()

    return step


def run_rank(rank, ranks, port, request, plan_file, plan, steps, pipeline, results):
    join(rank, ranks, port)
    model, dense = sharded_model(request, plan_file, ranks)
    recorder = StepRecorder(model, warmup_steps=WARMUP, every=1)
    step = step_of(model, dense, batches_of(request, ranks, rank), pipeline)
    for _ in range(WARMUP + steps):
        step()
        recorder.step()
    record = recorder.record(json_format.ParseDict(request, v1.ShardPlanRequest()), json_format.ParseDict(plan, v1.Plan()))
    if rank == 0:
        results.put(record.to_json())
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(run_rank, request, plan, *more):
    """What rank 0 puts into the queue that run_rank(rank, ranks, port, request, plan_file, plan, *more, queue) has as its last argument, in a process a
    rank."""
    ranks = plan["world_size"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as plan_file:
        json.dump(torchrec_plan(plan), plan_file)
        plan_file.flush()
        processes = [context.Process(target=run_rank, args=(rank, ranks, port, request, plan_file.name, plan, *more, results), daemon=True)
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        while results.empty():
            if any(process.exitcode not in (None, 0) for process in processes):
                for process in processes:
                    process.kill()
                raise SystemExit("a rank ended early; it says why above")
            time.sleep(0.05)
        result = results.get()
        for process in processes:
            process.join()
    return result


def measure(request, plan, steps, pipeline="none"):
    """The StepRecord of a run of this plan. Both are mappings with the fields of the .proto."""
    request, plan = {**modules_renamed(request), "pipeline_type": pipeline}, modules_renamed(plan)
    return StepRecord.from_json(run_ranks(run_rank, request, plan, steps, pipeline))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", type=pathlib.Path)
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--pipeline", choices=PIPELINES, default="train_sparse_dist")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    request, answer = json.loads(options.request.read_text()), json.loads(options.plan.read_text())
    record = measure(request, answer["plan"], options.steps, options.pipeline)

    stages = ("forward", "backward") if options.pipeline != "none" else ("forward", "backward", "input_dist")
    ranks = []
    for cost, ms in zip(answer["cost"]["ranks"], record.ranks):
        predicted = {stage: cost[f"{stage}_ms"] for stage in ("compute", "forward_comm", "backward_comm", "total")}
        ranks.append({"predicted_ms": predicted, "measured_ms": {**{stage: ms[stage] for stage in stages}, "total": sum(ms[stage] for stage in stages)}})
    predicted_ms, measured_ms = (max(rank[which]["total"] for rank in ranks) for which in ("predicted_ms", "measured_ms"))
    result = {"ranks": ranks, "predicted_ms": predicted_ms, "measured_ms": measured_ms, "relative_error": (predicted_ms - measured_ms) / measured_ms,
              "steps": options.steps, "pipeline": options.pipeline, "torch": torch.__version__, "measured_with": answer["cost"].get("measured_with")}
    if options.format == "json":
        print(json.dumps(result))
        return
    print(f"| rank | predicted: compute | forward exchange | backward exchange | total | measured: {' | '.join(stages)} | total | error |")
    print("|---" * (7 + len(stages)) + "|")
    for number, rank in enumerate(ranks):
        predicted, measured = rank["predicted_ms"], rank["measured_ms"]
        cells = [f"{ms:.2f}" for ms in (*predicted.values(), *measured.values())]
        print(f"| {number} | {' | '.join(cells)} | {100 * (predicted['total'] / measured['total'] - 1):+.0f} % |")
    print(f"\nPlan: predicted {predicted_ms:.2f} ms, measured {measured_ms:.2f} ms, {100 * result['relative_error']:+.0f} %.")


if __name__ == "__main__":
    main()
