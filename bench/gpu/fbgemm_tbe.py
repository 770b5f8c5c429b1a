#!/usr/bin/env python3
"""FBGEMM's table-batched embedding on the samples of a sweep, beside what our worker measured of them on the same device.

    fbgemm_tbe.py --store profile.db --json peers.json [--device cuda|cpu] [--seconds 50]

In the sweep's order, with the same tables, ids, optimizer and stopping rule: neuroshard.worker's own measurement (client/python), without its
process a sample. On a GPU a time is the device's alone, as ours is. Prints FBGEMM's time to ours and Kendall's rank correlation (tau-b), which
says whether a model of our times orders plans as a trainer's would. Needs torch, fbgemm_gpu and NumPy.
"""

import argparse
import contextlib
import gc
import json
import pathlib
import sqlite3
import statistics
import sys
import time
import types

WORKER = pathlib.Path(__file__).resolve().parents[2] / "client/python/neuroshard"
# Without the package's own __init__, which needs gRPC.
sys.modules["neuroshard"] = types.ModuleType("neuroshard")
sys.modules["neuroshard"].__path__ = [str(WORKER)]

try:
    import fbgemm_gpu
    import numpy
    import torch
except ImportError as fault:
    sys.exit(f"{fault}: FBGEMM is not here")

from gated_clock import GatedClock  # noqa: E402
from neuroshard.worker import host  # noqa: E402
from neuroshard.worker.clock import DeviceClock  # noqa: E402
from neuroshard.worker.compute import OutOfMemory, measure_compute  # noqa: E402
from neuroshard.worker.timing import Settings, percentile  # noqa: E402
from peers_file import keep  # noqa: E402

BACKENDS = {"cuda": "neuroshard-cuda", "cpu": "neuroshard-cpu"}
CPU_OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad")  # that FBGEMM has kernels for
PASSES = {"forward": ("forward",), "backward and update": ("backward",), "both": ("forward", "backward")}


def settings_of(text):
    """Of a record's property `settings`: "warmup_iterations=3 ... flush_cache=true"."""
    values = dict(pair.split("=") for pair in text.split())
    return Settings(**{name: value == "true" if isinstance(default, bool) else type(default)(value)
                       for name, default in vars(Settings()).items() if (value := values.get(name)) is not None})


def samples_of(store, backend):
    """(sample, settings, our times in ms, device), as measured one after the other; of common/store's format 3."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        shards = {row["shard_id"]: row for row in database.execute("SELECT * FROM shards")}
        rows = database.execute("SELECT * FROM compute_measurements JOIN compute_samples USING (sample) JOIN environments USING (environment_id) "
                                "WHERE outcome = 'ok' AND forward_ms > 0 ORDER BY measured_at_unix_ms, sample").fetchall()
    for row in rows:
        environment = json.loads(row["environment"])
        if environment["backend"] != backend:
            continue
        sample = types.SimpleNamespace(sample_id=row["sample_id"], batch_size=row["batch_size"], optimizer=row["optimizer"], seed=row["seed"] & (1 << 64) - 1)
        sample.kernels = row["shard_kernels"]
        sample.shards = [types.SimpleNamespace(rows=s["num_rows"], cols=s["cols"], pooling_factor=s["pooling_factor"], weighted=bool(s["weighted"]),
                                               reuse_histogram=json.loads(s["reuse_histogram"]), weight_dtype=s["weight_dtype"], pooling_mode=s["pooling_mode"])
                         for s in (shards[i] for i in json.loads(row["shard_ids"]))]
        yield sample, settings_of(environment["properties"]["settings"]), {"forward": row["forward_ms"], "backward": row["backward_ms"]}, environment["device"]


def left_out(sample, device, optimizers):
    """Why FBGEMM cannot run it, or None."""
    if optimizers and sample.optimizer not in optimizers:
        return "optimizers that were not asked for"
    if sample.kernels:
        return "tables in host memory"
    if any(shard.cols % 4 for shard in sample.shards):
        return "columns that are no multiple of 4"
    if device == "cuda" and any(shard.weight_dtype == "bf16" for shard in sample.shards):
        return "bf16 weights, which FBGEMM refuses on GPUs"
    if device == "cpu" and (sample.optimizer not in CPU_OPTIMIZERS or any(shard.weight_dtype == "bf16" for shard in sample.shards)):
        return "no kernel on CPUs"
    return None


def kendall_tau(xs, ys):
    """tau-b: 1 where both orders are the same, -1 where one is the other's reverse. NaN where one side has no order."""
    signs = [numpy.sign(numpy.subtract.outer(values, values)) for values in (xs, ys)]
    pairs = numpy.sqrt((signs[0] ** 2).sum() * (signs[1] ** 2).sum())
    return float((signs[0] * signs[1]).sum() / pairs) if pairs else float("nan")


