#!/usr/bin/env python3
"""Does a cost model forecast what a TorchRec trainer takes, and whose measurements does it take to do so?

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/pip install './client/python[torchrec]'
    build/pytorch/bin/python bench/pytorch/forecast.py --bin build/release/bin      about 6 minutes on 2 cores; nothing else should run meanwhile

The same two sweeps (configs/sweeps/forecast_*.yaml) are measured by neuroshard-worker and by neuroshard.worker, which runs FBGEMM and
torch.distributed: two workers each, one device and one core a worker. A model is trained on either store. Both price the plans of requests of
twelve tables for two ranks, made with the model of FBGEMM's measurements; then the plans run: by `neuroshard validate` on two neuroshard.worker,
and in a trainer, DistributedModelParallel over Gloo (dmp_steps.py), --runs times. The times of the sweeps' compute samples are compared, too.

--folder keeps stores and models: started again with it, the sweeps go on behind what they have.
"""

import argparse
import contextlib
import csv
import itertools
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import ROOT  # noqa: E402
from server_process import PlannerProcess, ServerProcess  # noqa: E402

BACKENDS = ("fbgemm", "neuroshard-cpu")
TRAINING = "preset: universal\nmax_epochs: 100\ncomm: {max_epochs: 100}\n"
TYPES = ["table_wise", "column_wise", "row_wise"]  # what dmp_steps.py runs


@contextlib.contextmanager
def workers(backend, binaries, folder, count=2):
    """The --workers of a command; each has a core, of its own while there are as many."""
    program = [sys.executable, "-m", "neuroshard.worker"] if backend == "fbgemm" else [binaries / "neuroshard-worker"]
    with contextlib.ExitStack() as servers:
        cores = itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), count)
        yield ",".join([servers.enter_context(ServerProcess(["taskset", "--cpu-list", str(core), *program], folder, "--cpu-devices", "1")).address
                        for core in cores])


