#!/usr/bin/env python3
"""NVIDIA's synthetic models planned by ours and by the strategies of distributed-embeddings 1.0, all priced by EvaluatePlan.

    bench/nvidia/compare.py --bin build/release/bin --json nvidia.json
    bench/nvidia/compare.py --bin build/release/bin --models jumbo --ranks 64,128
    bench/nvidia/compare.py --from nvidia.json      the tables of bench/README.md

The models are those of configs/workloads/sources/synthetic_models.yaml, with the batch and the optimizer of NVIDIA's benchmark; the hosts
are DGX H100: eight H100 of 80 GB, 2 TB of memory. Cost model `analytic` on their published figures.

Peers: `basic`, `memory_balanced` and `memory_optimized` of the planner, each under three column slice thresholds, of which the cheapest
plan that fits counts: none, the one of NVIDIA's README, and the mean rank's elements. They know no capacity. Where their plan does not
fit they get their own offload (DistEmbeddingStrategy._maybe_offload): of the slices of each rank, ascending by elements, those from which
on the sum exceeds gpu_embedding_size, here the most for which no rank's other bytes are in the way. A plan has one kernel a table, so a
table with a slice in host memory is there with all of them.

Results go into --json after every case; started again with the same file it goes on behind them. Exits 1 where one of ours is dearer
than the cheapest of theirs.
"""

import argparse
import json
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

MODELS = "tiny,small,medium,large,jumbo,colossal"
RANKS = "8,16,32,64,128"
OURS = ("refine", "neuroshard")
PEERS = ("basic", "memory_balanced", "memory_optimized")
README_THRESHOLD = 1280 << 20  # elements; the command of NVIDIA's README of the synthetic models
RANKS_PER_HOST = 8
HOST_MEMORY_BYTES = 2 * 10**12  # DGX H100 datasheet: 2 TB
HOST_TO_DEVICE_BYTES_PER_S = 63 * 10**9  # PCI Express 5.0 x16, configs/fabrics/README.md
RESERVED_SHARE = 0.1  # of device memory, for everything that is no table
BYTES_PER_ELEMENT = 8  # fp32 and adagrad's state
ANY_MEMORY_BYTES = 1 << 50  # for plans of strategies that know no capacity
OFFLOADED = "fused_uvm"


