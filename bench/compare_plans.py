#!/usr/bin/env python3
"""Which plans are cheaper when they run: plans the same tasks in several ways and measures every plan, over two workers of one device
each on this machine.

    compare_plans.py --bin build/release/bin --plans cpu-amd-epyc:neuroshard,cpu-amd-epyc:refine
    compare_plans.py --bin build/release/bin --root MODELS --plans old:refine,new:refine --seed 1000

A way to plan is MODEL:STRATEGY, MODEL:STRATEGY:TYPES or MODEL:STRATEGY:TYPES:KERNELS. TYPES are sharding types joined by +, or all, or
nothing (default: what the planner takes where a request names none). KERNELS are compute kernels that tables may have, joined by +,
fused_uvm_caching=0.1 with that load factor. Costs are compared with those of the first way.

A task is 10 to 30 tables of the DLRM 2021 trace with random dims, like NeuroShard's benchmark, but for two devices. All plans of a
task are measured in turn, --runs times, in alternating order, and a plan's cost is the median, so that the machine's drift touches all
alike. Ways that give the same plan share its measurements. Tasks by which something was chosen say nothing of how good it is: take
another --seed for that.

With --optimizers tasks take these in turn; with --unpooled tables give a vector for every id (EmbeddingCollection). With --host-memory
devices hold 30 % of the weights and their optimizer state, the host the rest. With --weight-dtypes tables take these in turn; with
--quantized-comms vectors are exchanged in one type and their gradients in another; with --pipeline-type none the distribution of ids is
part of the cost. --worker "PYTHON -m neuroshard.worker" measures with
FBGEMM and torch.distributed. The end of the summary is whether plans of one task were measured in the predicted order: pairs of them by
what the first model says of both.

Nothing is measured while other processes have more than --other-cores, and what they came in between is measured again.

With --results every task is written as soon as it is measured, and the same command goes on with those that are missing.
"""

import argparse
import contextlib
import csv
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from provenance import ROOT
from server_process import PlannerProcess, ServerProcess

TABLES = ROOT / "configs/workloads/dlrm_2021_tables856.csv"
DIMS = (4, 8, 16, 32, 64, 128)
DEVICE_BYTES = 2 << 30
TASK_BYTES = 2 << 30  # of weights: three quarters of both devices stay free for ids, outputs and another way to place them
OFFLOAD_TASK_BYTES = 512 << 20  # of weights, with --host-memory: what the sweeps of host memory measured
OFFLOAD_SHARE = 0.3  # of weights and state that device memory is then, and ids and outputs besides
OFFLOAD_SPARE_BYTES = 16 << 20
STATE_SHARE = 3  # weights and what the largest optimizers keep, in weights
STAGES = ("compute", "backward_comm", "forward_comm")
ALL_TYPES = ("table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard", "data_parallel")


def make_task(rows, rng, options, optimizer):
    tables, weights = [], 0
    most = OFFLOAD_TASK_BYTES if options.host_memory else TASK_BYTES
    for index in rng.sample(range(len(rows)), rng.randint(10, 30)):
        row, dim = rows[index], rng.choice(DIMS)
        size = int(row["row"]) * dim * 4
        if weights + size > most or size > DEVICE_BYTES // 2:
            continue
        weights += size
        tables.append({
            "name": f"table_{row['index']}",
            "num_embeddings": int(row["row"]),
            "embedding_dim": dim,
            "pooling_factor": float(row["pooling_factor"]),
            "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)],
            **({"kind": "embedding"} if options.unpooled else {}),
            "weight_dtype": options.weight_dtypes[len(tables) % len(options.weight_dtypes)],
        })
    state = 1 if optimizer == "sgd" else STATE_SHARE
    host = {"num_devices": 2, "memory_bytes": DEVICE_BYTES * state}
    if options.host_memory:
        held = weights * (3 if optimizer == "adam" else 1)
        host = {"num_devices": 2, "memory_bytes": int(OFFLOAD_SHARE * held / 2) + OFFLOAD_SPARE_BYTES, "host_memory_bytes": 4 * held}
    return {
        "tables": tables,
        "topology": {"hosts": [host]},
        "global_batch_size": options.batch_size,
        "optimizer": optimizer,
        **({"quantized_comms": dict(zip(("forward_dtype", "backward_dtype"), options.quantized_comms))} if options.quantized_comms else {}),
        **({"pipeline_type": options.pipeline_type} if options.pipeline_type else {}),
    }


