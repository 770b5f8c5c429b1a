#!/usr/bin/env python3
"""Every measurement of this folder but the kernels' bandwidths, one after the other.

    run_all.py --bin build/release/bin                         all of it, 7 minutes on 2 cores; nothing else should run meanwhile
    run_all.py --bin build/release/bin --quick                 does everything work? a minute, figures for nobody
    run_all.py --bin build/release/bin --only load,tasks
    run_all.py --bin build/release/bin --only embeddings,collectives,torchrec    beside PyTorch, after bench/pytorch/setup_environment.sh (5 GB)

Each part writes PART.json and PART.md with commit, command and CPU into --out (default: bench/results/CPU, with --quick
build/bench-quick) and has a limit of time. Started again on the same commit it goes on with the parts that are missing;
--again measures them all. Exits 1 when a part failed or found what it measures wanting; the others are measured all the same.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

import provenance

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH / "scale"))
import scale_plot  # noqa: E402

STRATEGIES = "neuroshard,refine,size_lookup_greedy,lookup_greedy,dim_greedy,random,size_greedy"


@dataclasses.dataclass
class Part:
    name: str
    title: str
    command: list  # writes Markdown to its standard output
    quick: list  # more arguments with --quick
    limit_s: int
    json_flag: str = "--json="
    code: bool = False  # the output is not Markdown but columns of text
    setup: str = ""  # what has to be run before; such a part is measured when --only names it


def parts(binaries):
    python = [sys.executable, "-B"]
    with_bin = ["--bin", binaries]
    pytorch, setup = [provenance.ROOT / "build/pytorch/bin/python", "-B"], "bench/pytorch/setup_environment.sh"
    return [
        Part("search", "The search on one thread", [binaries / "search_bench", "--benchmark_out_format=json"],
             ["--benchmark_min_time=0.05", "--benchmark_filter=Head|Greedy|Search/neuroshard/4"], 240, "--benchmark_out=", True),
        Part("load", "Load on one planner, 100 tasks on 4 devices", [*python, BENCH / "load.py", *with_bin], ["--seconds=1"], 240),
        Part("tasks", "The 100 tasks on 4 devices, with the shipped cost model",
             [*python, BENCH / "eval_devices.py", *with_bin, "--devices=4", "--model=cpu-amd-epyc", f"--strategies={STRATEGIES}"],
             ["--limit=5"], 120),
        Part("devices", "The 100 tasks on 4 to 128 devices", [*python, BENCH / "eval_devices.py", *with_bin, "--long-tasks=5"],
             ["--limit=5", "--long-tasks=1", "--long-ms=500"], 720),
        Part("scale", "Time and memory against size", [*python, BENCH / "scale/measure.py", *with_bin],
             ["--calls=1", "--sizes=100x8,1000x128"], 300),
        Part("validate", "A plan for real", [*python, BENCH / "validate.py", *with_bin], ["--runs=1"], 120),
        Part("torchrec", "TorchRec's planner and ours, each plan priced by both", [*pytorch, BENCH / "torchrec/compare.py", *with_bin],
             ["--seeds=1", "--sizes=100x8", "--settings=0"], 7200, setup=setup),
        Part("embeddings", "Our CPU embedding kernels beside FBGEMM's", [*pytorch, BENCH / "pytorch/embeddings.py", *with_bin],
             ["--seconds=0.2", "--dims=64"], 300, setup=setup),
        Part("collectives", "Our collectives beside torch.distributed's over Gloo", [*pytorch, BENCH / "pytorch/collectives.py", *with_bin],
             ["--rounds=1", "--ranks=2"], 480, setup=setup),
    ]


def shown(command):
    words = [os.path.relpath(c, provenance.ROOT) if pathlib.Path(c).is_absolute() else str(c) for c in map(str, command)]
    return shlex.join(words[2:] if words[1] == "-B" else words)


def output_of(command, limit_s):
    """(exit status, output); the output is shown as it comes. Past the limit the command and all it started are killed."""
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True, start_new_session=True)

    def kill():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, kill)
    timer.start()
    lines = []
    try:
        for line in process.stdout:
            print("   " + line, end="", flush=True)
            lines.append(line)
        return process.wait(), "".join(lines)
    finally:
        timer.cancel()
        kill()
        process.wait()


def is_done(file, facts):
    """Measured before on this very commit, with this command, and found good."""
    if not file.exists() or facts["commit"].endswith("changes"):
        return False
    old = json.loads(file.read_text())
    return old["exit_status"] == 0 and all(old["provenance"][key] == facts[key] for key in ("commit", "command", "cpu"))


def measure(part, facts, out):
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name) / "results.json"
        status, text = output_of([*part.command, part.json_flag + str(file)], part.limit_s)
        if not file.exists():
            return f"no results, exit status {status}"
        try:
            results = json.loads(file.read_text())
        except json.JSONDecodeError:  # it was killed while it wrote
            return f"no whole results, exit status {status}"
    if part.name == "search":
        results = results["benchmarks"]  # without the machine's name
    content = {"provenance": facts, "exit_status": status, "results": results}
    (out / f"{part.name}.json").write_text(json.dumps(content, indent=1) + "\n")
    head = "".join(f"- {key}: {value}\n" for key, value in facts.items())
    body = f"```\n{text.strip()}\n```" if part.code else text.strip()
    (out / f"{part.name}.md").write_text(f"# {part.title}\n\n{head}\n{body}\n")
    if part.name == "scale":
        (out / "scale.svg").write_text(scale_plot.svg(results))
    return f"exit status {status}" if status else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", help="PART,... of search, load, tasks, devices, scale, validate, torchrec, embeddings, collectives")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))

    chosen = parts(options.bin)
    if options.only:
        names = options.only.split(",")
        unknown = set(names) - {part.name for part in chosen}
        if unknown:
            raise SystemExit(f"--only: no part is called {', '.join(sorted(unknown))}")
        chosen = [part for part in chosen if part.name in names]
        for part in chosen:
            if part.setup and not part.command[0].exists():
                raise SystemExit(f"{part.name}: run {part.setup} first")
    else:
        chosen = [part for part in chosen if not part.setup]
    out = options.out or (provenance.ROOT / "build/bench-quick" if options.quick else provenance.RESULTS / provenance.machine())
    out.mkdir(parents=True, exist_ok=True)
    faults = []
    for number, part in enumerate(chosen, 1):
        if options.quick:
            part.command += part.quick
        facts = {"commit": provenance.commit(), "command": shown(part.command), "cpu": provenance.cpu()}
        label = f"[{number}/{len(chosen)} {part.name}]"
        if not options.again and is_done(out / f"{part.name}.json", facts):
            print(f"{label} was measured before", flush=True)
            continue
        print(f"{label} at most {part.limit_s} s: {facts['command']}", flush=True)
        began = time.monotonic()
        fault = measure(part, facts, out)
        print(f"{label} {time.monotonic() - began:.0f} s, {fault or 'good'}", flush=True)
        if fault:
            faults.append(f"{part.name}: {fault}")
    print(f"results: {out}", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
