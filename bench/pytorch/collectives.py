#!/usr/bin/env python3
"""Our collectives between CPU ranks beside torch.distributed's over Gloo, which a PyTorch trainer on CPUs runs, on the calls that TorchRec makes.

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/python bench/pytorch/collectives.py --bin build/release/bin

A rank is a process on this machine. Ours are workers, and the times are what `neuroshard validate` reports of a plan that has every collective
of the size; theirs are processes of torch.distributed. Both times are from a rank's own start, after a barrier, to its own completion: the
median over the iterations on the slowest rank. Sizes are measured in rounds, ours and theirs in turn; a result is the median over the rounds.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
    import torch.distributed as dist
except ImportError as fault:
    sys.exit(f"{fault}; run bench/pytorch/setup_environment.sh and the Python that it names")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from rank_timing import median_seconds  # noqa: E402
from server_process import ServerProcess  # noqa: E402

COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
SIZES = ((1024, 16), (1024, 256), (1024, 2048), (4096, 2048))  # samples of the batch, columns of a rank: 64 KiB to 32 MiB of fp32


def size_text(batch, columns):
    size = batch * columns * 4
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


# Theirs.


def exchange(collective, batch, columns, ranks, new_output):
    """What TorchRec 1.9 issues for whole tables, cut rows and replicas (distributed/comm_ops.py and DDP)."""
    whole = torch.rand(batch * columns)
    block = torch.rand(batch * columns // ranks)
    kept = {len(tensor): torch.zeros_like(tensor) for tensor in (whole, block)}

    def output_like(tensor):
        return torch.empty_like(tensor) if new_output else kept[len(tensor)]

    if collective == "all_to_all":
        parts = [len(whole) // ranks] * ranks
        return lambda: dist.all_to_all_single(output_like(whole), whole, parts, parts, async_op=True).wait()
    if collective == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(output_like(block), whole, async_op=True).wait()
    if collective == "all_gather":
        return lambda: dist.all_gather_into_tensor(output_like(whole), block, async_op=True).wait()
    return lambda: dist.all_reduce(whole, async_op=True).wait()


def torch_rank(rank, ranks, store, pipe):
    warnings.simplefilter("ignore", FutureWarning)  # of the calls that TorchRec makes
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    while (job := pipe.recv()) is not None:
        collective, batch, columns, new_output, iterations = job
        pipe.send(1e3 * median_seconds(exchange(collective, batch, columns, ranks, new_output), iterations))
    dist.destroy_process_group()


class TorchRanks:
    def __init__(self, ranks, folder):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            here, there = context.Pipe()
            process = context.Process(target=torch_rank, args=(rank, ranks, folder / f"store-{ranks}", there), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()

    def slowest_ms(self, collective, batch, columns, new_output):
        iterations = 10 if batch * columns >= 1 << 21 else 30
        for pipe in self.pipes:
            pipe.send((collective, batch, columns, new_output, iterations))
        return max(pipe.recv() for pipe in self.pipes)


# Ours.


def plan_of(batch, columns, ranks):
    """A request, and a plan of it whose collectives all have `columns` columns of the batch on each rank."""

    def shard(rank, rows, **offsets):
        return {"rank": rank, "rows": rows, "cols": columns, **offsets}

    tables = [{"name": f"whole_{r}", "num_embeddings": 16, "embedding_dim": columns} for r in range(ranks)]
    plans = [{"name": t["name"], "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [shard(r, 16)]} for r, t in enumerate(tables)]
    tables += [{"name": "cut", "num_embeddings": 16 * ranks, "embedding_dim": columns}]
    plans += [{"name": "cut", "sharding_type": "row_wise", "compute_kernel": "fused",
               "shards": [shard(r, 16, row_offset=16 * r) for r in range(ranks)]}]
    tables += [{"name": "replica", "num_embeddings": batch, "embedding_dim": columns}]
    plans += [{"name": "replica", "sharding_type": "data_parallel", "compute_kernel": "dense", "shards": [shard(r, batch) for r in range(ranks)]}]
    request = {"tables": tables, "global_batch_size": batch,
               "topology": {"hosts": [{"num_devices": ranks, "memory_bytes": 4 << 30}]}}
    return request, {"world_size": ranks, "local_world_size": ranks, "tables": plans}


class OurRanks:
    def __init__(self, binaries, folder, ranks):
        self.binaries, self.folder, self.ranks = binaries, folder, ranks

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(ServerProcess(self.binaries / "neuroshard-worker", self.folder, "--cpu-devices", 1))
                       for _ in range(self.ranks)]
            self.workers = ",".join(worker.address for worker in workers)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def slowest_ms(self, batch, columns):
        """By collective, and what the workers say they ran."""
        files = []
        for name, content in zip(("request", "plan"), plan_of(batch, columns, self.ranks)):
            files.append(self.folder / f"{name}.json")
            files[-1].write_text(json.dumps(content))
        command = [self.binaries / "neuroshard", "validate", *files, "--workers", self.workers, "--max-time-ms", "150", "--format", "json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        report = json.loads(done.stdout)
        # The all-to-all of the forward stage is entered with the lookups' skew.
        return {c["collective"]: max(c["measured_ms"]) for c in report["collectives"]
                if (c["collective"], c["direction"]) != ("all_to_all", "forward")}, report["measured_with"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    results, measured_with = [], None
    for ranks in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with OurRanks(options.bin, folder, ranks) as ours, TorchRanks(ranks, folder) as theirs:
                for batch, columns in SIZES:
                    times = {collective: {"ours": [], "torch": [], "torch_kept": []} for collective in COLLECTIVES}
                    for _ in range(options.rounds):
                        round_of_ours, measured_with = ours.slowest_ms(batch, columns)
                        for collective in COLLECTIVES:
                            times[collective]["ours"].append(round_of_ours[collective])
                            times[collective]["torch"].append(theirs.slowest_ms(collective, batch, columns, True))
                            times[collective]["torch_kept"].append(theirs.slowest_ms(collective, batch, columns, False))
                    results += [{"ranks": ranks, "batch_size": batch, "columns": columns, "collective": collective, "times_ms": times[collective]}
                                for collective in COLLECTIVES]
                    print(f"{ranks} ranks, {size_text(batch, columns)}: done", file=sys.stderr, flush=True)

    print(f"`{measured_with['collective_backend']}` beside torch.distributed {torch.__version__} over Gloo, a process a rank, {os.cpu_count()} cores, fp32. "
          f"Median of {options.rounds} rounds")
    print("in ms with lowest and highest; `x` is torch's time to ours, in brackets with an output tensor that is kept, as our buffers are; TorchRec makes "
          "a new one\nevery time. Bytes are those of a rank: sent and kept by an all-to-all, the input of a reduce-scatter and of an all-reduce, the output "
          "of an all-gather.\n")
    print("| ranks | collective | bytes | ours | torch | x |")
    print("|---|---|---|---|---|---|")
    ratios = {collective: [] for collective in COLLECTIVES}
    for result in results:
        ours, theirs, kept = (result["times_ms"][who] for who in ("ours", "torch", "torch_kept"))
        ratio, ratio_kept = (statistics.median(times) / statistics.median(ours) for times in (theirs, kept))
        ratios[result["collective"]].append(ratio)
        cells = [f"{statistics.median(t):.3f} ({min(t):.3f} to {max(t):.3f})" for t in (ours, theirs)]
        print(f"| {result['ranks']} | {result['collective']} | {size_text(result['batch_size'], result['columns'])} | {' | '.join(cells)} | {ratio:.1f} ({ratio_kept:.1f}) |")
    print("\ntorch's time to ours: " + ", ".join(f"{collective} {min(r):.1f} to {max(r):.1f}" for collective, r in ratios.items()) + ".")
    if options.json:
        options.json.write_text(json.dumps({"measured_with": measured_with, "torch": torch.__version__, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
