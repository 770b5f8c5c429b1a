#!/usr/bin/env python3
"""Our formula for the distribution of ids (server/cost/README.md) beside TorchRec's own, run on CPU ranks over Gloo.

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/python bench/pytorch/input_dist.py --bin build/release/bin

A rank is a process on this machine. Each case is a batch of random ids: tables held whole (features are put in the order of ranks, then
`TwSparseFeaturesDist`) or cut in rows (`RwSparseFeaturesDist`, which bucketizes), one feature each, some weighted. The time is from a rank's
own start, after a barrier, until its KeyedJaggedTensor is whole: the median over the iterations on the slowest rank. The formula's is
`RankCost.input_dist_ms` of a planner, at bandwidths that are measured here: a copy of a large tensor, a large all-to-all.

The formula knows no fixed time. So the error is also given of `a + b x formula`, with a and b from every second case and the error of the others.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    from torchrec.distributed.sharding.rw_sharding import RwSparseFeaturesDist
    from torchrec.distributed.sharding.tw_sharding import TwSparseFeaturesDist
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
except ImportError as fault:
    sys.exit(f"{fault}; run bench/pytorch/setup_environment.sh and the Python that it names")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from rank_timing import median_seconds  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

ROWS = 1_000_000  # of a table
COPY_BYTES = 64 << 20


def random_case(rng, ranks, cut):
    return {
        "cut": cut,
        "batch": ranks * rng.choice((256, 512, 1024, 2048)),
        "features": [rng.choice((1, 2, 5, 10, 20, 40)) for _ in range(rng.choice((4, 8, 16, 32)))],  # mean ids a sample
        "weighted": rng.random() < 0.25,
        "seed": rng.randrange(1 << 30),
    }


def holders(case, ranks):
    """Of whole tables, features by rank in turn."""
    return [list(range(rank, len(case["features"]), ranks)) for rank in range(ranks)]


def distribution(case, rank, ranks):
    """A call that distributes the rank's part of the batch."""
    torch.manual_seed(case["seed"] + rank)
    samples = case["batch"] // ranks
    lengths = torch.cat([torch.poisson(torch.full((samples,), float(mean))).long() for mean in case["features"]])
    ids = torch.randint(ROWS, (int(lengths.sum()),))
    weights = torch.rand(len(ids)) if case["weighted"] else None
    features = KeyedJaggedTensor([f"f{i}" for i in range(len(case["features"]))], ids, lengths=lengths, weights=weights)
    features.sync()
    if case["cut"]:
        cut = RwSparseFeaturesDist(dist.group.WORLD, len(case["features"]), [ROWS] * len(case["features"]), device=torch.device("cpu"))
        return lambda: cut(fresh(features)).wait().wait()
    by_rank = holders(case, ranks)
    order = [feature for of_rank in by_rank for feature in of_rank]
    whole = TwSparseFeaturesDist(dist.group.WORLD, [len(of_rank) for of_rank in by_rank])
    return lambda: whole(fresh(features).permute(order)).wait().wait()


def fresh(features):
    """Without what it has computed and kept, as a batch from a loader is."""
    return KeyedJaggedTensor(features.keys(), features.values(), lengths=features.lengths(), weights=features.weights_or_none())


