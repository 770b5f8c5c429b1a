#!/usr/bin/env python3
"""What more search brings: requests planned by effort, and with more work than the default does.

    effort.py --bin build/release/bin --sizes 26x8,100x16,300x64 --tasks 8,16,64
    effort.py --bin build/release/bin REQUEST.yaml --drop-rule column_rule
    effort.py --bin build/release/bin --sizes 26x8,26x16 --room 1.1     devices have 1.1 times what a quick plan takes in the mean

Requests are files (--drop-rule takes a key out of their text), those of torchrec/make_requests.py (--sizes TABLESxRANKS, TorchRec's
formulas), and NeuroShard's tasks on so many devices (--tasks, the networks that eval_devices.py makes up). By networks more is about
ten times the default's work, which no option asks for: the steps of local search (search.refine_steps) that would predict ten times as
many compute costs, if all predicted as many as the first 1,000 do. Ranks' costs are remembered, so fewer come of it: column `more`.
Formulas predict none, so there more is `thorough`, 100 times `quick`, while the default is at least four times. No clock is looked at.
"""

import argparse
import csv
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import eval_devices
from server_process import PlannerProcess

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "torchrec"))
import make_requests  # noqa: E402

STEPS = 1000  # of the search that tells how many make ten times the work


def tasks(devices, limit):
    rows = csv.DictReader((eval_devices.WORKLOADS / "dlrm_2021_tables856.csv").read_text().splitlines())
    of = [{"num_embeddings": int(row["row"]), "pooling_factor": float(row["pooling_factor"]), "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)]}
          for row in rows]
    for line in (eval_devices.WORKLOADS / "tasks_4gpu_maxdim128.txt").read_text().splitlines()[:limit]:
        indices, dims = ([int(number) for number in column.split(",")] for column in line.split())
        yield {"tables": [{"name": f"table_{i}", "embedding_dim": dim, **of[index]} for i, (index, dim) in enumerate(zip(indices, dims))],
               "topology": {"hosts": [{"num_devices": devices, "memory_bytes": 4 << 30}]}, "memory": {"rule": "weights_only"}, "global_batch_size": 1024,
               "cost_model": {"name": eval_devices.MADE_UP}}


def groups(options):  # (name, texts of requests)
    for file in options.requests:
        yield file.stem, [re.sub(rf"\b{options.drop_rule}: *\w+,? *", "", file.read_text())]
    for size in options.sizes:
        yield size, [json.dumps(make_requests.request(*map(int, size.split("x")), seed)) for seed in range(1, options.limit + 1)]
    for devices in options.tasks:
        yield f"tasks on {devices}", [json.dumps(request) for request in tasks(int(devices), options.limit)]


def answer_of(command, text, *more):
    done = subprocess.run([*map(str, (*command, *more))], input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def with_room(command, text, room):
    """The JSON of a request of make_requests.py with devices that have so many times what its quick plan takes in the mean."""
    request = json.loads(text)
    memory = [rank["memory"] for rank in answer_of(command, text, "--effort", "quick")["cost"]["ranks"]]
    used = statistics.mean(int(of["total_bytes"]) - int(of["reserve_bytes"]) for of in memory)
    request["memory"] |= {"reserve_fraction": 0}
    for host in request["topology"]["hosts"]:
        host["memory_bytes"] = round(room * used)
    return json.dumps(request)


def compare(command, text):
    def plan(*more):
        answer = answer_of(command, text, *more)
        bound, search, ms = answer.get("lower_bound", {}), answer["search"], answer["cost"]["embedding_cost_ms"]
        return ms, int(search["compute_evaluations"]), search["search_ms"] / 1000, bound["cost_ms"] if bound.get("kind") == "certified" else ms

    (quick_ms, at_quick, quick_s, _), (ms, at_default, s, bound_ms) = plan("--effort", "quick"), plan("--effort", "default")
    counted = at_default > 1.5 * at_quick
    steps = ("--steps", round(STEPS * 10 * at_default / plan("--effort", "thorough", "--steps", STEPS)[1])) if counted else ()
    more_ms, at_more, more_s, _ = plan("--effort", "thorough", *steps)
    return {"ms": ms, "bound": ms / bound_ms, "quick": quick_ms / ms, "more": ms / more_ms,
            "s": quick_s, "default s": s, "more s": more_s, "work": at_more / at_default}


def show(name, of):
    print(f"| {name} | {of['ms']:.3f} | {of['bound']:.4f} | {of['quick']:.4f} | {of['more']:.4f} "
          f"| {'%.1f x' % of['work'] if of['work'] > 1.5 else 'thorough'} | {of['s']:.2f}, {of['default s']:.2f}, {of['more s']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", nargs="*", type=pathlib.Path, help="files of requests")
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--drop-rule", default="(?!)", help="a key, as column_rule; default: none")
    for flag in ("--sizes", "--tasks"):
        parser.add_argument(flag, default=[], type=lambda text: text.split(","))
    parser.add_argument("--room", type=float, help="for --sizes alone")
    parser.add_argument("--limit", type=int, default=5, help="requests of each size and number of devices")
    options = parser.parse_args()
    options.devices, options.base = ",".join(options.tasks or ["4"]), eval_devices.ROOT / "configs/models/cpu-amd-epyc/1"
    print("| request | default, ms | / bound | quick / default | default / more | more | s: quick, default, more |\n|" + "---|" * 7)
    with tempfile.TemporaryDirectory() as name:
        models = eval_devices.make_models(pathlib.Path(name) / "models", options)
        with PlannerProcess(options.bin, pathlib.Path(name), models) as planner:
            command = (options.bin / "neuroshard", "plan", "-", "--planner", planner.address, "--format", "json")
            for group, texts in groups(options):
                rows = []
                for text in texts:
                    rows.append(compare(command, with_room(command, text, options.room) if options.room else text))
                    show(f"{group}, {len(rows)}", rows[-1])
                show(f"{group}, mean", {key: statistics.geometric_mean(row[key] for row in rows) for key in rows[0]})


if __name__ == "__main__":
    main()