def request(model, ranks):
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
    host = {"count": ranks // RANKS_PER_HOST, "num_devices": RANKS_PER_HOST, "device": "h100-sxm",
            "host_memory_bytes": HOST_MEMORY_BYTES}
    return {
        "tables": tables,
        "topology": {"hosts": [host], "bandwidths": {"host_to_device_bytes_per_s": HOST_TO_DEVICE_BYTES_PER_S}},
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
    return {"none": None, "README's": README_THRESHOLD, "mean rank": mean}


def offload(plan, gpu_embedding_size):
    """Names of tables of which distributed-embeddings puts a slice into host memory, and of those that it puts there in part."""
    held = {}
    for table in plan["tables"]:
        for shard in table["shards"]:
            held.setdefault(shard.get("rank", 0), []).append((int(shard["rows"]) * int(shard["cols"]), table["name"]))
    host, device = set(), set()
    for slices in held.values():
        total = 0
        for size, name in sorted(slices, key=lambda entry: entry[0]):
            total += size
            (host if total > gpu_embedding_size else device).add(name)
    return host, host & device


class Case:
    """One model on one number of ranks."""

    def __init__(self, model, ranks, cli, folder):
        self.request, self.ranks, self.cli, self.folder = request(model, ranks), ranks, cli, folder

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
            "in_host_memory": sum(k == "fused_uvm" for k in kernels),
            "cached": sum(k == "fused_uvm_caching" for k in kernels),
            "other_bytes": max(int(r["memory"].get("input_bytes", 0)) + int(r["memory"].get("output_bytes", 0)) for r in ranks),
        }

    def ours(self, strategy):
        answer, error, seconds = self.plan(self.request | {"search": {"strategy": strategy}})
        if answer is None:
            return {"error": error, "seconds": seconds}
        types = {}
        for table in answer["plan"]["tables"]:
            types[table["sharding_type"]] = types.get(table["sharding_type"], 0) + 1
        return self.evaluate(answer["plan"]) | {"seconds": seconds, "search_ms": answer["search"]["search_ms"], "types": types}

    def peer(self, strategy, threshold):
        options = {"column_slice_threshold_elements": threshold} if threshold else {}
        anywhere = json.loads(json.dumps(self.request))
        anywhere["topology"]["hosts"][0]["memory_bytes"] = ANY_MEMORY_BYTES
        anywhere["search"] = {"strategy": strategy, "distributed_embeddings": options}
        answer, error, seconds = self.plan(anywhere)
        if answer is None:
            return {"error": error, "seconds": seconds}
        plan = answer["plan"]
        came_to = self.evaluate(plan) | {"seconds": seconds, "search_ms": answer["search"]["search_ms"]}
        if came_to["fits"]:
            return came_to
        device = self.cli("devices")[0]["devices"]
        free = int(next(d for d in device if d["name"] == "h100-sxm")["memory_bytes"]) * (1 - RESERVED_SHARE)
        size = int(free - came_to["other_bytes"]) // BYTES_PER_ELEMENT
        host, in_part = offload(plan, size)
        for table in plan["tables"]:
            if table["name"] in host:
                table["compute_kernel"] = OFFLOADED
        offloaded = {"gpu_embedding_size": size, "offloaded_in_part": len(in_part), "without_offload": came_to}
        return self.evaluate(plan) | {"seconds": seconds, "search_ms": answer["search"]["search_ms"]} | offloaded

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


def line(result, strategy, setting, r):
    """A line of Markdown."""
    head = f"| {result['model']} | {result['ranks']} | `{strategy}`{f', {setting}' if setting else ''} "
    if r is None or "cost_ms" not in r:
        return head + f"| no plan: {r['error'].splitlines()[0][:80] if r else ''} | - | - | - | - | - | {r['seconds'] if r else 0:.2f} |"
    host = f"{r['in_host_memory']}, {r['cached']}" if r["in_host_memory"] or r["cached"] else "0"
    return (head + f"| {'yes' if r['fits'] else 'no'} | {r['max_bytes'] / 1e9:.2f} | {r['memory_imbalance']:.2f} | {r['cost_ms']:.2f} "
            + f"| {r['cost_imbalance']:.2f} | {host} | {r['search_ms'] / 1000:.2f} |")


def lines(result):
    for strategy, r in result["ours"].items():
        yield line(result, strategy, None, r)
    for strategy, settings in result["peers"].items():
        setting, r = best(settings)
        yield line(result, strategy, setting, r or next(iter(settings.values())))


HEAD = ("| model | devices | strategy, column slice threshold | fits | device memory, most, GB | most / mean | cost, ms | most / mean "
        "| tables in host memory: read there, cached | search, s |\n|---|---|---|---|---|---|---|---|---|---|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ranks", default=RANKS)
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
                key = {"model": model, "ranks": ranks}
                result = next((r for r in results if key.items() <= r.items()), None)
                if result is None:
                    case = Case(model, ranks, cli, pathlib.Path(name))
                    result = key | {
                        "ours": {strategy: case.ours(strategy) for strategy in OURS},
                        "peers": {strategy: case.peers(strategy) for strategy in PEERS},
                    }
                    results.append(result)
                    if options.json:
                        options.json.write_text(json.dumps(results, indent=1) + "\n")
                print("\n".join(lines(result)), flush=True)
    dearer = [r for r in results if cheapest_peer(r) and not r["ours"]["refine"].get("cost_ms", 1e99) <= cheapest_peer(r)]
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