def run_rank(rank, ranks, store, pipe):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    tensor = torch.rand(COPY_BYTES // 4)
    into = torch.empty_like(tensor)
    pipe.send((2 * COPY_BYTES / median_seconds(lambda: into.copy_(tensor), 20),
               COPY_BYTES * (ranks - 1) / ranks / median_seconds(lambda: dist.all_to_all_single(into, tensor), 20)))
    while (job := pipe.recv()) is not None:
        case, iterations = job
        pipe.send(1e3 * median_seconds(distribution(case, rank, ranks), iterations))
    dist.destroy_process_group()


def ask_formula(options, planner, folder, case, ranks, bandwidths):
    """ms of the slowest rank."""
    def of_table(i):
        if case["cut"]:
            return [{"rank": r, "rows": ROWS // ranks, "cols": 16, "row_offset": r * (ROWS // ranks)} for r in range(ranks)]
        return [{"rank": i % ranks, "rows": ROWS, "cols": 16}]

    tables = [{"name": f"t{i}", "num_embeddings": ROWS, "embedding_dim": 16, "pooling_factor": mean, "weighted": case["weighted"]}
              for i, mean in enumerate(case["features"])]
    plan = [{"name": f"t{i}", "sharding_type": "row_wise" if case["cut"] else "table_wise", "compute_kernel": "fused", "shards": of_table(i)}
            for i in range(len(tables))]
    files = []
    for name, content in (
        ("request", {"tables": tables, "global_batch_size": case["batch"], "pipeline_type": "none",
                     "topology": {"hosts": [{"num_devices": ranks, "memory_bytes": 64 << 30}], "bandwidths": bandwidths}}),
        ("plan", {"world_size": ranks, "local_world_size": ranks, "tables": plan}),
    ):
        files.append(folder / f"{name}.json")
        files[-1].write_text(json.dumps(content))
    command = [options.bin / "neuroshard", "evaluate", *files, "--planner", planner.address, "--model", options.model, "--format", "json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return max(rank["input_dist_ms"] for rank in json.loads(done.stdout)["cost"]["ranks"])


def errors(pairs):
    """Mean absolute percentage error, and the median of formula / measured, of (formula, measured)."""
    return 100 * statistics.mean(abs(said / ms - 1) for said, ms in pairs), statistics.median(said / ms for said, ms in pairs)


def fitted(pairs):
    """a and b of a + b x formula, by least relative squares; neither is negative."""
    rows = torch.tensor([[1 / ms, said / ms] for said, ms in pairs], dtype=torch.float64)
    a, b = torch.linalg.lstsq(rows, torch.ones(len(pairs), 1, dtype=torch.float64)).solution.flatten().tolist()
    return (a, b) if a >= 0 else (0.0, float(rows[:, 1].sum() / rows[:, 1].square().sum()))


def right_order(pairs):
    """Share of pairs of cases that the formula puts in the order measured."""
    of = [(a[0] < b[0]) == (a[1] < b[1]) for i, a in enumerate(pairs) for b in pairs[:i]]
    return statistics.mean(of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--model", default="cpu-amd-epyc")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cases", type=int, default=40, help="of whole tables, and as many of cut ones")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    rng = random.Random(options.seed)
    cases = [random_case(rng, options.ranks, cut) for cut in (False, True) for _ in range(options.cases)]
    models = pathlib.Path(__file__).resolve().parent.parent.parent / "configs/models"
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pipes, processes = [], []
        for rank in range(options.ranks):
            here, there = context.Pipe()
            processes.append(context.Process(target=run_rank, args=(rank, options.ranks, folder / "store", there), daemon=True))
            processes[-1].start()
            pipes.append(here)
        measured = [pipe.recv() for pipe in pipes]
        bandwidths = {"device_memory_bytes_per_s": min(m[0] for m in measured), "intra_host_bytes_per_s": min(m[1] for m in measured)}
        with PlannerProcess(options.bin, folder, models) as planner:
            for case in cases:
                case["formula_ms"] = ask_formula(options, planner, folder, case, options.ranks, bandwidths)
                for pipe in pipes:
                    pipe.send((case, options.iterations))
                case["measured_ms"] = max(pipe.recv() for pipe in pipes)
        for pipe, process in zip(pipes, processes):
            pipe.send(None)
            process.join()

    print(f"TorchRec's distribution of ids on {options.ranks} CPU ranks over Gloo, torch {torch.__version__}, {os.cpu_count()} cores; memory "
          f"{bandwidths['device_memory_bytes_per_s'] / 1e9:.1f} GB/s, all-to-all {bandwidths['intra_host_bytes_per_s'] / 1e9:.2f} GB/s.\n")
    print("| tables | cases | measured, ms | formula / measured: median | its MAPE | pairs of cases in the right order | a + b x formula | MAPE of the other cases |")
    print("|---|---|---|---|---|---|---|---|")
    for cut in (False, True):
        pairs = [(case["formula_ms"], case["measured_ms"]) for case in cases if case["cut"] == cut]
        mape, ratio = errors(pairs)
        a, b = fitted(pairs[::2])
        held_out, _ = errors([(a + b * said, ms) for said, ms in pairs[1::2]])
        times = [ms for _, ms in pairs]
        print(f"| {'cut in rows' if cut else 'whole'} | {len(pairs)} | {min(times):.2f} to {max(times):.2f} | {ratio:.2f} | {mape:.0f} % | {100 * right_order(pairs):.0f} % | "
              f"{a:.2f} ms + {b:.2f} x | {held_out:.0f} % |")
    if options.json:
        options.json.write_text(json.dumps({"ranks": options.ranks, "torch": torch.__version__, "bandwidths": bandwidths, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
