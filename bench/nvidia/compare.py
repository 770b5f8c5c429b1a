#!/usr/bin/env python3
"""NVIDIA's synthetic models planned by ours and by the strategies of distributed-embeddings 1.0, all priced by EvaluatePlan.

    bench/nvidia/compare.py --bin build/release/bin --json nvidia.json
    bench/nvidia/compare.py --bin build/release/bin --models jumbo --ranks 8,16 --host-memory-tb 8

The models are those of configs/workloads/sources/synthetic_models.yaml, with the batch and the optimizer of NVIDIA's benchmark; the hosts
are DGX H100: eight H100 of 80 GB, 2 TB of memory. Cost model `analytic` on their published figures.

Peers: `basic`, `memory_balanced` and `memory_optimized` of the planner, each under three column slice thresholds, of which the cheapest
plan that fits counts: none, the one of NVIDIA's README, and the mean rank's elements. They know no capacity. Where their plan does not
fit they get their own offload, with the largest gpu_embedding_size that leaves every rank the bytes of its ids and vectors. Ours has
host memory as it comes (`fused_uvm`, `fused_uvm_caching`), and, where their offload is at play, once more with `offload` allowed besides.

Cells: cost in ms (most / mean of ranks), bytes of tables, ids and vectors on a device in GB at most (most / mean), tables in host memory.
The ratios are those of both plans of `refine` to the cheapest of theirs.

Results go into --json after every case; started again with the same file it goes on behind them. Exits 1 where one of ours is dearer
than the cheapest of theirs.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "configs/workloads"))
import make_requests  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

MODELS = "tiny,small,medium,large,jumbo"
RANKS = "8,16,32,64,128"
REFINE, OFFLOADING = "refine", "refine, offload too"
PEERS = ("basic", "memory_balanced", "memory_optimized")
README_THRESHOLD = 1280 << 20  # elements; the command of NVIDIA's README of the synthetic models
RANKS_PER_HOST = 8
DEVICE = "h100-sxm"
HOST_MEMORY_TB = 2  # DGX H100 datasheet
HOST_TO_DEVICE_BYTES_PER_S = 63 * 10**9  # PCI Express 5.0 x16, configs/fabrics/README.md
HOST_MEMORY_BYTES_PER_S = 16 * 4800 * 8 * 10**6  # two Xeon 8480C, eight channels of DDR5-4800 each
RESERVED_SHARE = 0.1  # of device memory, for everything that is no table
BYTES_PER_ELEMENT = 8  # fp32 and adagrad's state
ANY_MEMORY_BYTES = 1 << 50  # for plans of strategies that know no capacity
HOST_KERNELS = ["fused_uvm", "fused_uvm_caching", "offload"]


def request(model, ranks, host_memory_tb):
    tables = []
    for group, (count, rows, width, hotness) in enumerate(make_requests.synthetic_groups(model)):
        for i in range(count):
            name = f"group{group}_table{i}"
            tables.append({
                "name": name,
                "num_embeddings": rows,
                "embedding_dim": width,
                "features": [f"{name}_input{n}" for n in range(len(hotness))],
                "pooling_factors": hotness,
                "zipf_exponent": make_requests.ZIPF_EXPONENT,
            })
    host = {"count": ranks // RANKS_PER_HOST, "num_devices": RANKS_PER_HOST, "device": DEVICE,
            "host_memory_bytes": int(host_memory_tb * 10**12)}
    return {
        "tables": tables,
        "topology": {"hosts": [host], "bandwidths": {"host_to_device_bytes_per_s": HOST_TO_DEVICE_BYTES_PER_S,
                                                     "host_memory_bytes_per_s": HOST_MEMORY_BYTES_PER_S}},
        "global_batch_size": 65536,
        "optimizer": "adagrad",
        "memory": {"reserve_fraction": RESERVED_SHARE},
        "cost_model": {"name": "analytic"},
    }


def elements(table):
    return table["num_embeddings"] * table["embedding_dim"]


def thresholds(of_request, ranks):
    """Column slice thresholds, by what they are."""
    mean = sum(map(elements, of_request["tables"])) // ranks
    return {"none": None, "published": README_THRESHOLD, "mean rank": mean}


class Case:
    """One model on one number of ranks."""

    def __init__(self, model, ranks, host_memory_tb, cli, folder):
        self.request, self.ranks, self.cli, self.folder = request(model, ranks, host_memory_tb), ranks, cli, folder
        devices, _ = cli("devices")
        device = next(d for d in devices["devices"] if d["name"] == DEVICE)
        self.free_bytes = int(device["memory_bytes"]) * (1 - RESERVED_SHARE)

    def plan(self, of_request):
        """(answer or None, error, seconds)."""
        path = self.folder / "request.json"
        path.write_text(json.dumps(of_request))
        began = time.monotonic()
        answer, error = self.cli("plan", path)
        return answer, error, time.monotonic() - began

    def evaluate(self, plan):
        """What the plan comes to; `fits` says whether it breaks no rule."""
        (self.folder / "request.json").write_text(json.dumps(self.request))
        (self.folder / "plan.json").write_text(json.dumps({"plan": plan}))
        answer, error = self.cli("evaluate", self.folder / "request.json", self.folder / "plan.json")
        if answer is None:
            raise SystemExit(error)
        ranks = answer["cost"]["ranks"]
        totals = [r["total_ms"] for r in ranks]
        tables_bytes = [int(r["memory"]["total_bytes"]) - int(r["memory"]["reserve_bytes"]) for r in ranks]
        host_bytes = [int(r["memory"].get("host_total_bytes", 0)) for r in ranks]
        kernels = [table.get("compute_kernel", "fused") for table in plan["tables"]]
        return {
            "fits": answer["legal"],
            "violations": [v["description"] for v in answer.get("violations", [])][:3],
            "cost_ms": answer["cost"]["embedding_cost_ms"],
            "cost_imbalance": max(totals) / (sum(totals) / len(totals)),
            "compute_ms": max(r["compute_ms"] for r in ranks),
            "max_bytes": max(tables_bytes),
            "memory_imbalance": max(tables_bytes) / (sum(tables_bytes) / len(tables_bytes)),
            "host_bytes": sum(host_bytes),
            "in_host_memory": {kernel: kernels.count(kernel) for kernel in HOST_KERNELS if kernel in kernels},
            "other_bytes": max(int(r["memory"].get("input_bytes", 0)) + int(r["memory"].get("output_bytes", 0)) for r in ranks),
        }

    def ours(self, strategy, **options):
        answer, error, seconds = self.plan(self.request | {"search": {"strategy": strategy}} | options)
        if answer is None:
            return {"error": error, "seconds": seconds}
        types = {}
        for table in answer["plan"]["tables"]:
            types[table["sharding_type"]] = types.get(table["sharding_type"], 0) + 1
        return self.evaluate(answer["plan"]) | {"seconds": seconds, "search_ms": answer["search"]["search_ms"], "types": types}

    def with_offload(self):
        """Ours with every kernel."""
        names = [table["name"] for table in self.request["tables"]]
        return self.ours("refine", constraints={"tables": [{"tables": names, "compute_kernels": ["fused", "dense", *HOST_KERNELS]}]})

    def planned_by_peer(self, strategy, threshold, gpu_embedding_size=None):
        """The plan and what it comes to, whatever the device memory is."""
        options = {"column_slice_threshold_elements": threshold, "gpu_embedding_size_elements": gpu_embedding_size}
        anywhere = json.loads(json.dumps(self.request))
        anywhere["topology"]["hosts"][0] |= {"memory_bytes": ANY_MEMORY_BYTES, "host_memory_bytes": ANY_MEMORY_BYTES}
        anywhere["search"] = {"strategy": strategy, "distributed_embeddings": {k: v for k, v in options.items() if v}}
        answer, error, seconds = self.plan(anywhere)
        if answer is None:
            raise SystemExit(error)
        return self.evaluate(answer["plan"]) | {"seconds": seconds, "search_ms": answer["search"]["search_ms"]}

    def peer(self, strategy, threshold):
        came_to = self.planned_by_peer(strategy, threshold)
        if came_to["fits"]:
            return came_to
        size = int(self.free_bytes - came_to["other_bytes"]) // BYTES_PER_ELEMENT
        offloaded = {"gpu_embedding_size": size, "without_offload": came_to}
        return self.planned_by_peer(strategy, threshold, size) | offloaded

    def peers(self, strategy):
        return {name: self.peer(strategy, threshold) for name, threshold in thresholds(self.request, self.ranks).items()}


def best(settings):
    """(setting, what it came to) of the cheapest plan that fits, else of the cheapest."""
    planned = {name: r for name, r in settings.items() if "cost_ms" in r}
    fitting = {name: r for name, r in planned.items() if r["fits"]} or planned
    return min(fitting.items(), key=lambda item: item[1]["cost_ms"], default=(None, None))


def cheapest_peer(result):
    """Cost of the cheapest of their plans that fits; None without."""
    costs = [r["cost_ms"] for settings in result["peers"].values() for r in settings.values() if r.get("fits")]
    return min(costs, default=None)


def cell(r, setting=""):
    if r is None or "cost_ms" not in r:
        return "none" if r else ""
    host = ", ".join(f"{count} {kernel}" for kernel, count in r["in_host_memory"].items())
    return ("" if r["fits"] else "too large: ") + ", ".join(
        part for part in (setting, f"{r['cost_ms']:.2f} ({r['cost_imbalance']:.2f})", f"{r['max_bytes'] / 1e9:.1f} ({r['memory_imbalance']:.2f})", host) if part
    )


def row(result):
    """A line of Markdown."""
    ours = result["ours"]
    peers = [cell(r, setting) for setting, r in (best(settings) for settings in result["peers"].values())]
    costs = [ours[name].get("cost_ms") for name in (REFINE, OFFLOADING) if name in ours]
    ratio = ", ".join(f"{cost / cheapest_peer(result):.2f}" for cost in costs if cost and cheapest_peer(result)) or "-"
    seconds = f"{ours['refine']['search_ms'] / 1000:.2f}" if "search_ms" in ours[REFINE] else "-"
    cells = [result["model"], str(result["ranks"]), *(cell(ours.get(name)) for name in (REFINE, OFFLOADING, "neuroshard")), *peers, ratio, seconds]
    return "| " + " | ".join(cells) + " |"


HEAD = ("| model | devices | `refine` | with `offload` | `neuroshard` | " + " | ".join(f"`{name}`" for name in PEERS)
        + " | ours / best of theirs | `refine`, s |\n" + "|---" * 10 + "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ranks", default=RANKS)
    parser.add_argument("--host-memory-tb", type=float, default=HOST_MEMORY_TB, help="of each host, 10^12 bytes")
    parser.add_argument("--timeout-s", type=int, default=300, help="for each plan")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    results = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:

        def cli(*arguments):
            """(answer, None) or (None, what went wrong)."""
            command = [options.bin / "neuroshard", *arguments, "--planner", planner.address, "--format", "json"]
            if arguments[0] == "plan":
                command += ["--timeout-s", options.timeout_s]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            return (json.loads(done.stdout), None) if done.stdout else (None, done.stderr.strip())

        print(HEAD)
        for model in options.models.split(","):
            for ranks in map(int, options.ranks.split(",")):
                key = {"model": model, "ranks": ranks, "host_memory_tb": options.host_memory_tb}
                result = next((r for r in results if key.items() <= r.items()), None)
                if result is None:
                    case = Case(model, ranks, options.host_memory_tb, cli, pathlib.Path(name))
                    result = key | {
                        "ours": {REFINE: case.ours("refine"), "neuroshard": case.ours("neuroshard")},
                        "peers": {strategy: case.peers(strategy) for strategy in PEERS},
                    }
                    if result["ours"][REFINE].get("in_host_memory"):
                        result["ours"][OFFLOADING] = case.with_offload()
                    results.append(result)
                    if options.json:
                        options.json.write_text(json.dumps(results, indent=1) + "\n")
                print(row(result), flush=True)
    dearer = [r for r in results if cheapest_peer(r) and not r["ours"][REFINE].get("cost_ms", math.inf) <= cheapest_peer(r)]
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
