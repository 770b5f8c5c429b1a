#!/usr/bin/env python3
"""Are steps of a trainer forecast, and is the plan that is forecast to be faster the faster one?

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/pip install './client/python[torchrec]'
    build/pytorch/bin/python bench/pytorch/steps.py --bin build/release/bin --folder FOLDER     about 30 minutes on 2 cores; nothing else should run meanwhile

1. neuroshard.worker measures configs/sweeps/steps_*.yaml (FBGEMM and Gloo), and a model is trained on them.
2. --jobs jobs of 2 and 4 ranks train under DistributedModelParallel (dmp_steps.py), as plans of 1 to 5 sharding types and 1 to 3 modules say, and
   record their steps. `neuroshard.torchrec.step_records` makes a model with rates of steps of them.
3. Other jobs, which that model has not seen, train with the pipelines none and train_sparse_dist: forecasts of both models beside what they took.
4. Requests of twelve tables whose types the planner may choose: the plans of `neuroshard`, of `refine` by the model without rates of steps and of
   `refine` by the model with them, trained in turn.

--folder keeps stores, models and records: started again with it, it goes on behind what is there.
"""

import argparse
import csv
import itertools
import json
import math
import pathlib
import random
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import dmp_steps  # noqa: E402
from forecast import TRAINING, run, workers  # noqa: E402
from google.protobuf import json_format  # noqa: E402
from provenance import ROOT  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

from neuroshard import PlannerClient  # noqa: E402
from neuroshard.torchrec.step_record import read_records  # noqa: E402

RANKS = (2, 4)
MOST_REPLICATED = 20_000  # rows
TYPES = ("table_wise", "column_wise", "row_wise", "data_parallel", "table_row_wise")
WITHOUT, WITH = "fbgemm-samples", "cpu-fbgemm"  # models
FIRST_OF_OTHER_JOBS, FIRST_OF_CHOICES = 1000, 2000  # seeds


def table_rows(most=250_000):
    with open(ROOT / "configs/workloads/dlrm_2021_tables856.csv", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if 1000 < int(row["row"]) < most]


