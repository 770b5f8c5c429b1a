"""A planner, asked by its command line, as the comparisons with solvers ask it."""

import argparse
import json
import pathlib
import subprocess

TOLERANCE = 1e-5  # relative; our costs are floats
CACHE_LOAD_FACTOR = 0.2  # TorchRec's, and that of requests which say nothing


class Planner:
    def __init__(self, binaries, address, folder):
        self.binaries, self.address, self.folder = binaries, address, folder

    def _run(self, *arguments):
        done = subprocess.run([self.binaries / "neuroshard", *arguments, "--planner", self.address, "--format", "json"], capture_output=True, text=True)
        if not done.stdout:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    def _file(self, name, content):
        (self.folder / name).write_text(json.dumps(content))
        return self.folder / name

    def evaluate(self, request, entries):
        topology = request["topology"]["hosts"][0]
        plan = {"world_size": topology["count"] * topology["num_devices"], "local_world_size": topology["num_devices"], "tables": entries}
        return self._run("evaluate", self._file("request.json", request), self._file("plan.json", plan))

    def plan(self, request, effort):
        answer = self._run("plan", self._file("request.json", request), "--effort", effort)
        return answer["cost"]["embedding_cost_ms"], answer["search"]["search_ms"] / 1000, answer.get("lower_bound", {}).get("cost_ms")

    def plan_in_full(self, request):
        """By default: plan, ms, seconds."""
        answer = self._run("plan", self._file("request.json", request))
        return answer["plan"], answer["cost"]["embedding_cost_ms"], answer["search"]["search_ms"] / 1000

    def in_place(self, request):
        """The plan of size_greedy."""
        return self._run("plan", self._file("request.json", {**request, "search": {"strategy": "size_greedy"}}))["plan"]

    def trade(self, request, tolerance):
        """By our default: points of the goal max_memory, without it first."""
        goals = [{"measure": "cost", "tolerance": tolerance}, {"measure": "max_memory"}]
        answer = self._run("plan", self._file("request.json", {**request, "search": {"goals": goals}}))
        return answer["trades"][0]["points"], answer["search"]["search_ms"] / 1000


def entry(table, kind, shards, kernel="fused"):
    cache = {"cache_load_factor": CACHE_LOAD_FACTOR} if kernel == "fused_uvm_caching" else {}
    return {"name": table["name"], "sharding_type": kind, "compute_kernel": kernel, "shards": shards, **cache}


def parser(description, solver):
    """Of a comparison's arguments."""
    of = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    of.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    of.add_argument("--sizes", default="26x8,100x8,26x16,100x32", help="TABLESxRANKS,...")
    of.add_argument("--seeds", default="1,2")
    of.add_argument("--limit-s", type=int, default=60, help=f"{solver}'s limit of time for each plan")
    return of
