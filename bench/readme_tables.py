#!/usr/bin/env python3
"""Writes the figures of bench/README.md, and the headline figures of README.md, each between the lines that
name this script.

    readme_tables.py bench/results/CPU             shows them
    readme_tables.py bench/results/CPU --write

The parts that run_all.py measures by itself have to be in that folder. The others (plans measured, TorchRec's planner, PyTorch's kernels
and collectives) are taken from there or, where it has none, from the one folder beside it that does. Every table has its commit.
The errors of the shipped cost model are those of the reports beside its files.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

import compare_plans
from provenance import ROOT

PARTS = ("search", "load", "tasks", "devices", "scale", "validate")
OTHERS = ("torchrec", "compare_plans", "embeddings", "collectives")
MODEL = ROOT / "configs/models/cpu-amd-epyc"
REPORT_COLUMNS = ("train", "held out", "MSE (ms^2)", "MAPE %", "R2", "Kendall tau", "covered %")
BEGIN, END = "<!-- {}, by bench/readme_tables.py -->\n", "<!-- end -->\n"


def table(head, rows):
    lines = ["| " + " | ".join(line) + " |\n" for line in (head, *rows)]
    return lines[0] + "|---" * len(head) + "|\n" + "".join(lines[1:])


def span(values, digits=3):
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def ms(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def by_key(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


# Tables of bench/README.md, one a part.


def search(results):
    lines = []
    for r in results:
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


def load(results):
    alone = {r["case"]: r["plans_per_s"] for r in results if r["in_flight"] == 1}
    return table(
        ["case", "in flight", "plans/s", "to one in flight", "p50, ms", "p99, ms", "first plan: p50, p99, ms"],
        [[r["case"], str(r["in_flight"]), f"{r['plans_per_s']:.0f}", f"{r['plans_per_s'] / alone[r['case']]:.2f}",
          ms(r["p50_ms"]), ms(r["p99_ms"]),
          f"{ms(r['first_plan_p50_ms'])}, {ms(r['first_plan_p99_ms'])}" if "first_plan_p50_ms" in r else "-"] for r in results],
    )


def tasks(results):
    return table(
        ["strategy", "solved", "mean cost, ms", "to `neuroshard`: mean", "worst task", "mean search, ms"],
        [[f"`{r['strategy']}`", f"{r['solved']} of {r['tasks']}", f"{r['mean_cost_ms']:.3f}", f"{r['mean_ratio']:.3f}",
          f"{r['max_ratio']:.3f}", ms(r["mean_search_ms"])] for r in sorted(results["rows"], key=lambda r: r["mean_ratio"])],
    )


def devices(results):
    long = {r["devices"]: r for r in results["long"]}
    lines = []
    for count, rows in by_key(results["rows"], lambda r: r["devices"]).items():
        of = {r["strategy"]: r for r in rows}
        refine, base = of["refine"], of["neuroshard"]
        line = [str(count), f"{base['solved']}, {refine['solved']}", f"{refine['mean_ratio']:.4f}", f"{refine['max_ratio']:.4f}"]
        line.append(f"{long[count]['short_ratio']:.4f}, {long[count]['long_ratio']:.4f}" if count in long else "-")
        lines.append([*line, ms(base["mean_search_ms"]), ms(refine["mean_search_ms"])])
    first = results["long"][0]
    return table(
        ["devices", "tasks solved by `neuroshard`, `refine`", "cost of `refine` to `neuroshard`: mean", "worst task",
         f"first {first['tasks']} tasks: quick, in {first['long_ms'] / 1000:g} s", "search of `neuroshard`, ms", "of `refine`, ms"],
        lines,
    )


def torchrec_best(case):
    """What TorchRec's cheapest setting came to; None where no setting had a plan."""
    return min((r for r in case["torchrec"].values() if "cost_ms" in r), key=lambda r: r["cost_ms"], default=None)