def run(*command, env=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def request(seed):
    """Twelve tables of the public trace, other ones for each seed, none above 64 MiB."""
    with open(ROOT / "configs/workloads/dlrm_2021_tables856.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if 1000 < int(row["row"]) < 250_000]
    rows = rows[seed::len(rows) // 12][:12]
    tables = [{"name": f"table_{row['index']}", "num_embeddings": int(row["row"]), "embedding_dim": (16, 32, 64)[i % 3],
               "pooling_factor": float(row["pooling_factor"]), "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)]}
              for i, row in enumerate(rows)]
    return {"tables": tables, "global_batch_size": 1024, "optimizer": "sgd",
            "constraints": {"sharding_types": TYPES, "column_rule": "torchrec", "min_column_width": 16},
            "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 31}]}}


def sample_times(store):
    """Sample id -> (forward, backward) in ms, of the compute samples that ran."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        return {name: (forward, backward) for name, forward, backward in database.execute(
            "SELECT sample_id, forward_ms, backward_ms FROM compute_measurements JOIN compute_samples USING (sample) WHERE outcome = 'ok'")}


def rank_correlation(xs, ys):
    """Spearman's."""
    def ranks(values):
        order = sorted(range(len(values)), key=values.__getitem__)
        return sorted(range(len(values)), key=order.__getitem__)

    return statistics.correlation(ranks(xs), ranks(ys))


def compare_samples(theirs, ours):
    both = sorted(set(theirs) & set(ours))
    ratios = sorted(sum(theirs[name]) / sum(ours[name]) for name in both)
    tenths = statistics.quantiles(ratios, n=10)
    return {
        "samples": len(both), "ratio_p10": tenths[0], "ratio_median": tenths[4], "ratio_p90": tenths[8], "ratio_most": ratios[-1],
        "forward_ratio": sum(theirs[n][0] for n in both) / sum(ours[n][0] for n in both),
        "backward_ratio": sum(theirs[n][1] for n in both) / sum(ours[n][1] for n in both),
        "rank_correlation": rank_correlation([sum(theirs[n]) for n in both], [sum(ours[n]) for n in both]),
    }


def held_out_error(model):
    """MAPE, %, of the model's networks on samples that training did not see."""
    rows = [line.split("|")[1:-1] for line in (model / "REPORT.md").read_text().splitlines() if line.startswith("|")]
    head = next(row for row in rows if "MAPE %" in "".join(row))
    column = next(i for i, cell in enumerate(head) if cell.strip() == "MAPE %")
    wanted = ("compute", "all_to_all_forward", "all_to_all_backward", "reduce_scatter", "all_gather", "all_reduce")
    return {row[0].strip(): float(row[column]) for row in rows if row[0].strip() in wanted and len(row) == len(head) and row[column].strip() != "-"}


def trained(backend, options, folder):
    """The model of a backend's measurements; what is there already is kept."""
    cli, store, model = options.bin / "neuroshard", folder / f"{backend}.db", folder / "models" / backend / "1"
    if not model.exists():
        with workers(backend, options.bin, folder) as addresses:
            for kind in ("compute", "comm"):
                run(cli, "sweep", kind, ROOT / f"configs/sweeps/forecast_{kind}.yaml", "--workers", addresses, "--store", store)
        (folder / "train.yaml").write_text(TRAINING)
        run(options.bin / "neuroshard-pretrain", "train", "--store", store, "--config", folder / "train.yaml", "--out", model)
    return {"held_out_mape": held_out_error(model)}


def forecast(seed, options, folder, planner):
    """One request: its plan's predictions, and what the plan took."""
    cli = options.bin / "neuroshard"
    request_file, plan_file = folder / "request.json", folder / "plan.json"
    request_file.write_text(json.dumps(request(seed)))
    run(cli, "plan", request_file, "--planner", planner.address, "--model", "fbgemm", "--format", "json", "--out", plan_file)
    answer = json.loads(plan_file.read_text())
    result = {"seed": seed, "types": sorted({t["sharding_type"] for t in answer["plan"]["tables"]}), "predicted_ms": {}}
    for backend in BACKENDS:
        # PLAN has the prices of the model that made it.
        priced = json.loads(run(cli, "evaluate", request_file, plan_file, "--planner", planner.address, "--model", backend, "--format", "json"))
        result["predicted_ms"][backend] = priced["cost"]["embedding_cost_ms"]
    interval = answer["cost"].get("interval")
    result["interval_ms"] = [interval["low_ms"], interval["high_ms"]] if interval else None
    with workers("fbgemm", options.bin, folder) as addresses:
        validated = json.loads(run(cli, "validate", request_file, plan_file, "--workers", addresses, "--format", "json"))
    result["validated_ms"] = validated["embedding_cost"]["measured_ms"]
    steps = [sys.executable, ROOT / "bench/pytorch/dmp_steps.py", request_file, plan_file, "--steps", options.steps, "--format", "json"]
    result["trainer_ms"] = [json.loads(run(*steps))["measured_ms"] for _ in range(options.runs)]
    return result


def percent(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.0f} %"


def markdown(result):
    samples = result["samples"]
    yield (f"{samples['samples']} compute samples on both: FBGEMM takes {samples['ratio_median']:.1f} times as long as neuroshard-cpu (p10 {samples['ratio_p10']:.1f}, "
           f"p90 {samples['ratio_p90']:.1f}, at most {samples['ratio_most']:.0f}), forward {samples['forward_ratio']:.1f}, backward "
           f"{samples['backward_ratio']:.1f} in sum; rank correlation {samples['rank_correlation']:.2f}.\n")
    yield "| measurements of | MAPE on held-out samples |"
    yield "|---|---|"
    for backend, model in result["models"].items():
        yield f"| {backend} | " + ", ".join(f"{name} {error:.0f} %" for name, error in model["held_out_mape"].items()) + " |"
    yield "\n| request | trainer, ms (runs) | validate, ms | predicted from fbgemm, ms | interval | to the trainer | predicted from neuroshard-cpu, ms | to the trainer |"
    yield "|---|---|---|---|---|---|---|---|"
    for f in result["forecasts"]:
        trainer = statistics.median(f["trainer_ms"])
        fbgemm, ours = (f["predicted_ms"][backend] for backend in BACKENDS)
        yield (f"| {f['seed']} | {trainer:.2f} ({', '.join(f'{ms:.2f}' for ms in f['trainer_ms'])}) | {f['validated_ms']:.2f} | {fbgemm:.2f} | "
               f"{' to '.join(f'{ms:.2f}' for ms in f['interval_ms'] or []) or '-'} | {percent(fbgemm, trainer)} | {ours:.2f} | {percent(ours, trainer)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--folder", type=lambda p: pathlib.Path(p).resolve(), help="keeps stores and models; default: a temporary one")
    parser.add_argument("--seeds", default="0,1,2", help="requests")
    parser.add_argument("--runs", type=int, default=3, help="of the trainer, for each request")
    parser.add_argument("--steps", type=int, default=100, help="of the trainer in each run")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two workers need two cores")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = {"models": {backend: trained(backend, options, folder) for backend in BACKENDS}}
        result["samples"] = compare_samples(*(sample_times(folder / f"{backend}.db") for backend in BACKENDS))
        with PlannerProcess(options.bin, folder, folder / "models") as planner:
            result["forecasts"] = [forecast(int(seed), options, folder, planner) for seed in options.seeds.split(",")]
    print("\n".join(markdown(result)))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
