#!/usr/bin/env python3
"""A planner under far more calls than it can take: does it stay small, answer cheap calls, and shed at once?

    bench/overload.py --bin build/release/bin            needs the Python package neuroshard (pip install ./client/python), 400 callers for 30 s

--callers callers ask for the plan of one request of 26 tables on 128 ranks with `refine`, each again as soon as it has an answer, or after the
delay that the refusal asks for (planner_load --callers: one thread and one completion queue for all, a connection for each). Beside them a process
of its own calls the health service, ListCostModels and ShardPlan in turn. Reported: what callers got and how long they waited for it, the same of
the lone caller, memory and threads of the planner, and what is in flight when all have left.

The callers take cores of this machine: --callers-niceness 19 gives them what planner and lone caller leave. --loopback (root) divides the time of
refusals by when their bytes were on the loopback, so that what callers wait for among themselves is told from what the planner takes.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc
from google.protobuf import json_format
from neuroshard import v1
from neuroshard.call import CHANNEL_OPTIONS

from loopback import Loopback
from server_process import PlannerProcess

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "torchrec"))
import make_requests  # noqa: E402

DEADLINE_S = 60
PLAN, LIST, HEALTH = "/neuroshard.v1.PlannerService/ShardPlan", "/neuroshard.v1.PlannerService/ListCostModels", "/grpc.health.v1.Health/Check"


def quantiles(seconds):
    if len(seconds) < 2:
        return {"calls": len(seconds)}
    cuts = statistics.quantiles(seconds, n=100)
    return {"calls": len(seconds), "p50_ms": 1e3 * cuts[49], "p99_ms": 1e3 * cuts[98], "most_ms": 1e3 * max(seconds)}


def probe(address, seconds, body):
    """The lone caller: seconds by kind of call."""
    times = collections.defaultdict(list)
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for kind, method, message in (("health", HEALTH, b""), ("ListCostModels", LIST, b""), ("ShardPlan", PLAN, body)):
                began = time.monotonic()
                try:
                    channel.unary_unary(method)(message, timeout=DEADLINE_S)
                except grpc.RpcError as fault:
                    kind += " " + fault.code().name
                times[kind].append(time.monotonic() - began)
            time.sleep(0.02)
    return times


def of_process(pid, key):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key + ":")).split()[1])


def time_of_threads(pid):
    """Seconds that the process's threads ran, and that they waited for a core, by whether they have a lower priority (searches)."""
    total = {"gRPC": [0.0, 0.0], "searches": [0.0, 0.0]}
    niceness = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            niceness[task] = int((task / "stat").read_text().rpartition(")")[2].split()[16])
    for task, steps in niceness.items():
        with contextlib.suppress(OSError):
            ran, waited, _ = map(int, (task / "schedstat").read_text().split())
            kind = total["searches" if steps > niceness[pathlib.Path(f"/proc/{pid}/task/{pid}")] else "gRPC"]
            kind[0] += ran / 1e9
            kind[1] += waited / 1e9
    return total


def left_behind(planner):
    """What /metrics says is still held: calls, threads of searches, memory of requests, and connections a second later (one is the lone caller's)."""
    address = re.search(r"metrics_listening address=(\S+)", planner.log.read_text())[1]
    time.sleep(1.5)  # connections are counted once a second
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    names = ("rpc_in_flight", "search_threads", "request_memory_bytes", "rpc_connections")
    return {name: sum(float(line.split()[-1]) for line in lines if re.match(rf"neuroshard_{name}[ {{]", line)) for name in names}


def durations_of_refusals(log):
    """Seconds from admission to answer, of those refusals that were logged (a hundred a second)."""
    pattern = re.compile(r"call_failed .*\bcode=RESOURCE_EXHAUSTED\b")
    return [float(re.search(r"duration_ms=([0-9.e+-]+)", line)[1]) / 1e3 for line in log.read_text().splitlines() if pattern.search(line)]


def parts_of_refusals(calls, seen):
    """Seconds between the caller, the loopback and the caller again. Streams of a connection count its calls."""
    parts = collections.defaultdict(list)
    wall_ns = time.time_ns() - time.monotonic_ns()
    next_stream = collections.Counter()
    for call in sorted(calls, key=lambda call: call["began_ns"]):
        stream = 2 * next_stream[call["caller"]] + 1
        next_stream[call["caller"]] += 1
        if call["code"] != "RESOURCE_EXHAUSTED" or (call["caller"], stream) not in seen:
            continue
        asked, answered = seen[call["caller"], stream]
        parts["caller, until the request is on the loopback"].append(asked - (call["began_ns"] + wall_ns) / 1e9)
        parts["planner, until the answer is on the loopback"].append(answered - asked)
        parts["caller, until it has the answer"].append((call["ended_ns"] + wall_ns) / 1e9 - answered)
    return parts