def torchrec(results):
    def ratios(cases, ours, theirs):
        return span([c[ours]["cost_ms"] / theirs(c)["cost_ms"] for c in cases if "cost_ms" in (theirs(c) or ())], 4)

    def default(case):
        return case["torchrec"]["default"]

    return table(
        ["tables x ranks", "requests", "our cost / TorchRec's by default", "/ its best setting's", "with its column widths / its best setting's",
         "ours / certified lower bound", "our time, s", "TorchRec's by default, s", "its best setting's, s"],
        [[size, str(len(cases)), ratios(cases, "ours", default), ratios(cases, "ours", torchrec_best), ratios(cases, "ours_torchrec_columns", torchrec_best),
          span([c["ours"]["cost_ms"] / c["ours"]["bound_ms"] for c in cases]), span([c["ours"]["cpu_s"] for c in cases], 2),
          span([default(c)["cpu_s"] for c in cases], 1), span([torchrec_best(c)["cpu_s"] for c in cases if torchrec_best(c)], 1)]
         for size, cases in by_key(results, lambda r: f"{r['tables']:,} x {r['ranks']}").items()],
    )


def scale(results):
    return table(
        ["tables x ranks", "first plan, ms", "of it per table and rank, us", "search, ms", "peak memory, MiB"],
        [[f"{r['tables']:,} x {r['ranks']:,}", ms(r["first_plan_ms"]), f"{1000 * r['first_plan_ms'] / r['tables'] / r['ranks']:.2f}",
          f"{r['search_ms']:.0f}", f"{r['peak_rss_bytes'] / 2**20:.0f}"] for r in results],
    )


def validate(results):
    errors = ", ".join(f"{e:+.1f}" for e in results["errors_percent"])
    return (f"```\n{results['first']}\n```\n\nErrors of {len(results['errors_percent'])} runs in a row: {errors} %; "
            f"measured inside the 90 % interval:\n{', '.join(results['inside_interval'])}.\n")


def measured_ratios(results, way):
    """Measured cost of each task's plan to that of the first way."""
    base = results["options"]["plans"][0]
    return [compare_plans.measured_ms(task[way]) / compare_plans.measured_ms(task[base]) for task in results["tasks"]]


def standard_error(values):
    return statistics.stdev(values) / len(values) ** 0.5


def plans_measured(results):
    base, *others = results["options"]["plans"]
    lines = []
    for way in others:
        model = way.split(":")[0]
        ratios = measured_ratios(results, way)
        predicted = [compare_plans.total(task[way]["predicted"][model]) / compare_plans.total(task[base]["predicted"][model])
                     for task in results["tasks"]]
        forecast = [compare_plans.total(task[way]["predicted"][model]) / compare_plans.measured_ms(task[way]) for task in results["tasks"]]
        same = sum(task[way]["plan"] == task[base]["plan"] for task in results["tasks"])
        cheaper = sum(ratio < 1 for ratio in ratios)
        lines.append([f"`{way}`", f"{statistics.mean(predicted):.3f}", f"{statistics.mean(ratios):.3f} +- {standard_error(ratios):.3f}",
                      f"{cheaper}, {same}, {len(ratios) - cheaper - same}", f"{statistics.median(forecast):.2f}"])
    return table(["plans", f"predicted cost to `{base}`", "measured", "tasks cheaper, same plan, dearer", "predicted / measured: median"], lines)


def embeddings(results):
    lines = []
    for stage, optimizers in (("forward", ("sgd", "rowwise_adagrad")), ("backward", ("sgd",)), ("backward", ("rowwise_adagrad",))):
        times = [r["times"]["flushed"][stage] for r in results if r["optimizer"] in optimizers]
        name = "lookup, forward" if stage == "forward" else f"backward and update, `{optimizers[0]}`"
        lines.append([name, span([t["fbgemm"]["median_ms"] / t["ours"]["median_ms"] for t in times], 1)])
    return table(["FBGEMM's time to ours", "lowest to highest over the shapes"], lines)


