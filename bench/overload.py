#!/usr/bin/env python3
"""A planner under far more calls than it can take: does it stay small, answer cheap calls, and shed at once?

    bench/overload.py --bin build/release/bin            needs the Python package neuroshard (pip install ./client/python), 400 callers for 30 s

--callers callers ask for the plan of one request of 26 tables on 128 ranks with `refine`, each again as soon as it has an answer, or after the
delay that the refusal asks for. Beside them a process of its own calls the health service, ListCostModels and ShardPlan in turn. Reported: what
callers got, how long answers of each kind took the lone caller, memory and threads of the planner, and what is in flight when all have left.

The callers take cores of this machine: --callers-niceness 19 gives them what planner and lone caller leave, nearly as if they were on another one.
"""

import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

import grpc
from google.protobuf import json_format
from neuroshard import errors, v1
from neuroshard.call import CHANNEL_OPTIONS

from server_process import PlannerProcess

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "torchrec"))
import make_requests  # noqa: E402

DEADLINE_S = 60
PLAN, LIST, HEALTH = "/neuroshard.v1.PlannerService/ShardPlan", "/neuroshard.v1.PlannerService/ListCostModels", "/grpc.health.v1.Health/Check"


def request_bytes():
    return json_format.ParseDict(make_requests.request(26, 128, 1), v1.ShardPlanRequest()).SerializeToString()


async def caller(plan, body, until, outcomes):
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            await plan(body, timeout=DEADLINE_S)
            outcomes["OK"].append(time.monotonic() - began)
        except grpc.aio.AioRpcError as fault:
            outcomes[fault.code().name].append(time.monotonic() - began)
            error = errors.from_status(fault.code(), fault.details(), fault.trailing_metadata(), "")
            await asyncio.sleep(error.retry_delay_s or 0.25)


def crowd(address, callers, niceness, seconds, body, results):
    os.nice(niceness)

    async def run():
        outcomes = collections.defaultdict(list)
        # Connections of their own, as callers on other hosts have them.
        channels = [grpc.aio.insecure_channel(address, options=[*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]) for _ in range(min(callers, 40))]
        plans = [channel.unary_unary(PLAN) for channel in channels]
        until = time.monotonic() + seconds
        await asyncio.gather(*(caller(plans[i % len(plans)], body, until, outcomes) for i in range(callers)))
        for channel in channels:
            await channel.close()
        return dict(outcomes)

    results.put(asyncio.run(run()))


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--callers", type=int, default=400)
    parser.add_argument("--callers-niceness", type=int, default=0, help="0: of equal priority; 19: the lowest")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    body = request_bytes()
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:
        alone = probe(planner.address, 2, body)
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        load = context.Process(target=crowd, args=(planner.address, options.callers, options.callers_niceness, options.seconds, body, results))
        load.start()
        time.sleep(2)  # until all have begun
        beside = probe(planner.address, options.seconds - 4, body)
        threads = of_process(planner.process.pid, "Threads")
        outcomes = results.get()
        load.join()
        began = time.monotonic()
        with grpc.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
            channel.unary_unary(PLAN)(body, timeout=DEADLINE_S)
        result = {
            "callers": options.callers, "callers_niceness": options.callers_niceness, "seconds": options.seconds,
            "outcomes": {code: quantiles(times) for code, times in outcomes.items()},
            "alone": {kind: quantiles(times) for kind, times in alone.items()},
            "beside": {kind: quantiles(times) for kind, times in beside.items()},
            "peak_mib": planner.peak_rss_bytes() / (1 << 20), "threads": threads, "plan_afterwards_s": time.monotonic() - began,
        }
    print("| what | calls | p50, ms | p99, ms | most, ms |\n|---|---|---|---|---|")
    for title, kinds in (("callers", "outcomes"), ("lone caller, before", "alone"), ("lone caller, beside them", "beside")):
        for kind, row in result[kinds].items():
            print(f"| {title}: {kind} | {row['calls']} | " + " | ".join(f"{row[key]:.1f}" if key in row else "-" for key in ("p50_ms", "p99_ms", "most_ms")) + " |")
    print(f"\nPeak memory {result['peak_mib']:.0f} MiB, {threads} threads under load; a plan right afterwards took {result['plan_afterwards_s']:.2f} s.")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
