#!/usr/bin/env python3
"""TorchRec itself and ours plan the same requests; each prices both plans. Runs in the environment of bench/pytorch/setup_environment.sh.

    build/pytorch/bin/python bench/torchrec/compare.py --bin build/release/bin       100x8, 200x8, 26x128 and 100x128, seeds 1 to 5
    build/pytorch/bin/python bench/torchrec/compare.py --bin build/release/bin --sizes 500x64,1000x128 --seeds 1 --limit-s 600
    build/pytorch/bin/python bench/torchrec/compare.py --bin build/release/bin --host-memory     100x8, 100x32 and 26x128, device memory 30 % of the weights

TorchRec's EmbeddingShardingPlanner plans with its default settings and with those of peer.SETTINGS but the last, each in a process of its own and for
--limit-s seconds; past them its best plan so far counts. --plans keeps its plans, and those that are there are not asked for again, whatever the limit was;
--peers-only asks for nothing else. Ours plans as it comes, and under TorchRec's rule of one column width a table. All plans are
priced by EvaluatePlan and by TorchRec's estimators; where costs differ by more than 1e-5, or the memory of a rank by a byte (of the device or the host), the comparison ends with an
error. Times are seconds of one core, which other work on the machine lengthens less than the clock's.

Results go into --json after every request; started again with the same file it goes on behind them. Exits 1 where one of ours is dearer than TorchRec's
cheapest.
"""

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import make_requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server_process import PlannerProcess  # noqa: E402

TOLERANCE = 1e-5  # relative; our costs are floats


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plan_in_child(sender, request, setting, limit_s):
    import peer  # the parent has loaded it

    began, worked = time.monotonic(), time.process_time()
    try:
        answer = {"plan": peer.Peer(request).plan(setting, limit_s)}
    except Exception as error:  # what its user would see
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    sender.send(answer | {"wall_s": time.monotonic() - began, "cpu_s": time.process_time() - worked})


def torchrec_plan(request, setting, limit_s):
    """{plan | error, wall_s, cpu_s}. Building the options is not under TorchRec's limit, so the process has three times as long."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=plan_in_child, args=(sender, request, setting, limit_s))
    child.start()
    sender.close()
    try:
        if receiver.poll(3 * limit_s):
            return receiver.recv()
        return {"error": f"no answer in {3 * limit_s} s", "wall_s": 3.0 * limit_s, "cpu_s": cpu_s(child.pid)}
    except EOFError:
        return {"error": "its process ended", "wall_s": 0.0, "cpu_s": 0.0}
    finally:
        child.kill()
        child.join()
        receiver.close()


class PlansOfTorchRec:
    """Its answers, in a file if `path` is one: they take minutes."""

    def __init__(self, path):
        self._path = path
        self._answers = json.loads(path.read_text()) if path and path.exists() else {}

    def get(self, request, setting, limit_s):
        """{plan | error, wall_s, cpu_s, limit_s}."""
        key = f"{hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()} {setting}"
        if key not in self._answers:
            self._answers[key] = torchrec_plan(request, setting, limit_s) | {"limit_s": limit_s}
            if self._path:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(json.dumps(self._answers) + "\n")
        return dict(self._answers[key])


class Comparison:
    """One request, and a planner of ours to ask."""

    def __init__(self, label, request, planner, cli, folder):
        import peer

        self.label, self.request = label, request
        self.peer = peer.Peer(request)
        self.planner, self.cli, self.folder = planner, cli, folder

    def price(self, plan):
        """Our price and TorchRec's, which have to agree."""
        (self.folder / "request.json").write_text(json.dumps(self.request))
        (self.folder / "plan.json").write_text(json.dumps({"plan": plan}))
        ours = self.cli("evaluate", self.folder / "request.json", self.folder / "plan.json")
        if not ours["legal"]:
            raise SystemExit(f"{self.label}: the plan breaks rules: {ours['violations'][:3]}")
        their_cost_ms, their_bytes, their_host_bytes = self.peer.rate(plan)
        prices = {"cost_ms": ours["cost"]["embedding_cost_ms"], "torchrec_cost_ms": their_cost_ms}
        if not math.isclose(*prices.values(), rel_tol=TOLERANCE):
            raise SystemExit(f"{self.label}: EvaluatePlan and TorchRec's estimator disagree: {prices}")
        our_bytes = [r["memory"]["total_bytes"] - r["memory"]["reserve_bytes"] for r in ours["cost"]["ranks"]]
        if our_bytes != their_bytes:
            raise SystemExit(f"{self.label}: EvaluatePlan and TorchRec's storage estimator disagree: {our_bytes[:8]}, {their_bytes[:8]}")
        our_host_bytes = [int(r["memory"].get("host_total_bytes", 0)) for r in ours["cost"]["ranks"]]
        if our_host_bytes != their_host_bytes:
            raise SystemExit(f"{self.label}: EvaluatePlan and TorchRec disagree about host memory: {our_host_bytes[:8]}, {their_host_bytes[:8]}")
        return prices

    def theirs(self, answer):
        plan = answer.pop("plan", None)
        return answer | (self.price(plan) if plan else {})

    def ours(self, **constraints):
        (self.folder / "request.json").write_text(json.dumps(self.request | ({"constraints": constraints} if constraints else {})))
        worked = cpu_s(self.planner.process.pid)
        answer = self.cli("plan", self.folder / "request.json")
        times = {"search_s": answer["search"]["search_ms"] / 1000, "cpu_s": cpu_s(self.planner.process.pid) - worked}
        return self.price(answer["plan"]) | times | {"bound_ms": answer["lower_bound"]["cost_ms"] if "lower_bound" in answer else None}