class OtherWork:
    """How busy this machine is with anything but `processes` (by id), their children (workers measure in one), and this process."""

    def __init__(self, most_cores, processes):
        self.most_cores = most_cores
        self.processes = processes
        self.ticks = os.sysconf("SC_CLK_TCK")
        self.begin()

    def _now(self):
        busy = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        user, nice, system, _, _, irq, softirq, steal = map(int, busy)
        own = sum(os.times()[:4]) * self.ticks
        own += sum(map(self._ticks_of, self.processes))
        return time.monotonic(), (user + nice + system + irq + softirq + steal - own) / self.ticks

    def _ticks_of(self, process):
        """Of it, of its children that ended, and of those that run, one that ends meanwhile twice."""
        own = 0
        for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended
                own += sum(map(self._ticks_of, children.read_text().split()))
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            own += sum(map(int, pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:15]))
        return own

    def begin(self):
        self.began = self._now()

    def wait(self):
        """Until there is little of it; begins again."""
        while True:
            self.begin()
            time.sleep(0.1)
            if self.cores() <= self.most_cores:
                return self.begin()
            time.sleep(1)

    def cores(self):
        """Mean since begin()."""
        (began, before), (now, after) = self.began, self._now()
        return (after - before) / (now - began)


class Comparison:
    """Servers, and what is asked of them. `folder` holds the files of the task in hand."""

    def __init__(self, options, folder, planner, workers):
        self.options, self.folder = options, folder
        self.stages = ("input_dist", *STAGES) if options.pipeline_type == "none" else STAGES
        self.planner = ("--planner", planner.address)
        self.workers = ("--workers", ",".join(w.address for w in workers))
        self.other_work = OtherWork(options.other_cores, [s.process.pid for s in (planner, *workers)])

    def cli(self, *arguments):
        command = [str(c) for c in (self.options.bin / "neuroshard", *arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    def request(self, task, types="", kernels=""):
        constraints = {}
        if types:
            constraints["sharding_types"] = list(ALL_TYPES) if types == "all" else types.split("+")
        if kernels:
            rule = {"tables": [table["name"] for table in task["tables"]], "compute_kernels": []}
            for kernel in kernels.split("+"):
                name, _, load_factor = kernel.partition("=")
                rule["compute_kernels"].append(name)
                if load_factor:
                    rule["cache_load_factor"] = float(load_factor)
            constraints["tables"] = [rule]
        if constraints:
            task = {**task, "constraints": constraints}
        file = self.folder / "request.json"
        file.write_text(json.dumps(task))
        return file

    def plan(self, task, way):
        model, strategy, types, kernels = [*way.split(":"), "", ""][:4]
        arguments = ("--model", model, "--strategy", strategy, "--format", "json")
        return self.cli("plan", self.request(task, types, kernels), *self.planner, *arguments)["plan"]

    def predict(self, task, plan, model):
        """What the model says of any plan: one rank's stages an entry, in ms."""
        file = self.folder / "plan.json"
        file.write_text(json.dumps({"plan": plan}))
        cost = self.cli("evaluate", self.request(task), file, *self.planner, "--model", model, "--format", "json")["cost"]
        return [{stage: rank.get(f"{stage}_ms", 0) for stage in self.stages} for rank in cost["ranks"]]

    def measure(self, task, plan):
        file = self.folder / "plan.json"
        file.write_text(json.dumps({"plan": plan}))
        while True:
            self.other_work.wait()
            report = self.cli("validate", self.request(task), file, *self.workers, "--format", "json")
            cores = self.other_work.cores()
            if cores <= self.options.other_cores:
                break
            print(f"measured again: other processes had {cores:.2f} cores", file=sys.stderr, flush=True)
        return [{stage: rank["stages"][stage]["measured_ms"] for stage in self.stages} for rank in report["ranks"]]

    def run(self, task):
        """One entry a way: its plan's types, what each model says of it, what was measured of it."""
        ways = self.options.plans
        plans = {way: self.plan(task, way) for way in ways}
        distinct = []  # plans
        for plan in plans.values():
            if plan not in distinct:
                distinct.append(plan)
        models = sorted({way.split(":")[0] for way in ways})
        predicted = [{model: self.predict(task, plan, model) for model in models} for plan in distinct]
        measured = [[] for _ in distinct]
        for run in range(self.options.runs):
            order = range(len(distinct))
            for number in order if run % 2 == 0 else reversed(order):
                measured[number].append(self.measure(task, distinct[number]))
        return {
            way: {"plan": distinct.index(plan), "types": types_of(plan), "predicted": predicted[distinct.index(plan)],
                  "measured": measured[distinct.index(plan)]}
            for way, plan in plans.items()
        }


def types_of(plan):
    counts = {}
    for table in plan["tables"]:
        counts[table["sharding_type"]] = counts.get(table["sharding_type"], 0) + 1
    return counts


def total(ranks):
    return max(sum(rank.values()) for rank in ranks)


def measured_ms(result):
    return statistics.median(map(total, result["measured"]))


def orders(model, results):
    """Markdown: whether pairs of a task's plans that differ are measured in the order that the model predicts, by total, by compute alone
    and by the distribution of ids alone where it is part of the cost, and how far off its prices of the two are."""
    lines = [f"Order of a task's plans by `{model}`:\n\n| of | plans | pairs | measured in the predicted order | of pairs predicted 10 % apart | mean Kendall tau of a task |\n"
             "|---|---|---|---|---|---|"]
    stages = [s for s in ("compute", "input_dist") if s in next(iter(results[0].values()))["measured"][0][0]]
    costs_of = [(s, lambda ranks, s=s: max(rank[s] for rank in ranks)) for s in stages]
    for what, cost in (("total", total), *costs_of):
        plans, pairs, taus = 0, [], []
        for result in results:
            distinct = {way["plan"]: way for way in result.values()}.values()
            costs = [(cost(way["predicted"][model]), statistics.median(map(cost, way["measured"]))) for way in distinct]
            of_task = [(abs(math.log(a / b)), (a < b) == (x < y)) for (a, x), (b, y) in itertools.combinations(costs, 2) if a != b]
            plans += len(costs)
            pairs += of_task
            if of_task:
                taus.append(2 * statistics.mean(right for _, right in of_task) - 1)
        apart = [right for by, right in pairs if by > math.log(1.1)]
        lines.append(f"| {what} | {plans} | {len(pairs)} | {sum(right for _, right in pairs)} | {sum(apart)} of {len(apart)} | {statistics.mean(taus):.2f} |")
    for stage in stages:
        off = [abs(predicted[stage] / statistics.median(run[rank][stage] for run in way["measured"]) - 1)
               for result in results for way in {way["plan"]: way for way in result.values()}.values()
               for rank, predicted in enumerate(way["predicted"][model]) if all(run[rank][stage] > 0 for run in way["measured"])]
        lines.append(f"\n{'Distribution of ids' if stage == 'input_dist' else 'Compute'} of {len(off)} ranks, to the median measured: {100 * statistics.mean(off):.1f} % off in the mean.")
    return "\n".join(lines)


def summary(ways, results):
    """Markdown: how the ways compare over all tasks, and each task's costs."""
    base = ways[0]
    lines = [
        f"| plans | predicted cost to `{base}`: mean | measured: mean | tasks measured cheaper, same plan, dearer | "
        "predicted / measured: median, p10, p90 |\n|---|---|---|---|---|"
    ]
    for way in ways:
        model = way.split(":")[0]
        predicted = [total(r[way]["predicted"][model]) / total(r[base]["predicted"][model]) for r in results]
        measured = [measured_ms(r[way]) / measured_ms(r[base]) for r in results]
        same = sum(r[way]["plan"] == r[base]["plan"] for r in results)
        cheaper = sum(ratio < 1 for ratio in measured)
        forecast = sorted(total(r[way]["predicted"][model]) / measured_ms(r[way]) for r in results)
        tenth = len(forecast) // 10
        lines.append(
            f"| `{way}` | {statistics.mean(predicted):.4f} | {statistics.mean(measured):.4f} | "
            f"{cheaper}, {same}, {len(results) - cheaper - same} | "
            f"{statistics.median(forecast):.2f}, {forecast[tenth]:.2f}, {forecast[-1 - tenth]:.2f} |"
        )
    lines.append("\nMeasured cost of each task, ms (median):\n\n| task | " + " | ".join(f"`{w}`" for w in ways) + " |\n|" + "---|" * (len(ways) + 1))
    for task, result in enumerate(results):
        lines.append(f"| {task} | " + " | ".join(f"{measured_ms(result[w]):.3f}" for w in ways) + " |")
    return "\n".join([*lines, "", orders(base.split(":")[0], results)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT / "configs/models", help="model repository")
    parser.add_argument("--plans", required=True, type=lambda text: text.split(","), help="WAY,... ; the first is what the others are compared with")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3, help="how often every plan is measured")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--optimizers", default=["sgd"], type=lambda text: text.split(","), help="of the tasks, in turn")
    parser.add_argument("--unpooled", action="store_true", help="tables of kind embedding")
    parser.add_argument("--host-memory", action="store_true", help="devices hold a part of the tables")
    parser.add_argument("--weight-dtypes", default=["fp32"], type=lambda text: text.split(","), help="of the tables, in turn")
    parser.add_argument("--quantized-comms", default=[], type=lambda text: text.split(","), help="FORWARD,BACKWARD")
    parser.add_argument("--pipeline-type", default="", help="of the tasks; none: ids are distributed before the lookups")
    parser.add_argument("--worker", default=[], type=str.split, help="command of a worker; default: neuroshard-worker of --bin")
    parser.add_argument("--worker-prefix", default=[], type=str.split, help="what workers are started by: 'chrt -r 1'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--other-cores", type=float, default=0.15, help="most that other processes may have of this machine")
    parser.add_argument("--results", type=pathlib.Path, help="JSON file to write tasks to, and to go on from")
    options = parser.parse_args()

    if options.pipeline_type == "none" and options.worker:
        parser.error("--pipeline-type none goes with neuroshard-worker alone: others do not distribute ids")
    before_others = {"optimizers": ["sgd"], "unpooled": False, "host_memory": False, "weight_dtypes": ["fp32"], "quantized_comms": [], "pipeline_type": "", "worker": []}
    asked = {key: getattr(options, key) for key in ("plans", "runs", "batch_size", "seed", *before_others)}
    results = []
    if options.results and options.results.exists():
        before = json.loads(options.results.read_text())
        if {**before_others, **before["options"]} != asked:
            raise SystemExit(f"{options.results} is of other options: {before['options']}")
        results = before["tasks"]
    with open(TABLES) as file:
        rows = list(csv.DictReader(file))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def worker(core):
            if options.worker:
                return ServerProcess(["taskset", "--cpu-list", str(core), *options.worker_prefix, *options.worker], folder, "--cpu-devices", "1")
            config = folder / f"worker-{core}.yaml"
            config.write_text(f"cpu: {{devices: 1, pin_threads: true, first_core: {core}}}\n")
            return ServerProcess([*options.worker_prefix, options.bin / "neuroshard-worker"], folder, "--config", config)

        with PlannerProcess(options.bin, folder, options.root) as planner, worker(0) as one, worker(1) as two:
            comparison = Comparison(options, folder, planner, (one, two))
            for task in range(len(results), options.tasks):
                optimizer = options.optimizers[task % len(options.optimizers)]
                results.append(comparison.run(make_task(rows, random.Random(f"{options.seed} {task}"), options, optimizer)))
                if options.results:
                    options.results.write_text(json.dumps({"options": asked, "tasks": results}) + "\n")
                costs = ", ".join(f"{way} {measured_ms(r):.3f}" for way, r in results[-1].items())
                print(f"task {task}, ms: {costs}", file=sys.stderr, flush=True)
    print(summary(options.plans, results[: options.tasks]))


if __name__ == "__main__":
    sys.exit(main())