def summary(samples):
    """By pass: FBGEMM's time to ours and the rank correlation."""
    result = {}
    for name, parts in PASSES.items():
        ours, theirs = ([sum(sample[who][part] for part in parts) for sample in samples] for who in ("ours_ms", "fbgemm_ms"))
        ratios = [b / a for a, b in zip(ours, theirs)]
        result[name] = {"median_ratio": statistics.median(ratios), "p10_ratio": percentile(ratios, 10), "p90_ratio": percentile(ratios, 90),
                        "kendall_tau": kendall_tau(ours, theirs)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, required=True, help="of a sweep by neuroshard-worker on this machine")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=tuple(BACKENDS), default="cuda")
    parser.add_argument("--seconds", type=float, default=50, help="no new sample after that")
    parser.add_argument("--optimizers", help="with commas; samples of others are left out")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    if options.device == "cuda":
        clock, memory_bytes, name = GatedClock(device), int(0.9 * torch.cuda.mem_get_info(device)[0]), torch.cuda.get_device_name(device)
    else:
        torch.set_num_threads(1)  # ours is a core
        clock, memory_bytes, name = DeviceClock(device, host.last_level_cache_bytes()), host.available_memory_bytes(), host.cpu_name()
    samples, skipped, total = [], {}, 0
    for sample, settings, ours_ms, measured_on in samples_of(options.store, BACKENDS[options.device]):
        if measured_on != name:
            sys.exit(f"the store has measurements of {measured_on}, this is {name}")
        total += 1
        reason = left_out(sample, options.device, options.optimizers and options.optimizers.split(","))
        if not reason and time.monotonic() < ends:
            try:
                measured = measure_compute(sample, settings, device, clock, memory_bytes, lambda: None)
                samples.append({"sample_id": sample.sample_id, "ours_ms": ours_ms,
                                "fbgemm_ms": {part: measured[part]["median_ms"] for part in ours_ms}})
            except (OutOfMemory, MemoryError, torch.OutOfMemoryError):
                reason = "out of memory"
            except (RuntimeError, AssertionError) as fault:  # a kernel or type that this build of FBGEMM lacks
                reason = str(fault).splitlines()[0]
            gc.collect()
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
    if not samples:
        sys.exit(f"{options.store} has no sample of {BACKENDS[options.device]} that FBGEMM runs: {total} of its backend, left out: {skipped or 'none'}")
    result = {"torch": torch.__version__, "fbgemm_gpu": fbgemm_gpu.__version__, "device": name, "left_out": skipped,
              "passes_not_held": getattr(clock, "not_held", 0), "summary": summary(samples), "samples": samples}
    keep(options.json, "fbgemm", result)
    print(f"FBGEMM {fbgemm_gpu.__version__} (torch {torch.__version__}) beside `{BACKENDS[options.device]}` on {name}: the sweep's first {len(samples)} of {total} samples"
          + "".join(f", {count} left out ({reason})" for reason, count in skipped.items()) + f"; {result['passes_not_held']} passes with gaps between launches\n")
    print("| FBGEMM's time to ours | median | p10 | p90 | rank correlation (Kendall's tau-b) |\n|---|---|---|---|---|")
    for name, of in result["summary"].items():
        print(f"| {name} | {of['median_ratio']:.2f} | {of['p10_ratio']:.2f} | {of['p90_ratio']:.2f} | {of['kendall_tau']:.2f} |")


if __name__ == "__main__":
    main()