def best(result):
    """(setting, what it came to) of TorchRec's cheapest plan; None where it found none."""
    planned = {setting: r for setting, r in result["torchrec"].items() if "cost_ms" in r}
    return min(planned.items(), key=lambda item: item[1]["cost_ms"]) if planned else None


def row(result):
    """A line of Markdown."""
    head = f"| {result['tables']}x{result['ranks']} | {result['seed']} "
    ours, narrow = result["ours"], result["ours_torchrec_columns"]
    tail = f"| {ours['cost_ms']:.3f} | {narrow['cost_ms']:.3f} "
    default, cheapest = result["torchrec"].get("default", {}), best(result)
    bound = f"{ours['cost_ms'] / ours['bound_ms']:.3f}" if ours["bound_ms"] else "none"
    theirs = f"| {default['cost_ms']:.3f} | {default['cpu_s']:.1f} " if "cost_ms" in default else f"| none: {default.get('error', '')[:60]} | - "
    if cheapest is None:
        return head + theirs + "| - | - " + tail + f"| - | - | {bound} | {ours['cpu_s']:.2f} |"
    setting, found = cheapest
    return (head + theirs + f"| {found['cost_ms']:.3f} ({setting}) | {found['cpu_s']:.1f} " + tail
            + f"| {ours['cost_ms'] / found['cost_ms']:.4f} | {narrow['cost_ms'] / found['cost_ms']:.4f} "
            + f"| {bound} | {ours['cpu_s']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of neuroshard and neuroshard-planner; needed without --peers-only")
    parser.add_argument("--host-memory", action="store_true", help="the requests of make_requests.py --host-memory")
    parser.add_argument("--sizes", help="TABLESxRANKS,...")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--settings", help="numbers of peer.SETTINGS (HOST_SETTINGS), 0 is the default; default: all but the last, which is no setting of TorchRec")
    parser.add_argument("--plans", type=pathlib.Path, help="file of TorchRec's plans")
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument("--limit-s", type=int, default=120, help="TorchRec's limit of time for each plan")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()
    if not options.bin and not options.peers_only:
        parser.error("--bin is needed")
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of TorchRec's options depends on it
        os.execve(sys.executable, [sys.executable, "-B", *sys.argv], os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"})
    try:
        import peer
    except ImportError as error:
        raise SystemExit(f"{error}; run bench/pytorch/setup_environment.sh, and this with build/pytorch/bin/python") from None
    known = peer.HOST_SETTINGS if options.host_memory else peer.SETTINGS
    settings = [known[int(n)] for n in options.settings.split(",")] if options.settings else known[:-1]
    sizes = options.sizes or ("100x8,100x32,26x128" if options.host_memory else "100x8,200x8,26x128,100x128")
    cases = [(*map(int, size.split("x")), int(seed)) for size in sizes.split(",") for seed in options.seeds.split(",")]
    plans = PlansOfTorchRec(options.plans)
    if options.peers_only:
        for tables, ranks, seed in cases:
            for setting in settings:
                answer = plans.get(make_requests.request(tables, ranks, seed, options.host_memory), setting, options.limit_s)
                print(f"{tables}x{ranks}, seed {seed}, {setting}: {answer.get('error', 'a plan')}, {answer['cpu_s']:.1f} s", flush=True)
        return 0

    results = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:

        def cli(*arguments):
            command = [options.bin / "neuroshard", *arguments, "--planner", planner.address, "--format", "json"]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if not done.stdout:
                raise SystemExit(done.stderr)
            return json.loads(done.stdout)

        print("| tables x ranks | seed | TorchRec, default, ms | s | TorchRec, best setting, ms | s | ours, ms | with TorchRec's column widths, ms "
              "| ours / TorchRec's best | with its widths | ours / bound | ours, s |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|")
        for tables, ranks, seed in cases:
            key = {"tables": tables, "ranks": ranks, "seed": seed}
            result = next((r for r in results if key.items() <= r.items()), None)
            if result is None:
                request = make_requests.request(tables, ranks, seed, options.host_memory)
                comparison = Comparison(f"{tables}x{ranks}, seed {seed}", request, planner, cli, pathlib.Path(name))
                result = key | {
                    "ours": comparison.ours(),
                    "ours_torchrec_columns": comparison.ours(column_rule="torchrec"),
                    "torchrec": {setting: comparison.theirs(plans.get(request, setting, options.limit_s)) for setting in settings},
                }
                results.append(result)
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")
            print(row(result), flush=True)
    dearer = [r for r in results if best(r) and r["ours"]["cost_ms"] > best(r)[1]["cost_ms"] * (1 + TOLERANCE)]
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