def collectives(results):
    def ratios(cases, peer):
        return span([statistics.median(c["times_ms"][peer]) / statistics.median(c["times_ms"]["ours"]) for c in cases], 1)

    return table(
        ["torch.distributed's time to ours", "lowest to highest over ranks and sizes", "with an output tensor that is kept"],
        [[f"`{name}`", ratios(cases, "torch"), ratios(cases, "torch_kept")]
         for name, cases in by_key(results["cases"], lambda c: c["collective"]).items()],
    )


TABLES = {"search": search, "load": load, "tasks": tasks, "devices": devices, "torchrec": torchrec, "scale": scale, "validate": validate,
          "compare_plans": plans_measured, "embeddings": embeddings, "collectives": collectives}


def report_rows(version):
    """Rows of a report's first table as dicts, by network."""
    lines = re.findall(r"^\| (.*) \|$", (MODEL / str(version) / "REPORT.md").read_text(), re.MULTILINE)
    cells = [line.split(" | ") for line in lines]
    return {name: dict(zip(REPORT_COLUMNS, values)) for name, *values in cells if len(values) == len(REPORT_COLUMNS)}


def served_version():
    return int(re.search(r"^version: (\d+)$", (MODEL / "channel.yaml").read_text(), re.MULTILINE)[1])


def shipped_model():
    """Held-out errors: of each network what the newest version's report says that has it, with that version, up to the one that is served."""
    rows = {}
    for version in sorted(int(folder.name) for folder in MODEL.iterdir() if folder.name.isdigit() and int(folder.name) <= served_version()):
        for name, row in report_rows(version).items():
            if row["train"].isdigit() and int(row["train"]) > 0 and not re.search(" x[0-9]+$", name):
                rows[name] = {**row, "version": version}
    newest = max(row["version"] for row in rows.values())
    return {name: row for name, row in rows.items() if row["version"] == newest or name.startswith("compute")}


def model(rows):
    return table(
        ["network", "held-out samples", "MAPE", "Kendall tau", "inside the 90 % interval", "report"],
        [[name, row["held out"], f"{float(row['MAPE %']):.1f} %", f"{float(row['Kendall tau']):.3f}", f"{float(row['covered %']):.0f} %",
          f"[version {row['version']}](../configs/models/cpu-amd-epyc/{row['version']}/REPORT.md)"] for name, row in rows.items()],
    )


# README.md