def request_of(seed, ranks, modules, rows=None):
    """Twelve of these tables of the public trace, in so many modules."""
    draw = random.Random(seed)
    tables = [{"name": f"table_{row['index']}", "module": f"m{draw.randrange(modules)}", "num_embeddings": int(row["row"]),
               "embedding_dim": draw.choice((16, 32, 64)), "pooling_factor": float(row["pooling_factor"]),
               "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)]} for row in draw.sample(rows or table_rows(), 12)]
    return {"tables": tables, "global_batch_size": 512 * ranks, "optimizer": "sgd",
            "constraints": {"sharding_types": list(TYPES), "column_rule": "torchrec", "min_column_width": 16},
            "topology": {"compute_device": "cpu", "hosts": [{"num_devices": ranks, "memory_bytes": 1 << 31}]}}


def job(seed, ranks):
    """A request in which every table has its type given, 1 to 5 of them in all, and 1 to 3 modules."""
    draw = random.Random(-seed)
    request = request_of(seed, ranks, draw.randint(1, 3))
    types = draw.sample(TYPES, draw.randint(1, len(TYPES)))
    of_large = [kind for kind in types if kind != "data_parallel"] or ["table_wise"]  # gradients of replicas are as large as the table
    request["constraints"]["tables"] = [{"tables": [table["name"]], "sharding_types": [draw.choice(types if table["num_embeddings"] < MOST_REPLICATED else of_large)]}
                                        for table in request["tables"]]
    request["search"] = {"strategy": "refine", "refine_steps": 10}
    return request


def as_mapping(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def planned(client, request, model):
    return as_mapping(client.plan({**request, "cost_model": {"name": model}}).plan)


def measured_models(options, folder):
    """1."""
    store, model = folder / "fbgemm.db", folder / "models" / WITHOUT / "1"
    if model.exists():
        return
    cli = options.bin / "neuroshard"
    with workers("fbgemm", options.bin, folder, max(RANKS)) as addresses:
        two = ",".join(addresses.split(",")[:2])
        run(cli, "sweep", "compute", ROOT / "configs/sweeps/steps_compute.yaml", "--workers", two, "--store", store)
        run(cli, "sweep", "comm", ROOT / "configs/sweeps/steps_comm.yaml", "--workers", addresses, "--store", store)
    (folder / "train.yaml").write_text(TRAINING)
    run(options.bin / "neuroshard-pretrain", "train", "--store", store, "--config", folder / "train.yaml", "--out", model)


def recorded(path, jobs, client, options):
    """2. and the runs of 3.: the records of these (request, pipeline); what is in the file is kept."""
    done = read_records(path) if path.exists() else []
    for number, (request, pipeline) in enumerate(jobs[len(done):], len(done) + 1):
        record = dmp_steps.measure(request, planned(client, request, WITHOUT), options.steps, pipeline)
        with open(path, "a", encoding="utf-8") as file:
            file.write(record.to_json() + "\n")
        print(f"{path.name}: {number} of {len(jobs)}, {record.step_ms:.2f} ms", file=sys.stderr, flush=True)
        done.append(record)
    return done


def forecast_ms(client, record, model):
    request = as_mapping(record.request)
    return client.evaluate({**request, "cost_model": {"name": model}}, record.plan).cost.embedding_cost_ms


def measured_ms(record):
    """As a forecast is: with the distribution of ids where nothing hides it."""
    stages = ("forward", "backward", "input_dist") if record.request.pipeline_type == "none" else ("forward", "backward")
    return max(sum(rank[stage] for stage in stages) for rank in record.ranks)


def errors(pairs):
    """Of (forecast, measured): figures of the relative errors, and of pairs in the right order of those that differ by 10 %."""
    relative = [forecast / measured - 1 for forecast, measured in pairs]
    apart = [(a, b) for a, b in itertools.combinations(pairs, 2) if max(a[1], b[1]) > 1.1 * min(a[1], b[1])]
    right = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in apart)
    return {"jobs": len(pairs), "mean_abs": statistics.mean(map(abs, relative)), "geometric_abs": math.exp(statistics.mean(math.log(max(1e-3, abs(e))) for e in relative)),
            "bias": statistics.mean(relative), "within_10": sum(abs(e) <= 0.1 for e in relative), "pairs": len(apart), "right_pairs": right}


def forecasts(client, records):
    result = {}
    for model, ranks, pipeline in itertools.product((WITHOUT, WITH), RANKS, dmp_steps.PIPELINES):
        of = [record for record in records if len(record.ranks) == ranks and record.request.pipeline_type == pipeline]
        result[f"{model}, {ranks} ranks, {pipeline}"] = errors([(forecast_ms(client, record, model), measured_ms(record)) for record in of])
    return result


def choices(client, options, folder):
    """4. By request: forecast and measured ms of the three plans; --rounds rounds in turn, the median of them."""
    path = folder / "choices.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for seed in range(len(done), options.choices):
        ranks = RANKS[seed % len(RANKS)]
        request = {**request_of(FIRST_OF_CHOICES + seed, ranks, 1 + seed // 2 % 3), "pipeline_type": "train_sparse_dist"}
        # NeuroShard's search has table_wise and column_wise alone, and obeys no constraints.
        plans = {"neuroshard": planned(client, {**request, "constraints": {}, "search": {"strategy": "neuroshard"}}, WITHOUT),
                 "refine": planned(client, {**request, "search": {"strategy": "refine"}}, WITHOUT),
                 "refine, rates of steps": planned(client, {**request, "search": {"strategy": "refine"}}, WITH)}
        runs = {name: [] for name in plans}
        for _ in range(options.rounds):
            for name, plan in plans.items():
                runs[name].append(measured_ms(dmp_steps.measure(request, plan, options.steps, "train_sparse_dist")))
        row = {"ranks": ranks, "modules": 1 + seed // 2 % 3,
               "measured_ms": {name: statistics.median(ms) for name, ms in runs.items()},
               "forecast_ms": {name: {model: client.evaluate({**request, "cost_model": {"name": model}}, plan).cost.embedding_cost_ms for model in (WITHOUT, WITH)}
                               for name, plan in plans.items()},
               "exchanges": {name: len({(t.get("module", ""), t["sharding_type"]) for t in plan["tables"]}) for name, plan in plans.items()}}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"choices: {seed + 1} of {options.choices}, {row['measured_ms']}", file=sys.stderr, flush=True)
        done.append(row)
    return done


def markdown(result):
    yield "| model, ranks, pipeline | jobs | mean error | geometric | bias | within 10 % | pairs apart by 10 % in order |\n|---|---|---|---|---|---|---|"
    for name, of in result["forecasts"].items():
        yield (f"| {name} | {of['jobs']} | {of['mean_abs']:.1%} | {of['geometric_abs']:.1%} | {of['bias']:+.1%} | {of['within_10']} | "
               f"{of['right_pairs']} of {of['pairs']} |")
    rows = result["choices"]
    if not rows:
        return
    yield "\n| plan | forecast to neuroshard's, by the model without | with rates | measured to neuroshard's: mean, lowest, highest | faster than neuroshard's | exchanges |"
    yield "|---|---|---|---|---|---|"
    for name in rows[0]["measured_ms"]:
        ratios = [row["measured_ms"][name] / row["measured_ms"]["neuroshard"] for row in rows]
        expected = {model: statistics.mean(row["forecast_ms"][name][model] / row["forecast_ms"]["neuroshard"][model] for row in rows) for model in (WITHOUT, WITH)}
        yield (f"| {name} | {expected[WITHOUT]:.3f} | {expected[WITH]:.3f} | {statistics.mean(ratios):.3f}, {min(ratios):.2f}, {max(ratios):.2f} | "
               f"{sum(ratio < 1 for ratio in ratios)} of {len(rows)} | {statistics.mean(row['exchanges'][name] for row in rows):.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--folder", type=lambda p: pathlib.Path(p).resolve(), help="keeps stores, models and records; default: a temporary one")
    parser.add_argument("--jobs", type=int, default=20, help="to learn from, for each number of ranks; half of them also with train_sparse_dist")
    parser.add_argument("--other-jobs", type=int, default=10, help="to forecast, for each number of ranks and pipeline")
    parser.add_argument("--choices", type=int, default=12, help="requests whose plans are compared")
    parser.add_argument("--rounds", type=int, default=3, help="of the plans of a request")
    parser.add_argument("--steps", type=int, default=60, help="of a run")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measured_models(options, folder)
        learnt, model = folder / "steps.jsonl", folder / "models" / WITH / "1"
        with PlannerProcess(options.bin, folder, folder / "models") as planner, PlannerClient(planner.address) as client:
            recorded(learnt, [(job(seed, ranks), pipeline) for pipeline, jobs in (("none", options.jobs), ("train_sparse_dist", options.jobs // 2))
                              for ranks in RANKS for seed in range(jobs)], client, options)
            if not model.exists():
                print(run(sys.executable, "-m", "neuroshard.torchrec.step_records", learnt, "--planner", planner.address, "--model", model.parent.parent / WITHOUT / "1",
                          "--out", model), file=sys.stderr)
        with PlannerProcess(options.bin, folder, folder / "models") as planner, PlannerClient(planner.address) as client:
            others = recorded(folder / "other_steps.jsonl", [(job(FIRST_OF_OTHER_JOBS + seed, ranks), pipeline)
                              for seed in range(options.other_jobs) for ranks in RANKS for pipeline in dmp_steps.PIPELINES], client, options)
            result = {"forecasts": forecasts(client, others), "choices": choices(client, options, folder)}
    print("\n".join(markdown(result)))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
