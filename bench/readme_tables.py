#!/usr/bin/env python3
"""Writes the figures of run_all.py into README.md and bench/README.md, and an example of an answer into the former, each between the
lines that name this script.

    readme_tables.py bench/results/CPU             shows both
    readme_tables.py bench/results/CPU --write
"""

import argparse
import json
import os
import pathlib
import re
import sys

from provenance import ROOT

PARTS = ("search", "load", "tasks", "devices", "torchrec", "scale", "validate")
BEGIN, END = "<!-- {}, by bench/readme_tables.py -->\n", "<!-- end -->\n"


def table(head, rows):
    lines = ["| " + " | ".join(line) + " |\n" for line in (head, *rows)]
    return lines[0] + "|---" * len(head) + "|\n" + "".join(lines[1:])


def span(values, digits=3):
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def ms(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def tasks(results):
    rows = sorted(results["tasks"]["rows"], key=lambda r: r["mean_ratio"])
    return table(
        ["strategy", "solved", "mean cost, ms", "to `neuroshard`: mean", "worst task", "mean search, ms"],
        [[f"`{r['strategy']}`", f"{r['solved']} of {r['tasks']}", f"{r['mean_cost_ms']:.3f}", f"{r['mean_ratio']:.3f}",
          f"{r['max_ratio']:.3f}", ms(r["mean_search_ms"])] for r in rows],
    )


def devices(results):
    rows, long = results["devices"]["rows"], {r["devices"]: r for r in results["devices"]["long"]}
    by_count = {}
    for r in rows:
        by_count.setdefault(r["devices"], {})[r["strategy"]] = r
    lines = []
    for count, r in by_count.items():
        refine, base = r["refine"], r["neuroshard"]
        line = [str(count), f"{base['solved']}, {refine['solved']}", f"{refine['mean_ratio']:.4f}", f"{refine['max_ratio']:.4f}"]
        line.append(f"{long[count]['short_ratio']:.4f}, {long[count]['long_ratio']:.4f}" if count in long else "-")
        lines.append([*line, ms(base["mean_search_ms"]), ms(refine["mean_search_ms"])])
    first = next(iter(long.values()))
    return table(
        ["devices", "tasks solved by `neuroshard`, `refine`", "cost of `refine` to `neuroshard`: mean", "worst task",
         f"first {first['tasks']} tasks: as it comes, in {first['long_ms'] / 1000:g} s", "search of `neuroshard`, ms", "of `refine`, ms"],
        lines,
    )


def torchrec(results):
    by_size = {}
    for r in results["torchrec"]:
        by_size.setdefault(f"{r['tables']} x {r['ranks']}", []).append(r)

    def column(cases, key):
        return span([c["ratios"][key] for c in cases])

    return table(
        ["tables x ranks", "requests", "our cost / TorchRec's", "with `grid_shard` listed to TorchRec", "without it in both",
         "our search, s", "TorchRec's (in Python), s"],
        [[size, str(len(cases)), column(cases, "default"), column(cases, "grid_listed"), column(cases, "six_types"),
          span([c["ours"]["search_s"] for c in cases], 2), span([c["torchrec"]["plan_s"] for c in cases], 1)]
         for size, cases in by_size.items()],
    )


def load(results):
    return table(
        ["100 tasks on 4 devices", "in flight", "plans/s", "to one in flight", "p50, ms", "p99, ms", "first plan: p50, p99, ms"],
        [[r["case"], str(r["in_flight"]), f"{r['plans_per_s']:.0f}", f"{r['plans_per_s'] / alone(results, r)['plans_per_s']:.2f}",
          ms(r["p50_ms"]), ms(r["p99_ms"]),
          f"{ms(r['first_plan_p50_ms'])}, {ms(r['first_plan_p99_ms'])}" if "first_plan_p50_ms" in r else "-"]
         for r in results["load"]],
    )


def alone(results, run):
    return next(r for r in results["load"] if r["case"] == run["case"])


def scale(results):
    return table(
        ["tables x ranks", "first plan, ms", "of it per table and rank, us", "search, ms", "peak memory, MiB"],
        [[f"{r['tables']:,} x {r['ranks']:,}", ms(r["first_plan_ms"]), f"{1000 * r['first_plan_ms'] / r['tables'] / r['ranks']:.2f}",
          f"{r['search_ms']:.0f}", f"{r['peak_rss_bytes'] / 2**20:.0f}"] for r in results["scale"]],
    )


def whole_search(results, which):
    return next(r for r in results["search"] if r["name"].startswith(f"BM_Search/{which}"))


def search(results):
    """What the search costs, from its innermost call on, as ratios where there is something to compare with."""
    lines = []
    for r in results["search"]:
        kind, *rest = r["name"].removeprefix("BM_").split("/")
        if kind == "HeadEvaluations":
            lines.append([f"head evaluations, {rest[0]} in a call", f"{r['items_per_second'] / 1e6:.1f} million a second",
                          f"{r['of_gemm']:.2f} of the matrix products alone", f"{r['allocs_per_call']:.0f} a call"])
        elif kind == "GreedyPass":
            lines.append([f"greedy pass, {rest[0]} devices", f"{1e6 * r['per_pass']:.0f} us a task", "-", "-"])
        else:
            strategy, *universal = rest[0].split("_")
            model = ", universal model" if universal else ""
            lines.append([f"`{strategy}`{model}, {rest[1]} devices", f"{1e3 * r['per_task']:.1f} ms a task",
                          f"{r['to_neuroshard']:.4f} of the cost of `neuroshard`",
                          f"none in {100 * r['steps_without_alloc']:.2f} % of steps"])
    return table(["one thread, CPU time", "speed", "ratio", "memory requests"], lines)


def answer(results):
    return f"```\n{results['validate']['answer']}\n```\n"


def titled(results, part, title, content):
    return f"**{title}** `{results['commands'][part]}`\n\n{content}"


def summary(results, folder):
    """The section of README.md."""
    errors = ", ".join(f"{e:+.1f}" for e in results["validate"]["errors_percent"])
    return "\n".join([
        f"What follows is from one run of `bench/run_all.py --bin build/release/bin` on {results['cpu']}, at commit {results['commit']}\n"
        f"(all of it: [{folder}]({folder}); single parts: the command beside each title).\n",
        titled(results, "tasks", "Strategies compared", tasks(results)),
        "NeuroShard's 100 benchmark tasks (10 to 59 tables, 4 devices x 4 GiB), predicted by the shipped model at a batch of 4,096, the\n"
        "largest that it was measured at. Ratios are over the tasks that both solved; the baselines cut no tables, which three tasks demand.\n"
        f"`neuroshard` takes {1e3 * whole_search(results, 'neuroshard_universal/4')['per_task']:.1f} ms of one core a task "
        f"({1e3 * whole_search(results, 'neuroshard/4')['per_task']:.1f} with the paper's networks),\n"
        "and asks for memory in none of the calls of its cost model. More of that in [bench](bench/README.md#figures).\n",
        titled(results, "devices", "On more devices", devices(results)),
        "The same tasks with the paper's networks (version 1 of the shipped model); their communication is made up, since nobody has measured 128 devices.\n",
        titled(results, "torchrec", "Against TorchRec's planner", torchrec(results)),
        "Under TorchRec's own cost, the cheapest plan of its four proposers ([how](bench/README.md#torchrecs-planner-beside-ours)).\n",
        titled(results, "load", "One planner under load", load(results)),
        titled(results, "scale", "Time against size", scale(results)),
        f"`refine` under `analytic`; [plot]({folder}/scale.svg).\n",
        titled(results, "validate", "A plan for real",
               f"```\n{results['validate']['first']}\n```\n\nOver two workers on this machine; errors of "
               f"{len(results['validate']['errors_percent'])} runs in a row: {errors} %, "
               f"measured inside the 90 % interval: {', '.join(results['validate']['inside_interval'])}.\n"),
    ])


def details(results, folder):
    """The section of bench/README.md."""
    return "\n".join([
        f"From one run on {results['cpu']}, at commit {results['commit']}. The tables of the parts that are not here are in the\n"
        f"[README](../README.md#what-was-measured), everything is in [{folder}]({os.path.relpath(folder, 'bench')}).\n",
        titled(results, "search", "The search on one thread", search(results)),
        titled(results, "devices", "Strategies that cut tables: mean cost to `neuroshard` (tasks solved)", peers(results)),
        "NVIDIA's `basic` and its kin cut without looking at memory, as the originals do; a plan that does not fit counts as none.\n",
    ])


def peers(results):
    rows = results["devices"]["rows"]
    strategies = list(dict.fromkeys(r["strategy"] for r in rows))
    counts = list(dict.fromkeys(r["devices"] for r in rows))
    cell = {(r["strategy"], r["devices"]): f"{r['mean_ratio']:.3f} ({r['solved']})" if r["mean_ratio"] else f"- ({r['solved']})"
            for r in rows}
    return table(["devices", *map(str, counts)], [[f"`{s}`", *(cell[s, c] for c in counts)] for s in strategies])


def replace(file, name, text):
    begin = BEGIN.format(name)
    pattern = re.escape(begin) + ".*?" + re.escape(END)
    new, count = re.subn(pattern, lambda _: f"{begin}\n{text}\n{END}", file.read_text(), flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{file}: {count} places between the lines {begin.strip()} and {END.strip()}, not one")
    file.write_text(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    results, origins = {"commands": {}}, set()
    for part in PARTS:
        content = json.loads((options.results / f"{part}.json").read_text())
        results[part] = content["results"]
        facts = content["provenance"]
        results["commands"][part] = facts["command"]
        results["commit"], results["cpu"] = facts["commit"], facts["cpu"]
        origins.add((facts["commit"], facts["cpu"]))
    if len(origins) > 1:
        raise SystemExit(f"the parts are not of one commit and machine: {sorted(origins)}")
    folder = options.results.relative_to(ROOT).as_posix()
    if options.write:
        replace(ROOT / "README.md", "answer", answer(results))
        replace(ROOT / "README.md", "figures", summary(results, folder))
        replace(ROOT / "bench/README.md", "figures", details(results, folder))
    else:
        print(answer(results), summary(results, folder), details(results, folder), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
