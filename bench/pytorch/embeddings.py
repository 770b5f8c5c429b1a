#!/usr/bin/env python3
"""Our CPU embedding kernels beside FBGEMM's, which a PyTorch trainer on CPUs runs: lookups of tables together (forward), and backward with
the fused exact optimizer.

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/python bench/pytorch/embeddings.py --bin build/release/bin

Both work on the same weights, ids and gradient of the output, pass by pass in turn, on one and the same core with one thread each; what they
pool is compared before the first and after the last update. A time is the median over the passes, once with caches flushed before each pass,
as a worker measures, and once without. FBGEMM is called as TorchRec's fused kernel calls it, with its defaults.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CORE = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})  # before torch counts the cores

try:
    import numpy
    import torch
    import fbgemm_gpu
    from neuroshard.worker.fbgemm_lookup import EPSILON, LEARNING_RATE, FbgemmLookup
    from neuroshard.worker.lookups import LookupBatch
except ImportError as fault:
    sys.exit(f"{fault}; run bench/pytorch/setup_environment.sh, then the pip that it made with `install ./client/python[torchrec]`, and its Python")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import ROOT  # noqa: E402

TABLE_BYTES = 256 << 20
OPTIMIZERS = ("sgd", "rowwise_adagrad")
FLUSHED, WARM = "flushed", "not flushed"


def one_table(dim, zipf):
    name = f"1 table of {TABLE_BYTES >> 20} MiB, dim {dim}, " + (f"Zipf {zipf}" if zipf else "uniform")
    return name, 4096, [{"rows": TABLE_BYTES // 4 // dim, "cols": dim, "pooling_factor": 20, "zipf": zipf}]


def trace_tables(batch_size):
    """Twelve tables of the DLRM 2021 trace with its pooling factors and reuse, dims 4 to 128 by turns; none over TABLE_BYTES at dim 128."""
    with open(ROOT / "configs/workloads/dlrm_2021_tables856.csv") as file:
        rows = [row for row in csv.DictReader(file) if int(row["row"]) * 128 * 4 <= TABLE_BYTES]
    rows = rows[:: len(rows) // 12][:12]
    return f"12 tables of the DLRM 2021 trace, dims 4 to 128, batch {batch_size}", batch_size, [
        {"rows": int(row["row"]), "cols": (4, 8, 16, 32, 64, 128)[i % 6], "pooling_factor": float(row["pooling_factor"]),
         "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)]}
        for i, row in enumerate(rows)
    ]


class Ours:
    """bench/embedding_steps.cc, on this process's core."""

    def __init__(self, binary, case):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = json.loads(self.ask(json.dumps(case)))

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"embedding_steps ended, exit status {self.process.wait()}")
        return answer

    def ms(self, step):
        return float(self.ask(step))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Fbgemm:
    """What neuroshard.worker times, on the case's weights, ids and gradient."""

    def __init__(self, case, flush_bytes):
        folder, tables = pathlib.Path(case["folder"]), case["tables"]
        self.lookup = FbgemmLookup([(t["rows"], t["cols"]) for t in tables], case["optimizer"], "fp32", "sum", torch.device("cpu"))
        for t, weights in enumerate(self.lookup.weights):
            weights.copy_(torch.from_numpy(numpy.fromfile(folder / f"weights.{t}", numpy.float32)).view(weights.shape))
        self.lookup.set_inputs([LookupBatch(numpy.fromfile(folder / f"ids.{t}", numpy.int64), numpy.fromfile(folder / f"offsets.{t}", numpy.int64), None)
                                for t in range(len(tables))])
        gradient = numpy.fromfile(folder / "gradient", numpy.float32)
        self.gradient = torch.from_numpy(gradient).view(case["batch_size"], -1)
        self.to_flush = torch.ones(flush_bytes // 8, dtype=torch.int64)

    def ms(self, step):
        begin = time.perf_counter()
        if step == "forward":
            self.lookup.forward()
        else:
            self.lookup.backward(self.gradient)
        return 1e3 * (time.perf_counter() - begin)

    def flush(self):
        self.to_flush.sum()


def largest_error(ours, theirs, folder):
    """Of the pooled values, relative to the largest of them."""
    ours.ask("output")
    expected = theirs.lookup.pooled.detach().numpy()
    output = numpy.fromfile(folder / "output", numpy.float32).reshape(expected.shape)
    return float(numpy.abs(output - expected).max() / numpy.abs(expected).max())


def measure(binary, case, seconds):
    """What the passes took, and how far the pooled values are apart: at first, and at last."""
    with tempfile.TemporaryDirectory() as name:
        case = {**case, "folder": name, "learning_rate": LEARNING_RATE, "epsilon": EPSILON}
        ours = Ours(binary, case)
        theirs = Fbgemm(case, min(2 * ours.about["last_level_cache_bytes"], 128 << 20))
        times = {caches: {step: {"ours": [], "fbgemm": []} for step in ("forward", "backward")} for caches in (FLUSHED, WARM)}
        ours.ms("forward"), theirs.ms("forward")
        errors = [largest_error(ours, theirs, pathlib.Path(name))]
        for caches in (FLUSHED, WARM):
            until, passes = time.monotonic() + seconds, -2  # two to warm up
            while passes < 5 or time.monotonic() < until:
                for step in ("forward", "backward"):
                    order = ("ours", "fbgemm") if passes % 2 == 0 else ("fbgemm", "ours")
                    for who in order:
                        if caches == FLUSHED:
                            ours.ms("flush") if who == "ours" else theirs.flush()
                        ms = (ours if who == "ours" else theirs).ms(step)
                        if passes >= 0:
                            times[caches][step][who].append(ms)
                passes += 1
        ours.ms("forward"), theirs.ms("forward")
        errors.append(largest_error(ours, theirs, pathlib.Path(name)))
        ours.close()
        for steps in times.values():
            for both in steps.values():
                both.update({who: summary(ms) for who, ms in both.items()})
        return times, errors, ours.about


def summary(ms):
    deciles = statistics.quantiles(ms, n=10)
    return {"passes": len(ms), "median_ms": statistics.median(ms), "p10_ms": deciles[0], "p90_ms": deciles[8]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=1.2, help="for each case, with caches flushed and again without")
    parser.add_argument("--dims", default="4,16,64,128")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    cases = [one_table(int(dim), zipf) for dim in options.dims.split(",") for zipf in (0, 1.05)]
    cases += [trace_tables(1024), trace_tables(4096)]

    results = []
    for name, batch_size, tables in cases:
        for optimizer in OPTIMIZERS:
            case = {"batch_size": batch_size, "optimizer": optimizer, "tables": tables}
            times, errors, about = measure(options.bin / "embedding_steps", case, options.seconds)
            if not max(errors) < 1e-3:  # nor NaN
                raise SystemExit(f"{name}, {optimizer}: pooled values are {errors} apart, relative to the largest")
            results.append({"case": name, "batch_size": batch_size, "optimizer": optimizer, "errors": errors,
                            "ours": about["backend"], "instruction_set": about["instruction_set"], "times": times})
            print(f"{name}, {optimizer}: {times[FLUSHED]['forward']['ours']['passes']} passes", file=sys.stderr, flush=True)

    print(f"`{results[0]['ours']}` ({results[0]['instruction_set']}) beside FBGEMM {fbgemm_gpu.__version__} "
          f"(torch {torch.__version__}), one thread each on the same core, fp32, pooling 20 a table but for the trace, batch 4,096 unless named.")
    print("Medians in ms, caches flushed before each pass; `x` is FBGEMM's time to ours, in brackets without flushing. Spread: the widest (p90 - p10) / median "
          "of the four medians.\n")
    print("| case | optimizer | forward: ours | FBGEMM | x | backward: ours | FBGEMM | x | spread |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios = {"forward": [], "backward": []}
    for result in results:
        cells, widest = [], 0
        for step in ("forward", "backward"):
            ratio = []
            for caches in (FLUSHED, WARM):
                of = result["times"][caches][step]
                ours, fbgemm = (of[who]["median_ms"] for who in ("ours", "fbgemm"))
                ratio.append(fbgemm / ours)
                if caches == FLUSHED:
                    cells += [f"{ours:.3f}", f"{fbgemm:.3f}"]
                    widest = max([widest, *((t["p90_ms"] - t["p10_ms"]) / t["median_ms"] for t in of.values())])
            cells.append(f"{ratio[0]:.1f} ({ratio[1]:.1f})")
            ratios[step].append(ratio[0])
        print(f"| {result['case']} | {result['optimizer']} | {' | '.join(cells)} | {100 * widest:.0f} % |")
    print("\nFBGEMM's time to ours, caches flushed: " + ", ".join(f"{step} {min(r):.1f} to {max(r):.1f}" for step, r in ratios.items()) + ". "
          f"Pooled values differ by at most {max(r['errors'][0] for r in results):.1e} of the largest before the first update and "
          f"{max(r['errors'][1] for r in results):.1e} after the last.")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