def callers(options, address, folder):
    request, results = folder / "request.json", folder / "calls.json"
    request.write_text(json.dumps(make_requests.request(26, 128, 1)))
    command = ["nice", "-n", options.callers_niceness, options.bin / "planner_load", "--planner", address, "--callers", options.callers,
               "--seconds", options.seconds, "--spread-s", options.spread_s, "--json", results, request]
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL), results


def run(options, planner, folder):
    body = json_format.ParseDict(make_requests.request(26, 128, 1), v1.ShardPlanRequest()).SerializeToString()
    alone = probe(planner.address, 2, body)
    pid = planner.process.pid
    with contextlib.ExitStack() as stack:
        loopback = stack.enter_context(Loopback(int(planner.address.rpartition(":")[2]))) if options.loopback else None
        load, results = callers(options, planner.address, folder)
        time.sleep(options.spread_s + 2)  # until all have connected and begun
        before = time_of_threads(pid)
        beside = probe(planner.address, options.seconds - options.spread_s - 4, body)
        after, threads = time_of_threads(pid), of_process(pid, "Threads")
        if load.wait():
            raise SystemExit("the callers failed")
    began = time.monotonic()
    with grpc.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
        channel.unary_unary(PLAN)(body, timeout=DEADLINE_S)
    afterwards_s = time.monotonic() - began
    calls = json.loads(results.read_text())["calls"]
    outcomes, late, advice = collections.defaultdict(list), [], []
    for call in calls:
        outcomes[call["code"]].append((call["ended_ns"] - call["began_ns"]) / 1e9)
        late.append(call["late_ns"] / 1e9)
        if "retry_after_ms" in call:
            advice.append(call["retry_after_ms"] / 1e3)
    refused = outcomes.get("RESOURCE_EXHAUSTED", [])
    rows = {
        "callers": outcomes | {"told to come back after": advice, "came late by": late},
        "lone caller, before": alone, "lone caller, beside them": beside,
        "a refusal": {"planner, from admission on": durations_of_refusals(planner.log)}
        | (parts_of_refusals(calls, loopback.calls()) if loopback else {}),
    }
    return {
        "callers": options.callers, "callers_niceness": options.callers_niceness, "seconds": options.seconds, "spread_s": options.spread_s,
        "rows": {title: {kind: quantiles(times) for kind, times in kinds.items()} for title, kinds in rows.items()},
        "refusals_over_50_ms": sum(seconds > 0.05 for seconds in refused), "refusals_without_retry_info": len(refused) - len(advice),
        "threads_s": {kind: {"ran": after[kind][0] - before[kind][0], "waited": after[kind][1] - before[kind][1]} for kind in after},
        "peak_mib": planner.peak_rss_bytes() / (1 << 20), "threads": threads, "plan_afterwards_s": afterwards_s,
        "left": left_behind(planner),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--callers", type=int, default=400)
    parser.add_argument("--callers-niceness", type=int, default=0, help="0: of equal priority; 19: the lowest")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--spread-s", type=float, default=1, help="over what time callers begin; 0: all at once")
    parser.add_argument("--loopback", action="store_true", help="note when bytes of the calls are on the loopback; needs root")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:
        result = run(options, planner, pathlib.Path(name))
    print("| what | calls | p50, ms | p99, ms | most, ms |\n|---|---|---|---|---|")
    for title, kinds in result["rows"].items():
        for kind, row in kinds.items():
            print(f"| {title}: {kind} | {row['calls']} | " + " | ".join(f"{row[key]:.1f}" if key in row else "-" for key in ("p50_ms", "p99_ms", "most_ms")) + " |")
    print(f"\n{result['refusals_over_50_ms']} refusals took their callers more than 50 ms, {result['refusals_without_retry_info']} did not say when to come back.")
    for kind, row in result["threads_s"].items():
        print(f"Threads of {kind}: ran {row['ran']:.2f} s, waited {row['waited']:.2f} s for a core.")
    print(f"Peak memory {result['peak_mib']:.0f} MiB, {result['threads']} threads under load; a plan right afterwards took {result['plan_afterwards_s']:.2f} s.")
    print("Left: " + ", ".join(f"{name} {value:.0f}" for name, value in result["left"].items()) + ".")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