def headline(parts, rows):
    def only(name):
        return f"`run_all.py --only {name}`"

    def cost(part, strategy, count):
        return next(r for r in parts[part]["results"]["rows"] if (r["strategy"], r["devices"]) == (strategy, count))

    # Where its limit of time cut TorchRec, nobody knows what it would have come to.
    planned = [c for c in parts["torchrec"]["results"] if torchrec_best(c) and torchrec_best(c)["wall_s"] < torchrec_best(c)["limit_s"]]
    plans = parts["compare_plans"]["results"]
    refine = cost("tasks", "refine", 4)
    greedy = min((r for r in parts["tasks"]["results"]["rows"] if r["strategy"].endswith("greedy")), key=lambda r: r["mean_ratio"])
    measured = measured_ratios(plans, plans["options"]["plans"][-1])
    streams = {r["in_flight"]: r for r in parts["load"]["results"] if "first_plan_p50_ms" in r}
    largest = parts["scale"]["results"][-1]
    errors = parts["validate"]["results"]["errors_percent"]
    return table(
        ["figure", "value", "command"],
        [
            ["cost on NeuroShard's 100 tasks, 4 devices: `refine`; best greedy",
             f"{refine['mean_ratio']:.3f}; {greedy['mean_ratio']:.3f}", only("tasks")],
            ["`refine` on 8, 32, 128 devices, made-up communication",
             ", ".join(f"{cost('devices', 'refine', count)['mean_ratio']:.3f}" for count in (8, 32, 128)), only("devices")],
            [f"cost by TorchRec's formulas, best plan of TorchRec 1.9.2 = 1, {len(planned)} requests",
             span([c["ours"]["cost_ms"] / torchrec_best(c)["cost_ms"] for c in planned]), "`torchrec/compare.py`"],
            [f"*measured* cost of `refine`, {len(measured)} tasks on two CPU workers",
             f"{statistics.mean(measured):.3f} +- {standard_error(measured):.3f}", "`compare_plans.py`"],
            ["error of the predicted cost of one plan on two CPU workers", f"{min(errors):+.1f} to {max(errors):+.1f} %", only("validate")],
            ["error of compute (MAPE), held-out samples; unseen tables",
             f"{float(rows['compute']['MAPE %']):.1f} %; {float(rows['compute, unseen tables']['MAPE %']):.1f} %", "`neuroshard-pretrain train`"],
            ["first plan; whole search of `refine`, 100 tasks, p50",
             f"{ms(streams[1]['first_plan_p50_ms'])} ms; {ms(streams[1]['p50_ms'])} ms", only("load")],
            ["plans a second of `refine`, 16 calls in flight", f"{streams[16]['plans_per_s']:.0f}", only("load")],
            [f"{largest['tables']:,} tables on {largest['ranks']:,} ranks: first plan; search; peak memory",
             f"{largest['first_plan_ms']:.0f} ms; {largest['search_ms']:.0f} ms; {largest['peak_rss_bytes'] / 2**20:.0f} MiB", only("scale")],
        ],
    )


def read(folder, name):
    """What a part measured, and its commit, command and CPU, as the head of its Markdown file has them."""
    head = dict(re.findall(r"^- (commit|command|cpu): (.*)$", (folder / f"{name}.md").read_text(), re.MULTILINE))
    content = json.loads((folder / f"{name}.json").read_text())
    results = content["results"] if "provenance" in content else content
    return {"results": results, "file": (folder / f"{name}.md").relative_to(ROOT / "bench").as_posix(), **head}


def folder_of(name, preferred):
    if (preferred / f"{name}.json").exists():
        return preferred
    folders = [file.parent for file in preferred.parent.glob(f"*/{name}.json")]
    if len(folders) != 1:
        raise SystemExit(f"{name}.json is in {len(folders)} folders beside {preferred}, not in one")
    return folders[0]


def read_all(folder):
    return {name: read(folder, name) for name in PARTS} | {name: read(folder_of(name, folder), name) for name in OTHERS}


def blocks(parts, rows):
    """(file, name of the block, text) of everything that this script writes."""
    machine, commits = parts["tasks"]["cpu"], dict.fromkeys(parts[name]["commit"] for name in PARTS)
    readme, bench = ROOT / "README.md", ROOT / "bench/README.md"
    yield readme, "headline", f"{machine}, commits {', '.join(commits)}. `neuroshard` costs 1.\n\n" + headline(parts, rows)
    yield bench, "model", model(rows)
    for name, part in parts.items():
        origin = f"`{part['command']}`\\\ncommit {part['commit']}, {part['cpu']}, [all results]({part['file']})\n\n"
        yield bench, name, origin + TABLES[name](part["results"])


def replace(file, name, text):
    begin = BEGIN.format(name)
    pattern = re.escape(begin) + ".*?" + re.escape(END)
    new, count = re.subn(pattern, lambda _: f"{begin}{text}\n{END}", file.read_text(), flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{file}: {count} places between the lines {begin.strip()} and {END.strip()}, not one")
    file.write_text(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for file, name, text in blocks(read_all(options.results), shipped_model()):
        if options.write:
            replace(file, name, text)
        else:
            print(f"{file.relative_to(ROOT)}, {name}:\n\n{text}")


if __name__ == "__main__":
    sys.exit(main())
