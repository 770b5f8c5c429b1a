#!/usr/bin/env python3
"""The embedding part of a TorchRec trainer's steps beside what a plan's prediction says of it.

    bench/pytorch/dmp_steps.py REQUEST.json PLAN.json      PLAN: neuroshard plan --format json

An EmbeddingBagCollection with the request's tables trains under DistributedModelParallel over Gloo, a process a rank on this machine, sharded
as the plan says, on ids with the tables' pooling factors and reuse histograms. Of a step two parts are timed, each after a barrier, to this
rank's own completion: lookups with the exchange of pooled vectors, once the ids are where they are looked up; and backward, with the exchange
of gradients and the fused update. The exchange of ids, the dense model and the optimizer of dense parameters are not: no prediction is about them.
A rank's time is the median of the steps of the sum; the plan's is the slowest rank's, as its predicted cost is. Caches are as the steps leave them.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import numpy
    import torch
    import torch.distributed as dist
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, row_wise, table_wise
    from torchrec.distributed.types import ShardingPlan, ShardingType
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
except ImportError as fault:
    sys.exit(f"{fault}; run bench/pytorch/setup_environment.sh and the Python that it names")
from neuroshard.worker.lookups import make_lookups

OPTIMIZERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rowwise_adagrad": RowWiseAdagrad}
WARMUP, BATCHES = 3, 4


class AnyTypeSharder(EmbeddingBagCollectionSharder):
    """TorchRec's sharder offers no row_wise for CPUs, though what it makes runs there."""

    def sharding_types(self, compute_device_type):
        return [each.value for each in ShardingType]


def sharding_of(table):
    ranks = [shard["rank"] for shard in table["shards"]]
    if table["sharding_type"] == "table_wise":
        return table_wise(rank=ranks[0])
    if table["sharding_type"] == "column_wise":
        return column_wise(ranks=ranks)
    if table["sharding_type"] == "row_wise":
        return row_wise()
    raise SystemExit(f"{table['name']}: {table['sharding_type']} is not run here")


def batch_of(tables, samples, rank, number):
    """This rank's share of the batch: ids of samples drawn as the whole batch's are."""
    features = [make_lookups(int(t["num_embeddings"]), samples, t["pooling_factor"], False, 1000 * number + 10 * i + rank, t["reuse_histogram"])
                for i, t in enumerate(tables)]
    return KeyedJaggedTensor(
        keys=[t["name"] for t in tables],
        values=torch.from_numpy(numpy.concatenate([feature.ids for feature in features])),
        lengths=torch.from_numpy(numpy.concatenate([numpy.diff(feature.offsets) for feature in features])),
    )


def run_rank(rank, ranks, port, request, plan, steps, results):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    tables = request["tables"]
    module = EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[EmbeddingBagConfig(name=t["name"], num_embeddings=int(t["num_embeddings"]), embedding_dim=int(t["embedding_dim"]), feature_names=[t["name"]],
                                   pooling=PoolingType.SUM) for t in tables])
    apply_optimizer_in_backward(OPTIMIZERS[request.get("optimizer", "sgd")], module.parameters(), {"lr": 0.01})
    sharding = construct_module_sharding_plan(module, {t["name"]: sharding_of(t) for t in plan["tables"]}, AnyTypeSharder(), local_size=ranks,
                                              world_size=ranks, device_type="cpu")
    model = DistributedModelParallel(module, device=torch.device("cpu"), plan=ShardingPlan({"": sharding}), sharders=[AnyTypeSharder()])
    sharded = model.module

    batches = [batch_of(tables, int(request["global_batch_size"]) // ranks, rank, number) for number in range(BATCHES)]
    gradient, times = None, []
    for step in range(WARMUP + steps):
        context = sharded.create_context()
        ids = sharded.input_dist(context, batches[step % BATCHES]).wait().wait()
        dist.barrier()
        begin = time.perf_counter()
        pooled = sharded.compute_and_output_dist(context, ids).wait().values()
        forward_ms = 1e3 * (time.perf_counter() - begin)
        if gradient is None:
            gradient = torch.rand_like(pooled) * 1e-3
        dist.barrier()
        begin = time.perf_counter()
        pooled.backward(gradient)
        if step >= WARMUP:
            times.append((forward_ms, 1e3 * (time.perf_counter() - begin)))
    results.put((rank, times))
    dist.barrier()
    dist.destroy_process_group()


def measure(request, plan, steps):
    """By rank: (forward_ms, backward_ms) of each step."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks = max(shard["rank"] for table in plan["tables"] for shard in table["shards"]) + 1
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=run_rank, args=(rank, ranks, port, request, plan, steps, results), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    times = {}
    while len(times) < ranks:
        if any(process.exitcode not in (None, 0) for process in processes):
            sys.exit("a rank ended early; it says why above")
        while not results.empty():
            times.update([results.get()])
        time.sleep(0.05)
    for process in processes:
        process.join()
    return [times[rank] for rank in range(ranks)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", type=pathlib.Path)
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    request, answer = json.loads(options.request.read_text()), json.loads(options.plan.read_text())
    times = measure(request, answer["plan"], options.steps)

    costs = answer["cost"]["ranks"]
    ranks = []
    for cost, of_rank in zip(costs, times):
        measured = {part: statistics.median(column) for part, column in zip(("forward", "backward"), zip(*of_rank))}
        measured["total"] = statistics.median(map(sum, of_rank))
        predicted = {stage: cost[f"{stage}_ms"] for stage in ("compute", "forward_comm", "backward_comm", "total")}
        ranks.append({"predicted_ms": predicted, "measured_ms": measured})
    predicted_ms, measured_ms = (max(rank[which]["total"] for rank in ranks) for which in ("predicted_ms", "measured_ms"))
    result = {"ranks": ranks, "predicted_ms": predicted_ms, "measured_ms": measured_ms, "relative_error": (predicted_ms - measured_ms) / measured_ms,
              "steps": options.steps, "torch": torch.__version__, "measured_with": answer["cost"].get("measured_with")}
    if options.format == "json":
        print(json.dumps(result))
        return
    print("| rank | predicted: compute | forward exchange | backward exchange | total | measured: forward | backward | total | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for number, rank in enumerate(ranks):
        predicted, measured = rank["predicted_ms"], rank["measured_ms"]
        cells = [f"{ms:.2f}" for ms in (*predicted.values(), *measured.values())]
        print(f"| {number} | {' | '.join(cells)} | {100 * (predicted['total'] / measured['total'] - 1):+.0f} % |")
    print(f"\nPlan: predicted {predicted_ms:.2f} ms, measured {measured_ms:.2f} ms, {100 * result['relative_error']:+.0f} %.")


if __name__ == "__main__":
    main()
