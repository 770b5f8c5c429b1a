#!/usr/bin/env python3
"""How well does a model of another machine forecast steps here, once five jobs have recorded theirs? No profiling run is made here.

    build/pytorch/bin/python bench/pytorch/steps.py --bin build/release/bin --folder FOLDER       records jobs, 30 minutes on 2 cores
    build/pytorch/bin/python bench/pytorch/other_machine.py --bin build/release/bin --folder FOLDER [--model configs/models/cpu-amd-epyc/7]

Of the records of steps.py, for each number of ranks and pipeline: `neuroshard.torchrec.step_records` learns rates of steps from the first five jobs
(40 recorded steps each) on top of --model; the ten other jobs are forecast by that model alone and with those rates.
"""

import argparse
import itertools
import pathlib
import shutil
import sys
import tempfile

import dmp_steps
import steps
from forecast import run
from provenance import ROOT
from server_process import PlannerProcess

from neuroshard import PlannerClient
from neuroshard.torchrec.step_record import read_records

WITH_RATES = "with-rates"


def of_kind(path, ranks, pipeline):
    return [record for record in read_records(path) if len(record.ranks) == ranks and record.request.pipeline_type == pipeline]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="that of steps.py")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "configs/models/cpu-amd-epyc/7")
    parser.add_argument("--jobs", type=int, default=5, help="to learn from")
    options = parser.parse_args()
    print("| ranks | pipeline | rates of | mean error | geometric | bias | within 10 % | pairs apart by 10 % in order |\n|---|---|---|---|---|---|---|---|")
    for ranks, pipeline in itertools.product(steps.RANKS, dmp_steps.PIPELINES):
        learnt = of_kind(options.folder / "steps.jsonl", ranks, pipeline)[:options.jobs]
        others = of_kind(options.folder / "other_steps.jsonl", ranks, pipeline)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model = folder / "models" / options.model.parent.name / options.model.name
            shutil.copytree(options.model, model)
            (folder / "steps.jsonl").write_text("".join(record.to_json() + "\n" for record in learnt))
            with PlannerProcess(options.bin, folder, folder / "models") as planner:
                run(sys.executable, "-m", "neuroshard.torchrec.step_records", folder / "steps.jsonl", "--planner", planner.address, "--model", model,
                    "--out", folder / "models" / WITH_RATES / "1")
            with PlannerProcess(options.bin, folder, folder / "models") as planner, PlannerClient(planner.address) as client:
                for name, jobs in ((options.model.parent.name, 0), (WITH_RATES, len(learnt))):
                    of = steps.errors([(steps.forecast_ms(client, record, name), steps.measured_ms(record)) for record in others])
                    print(f"| {ranks} | {pipeline} | {jobs} jobs | {of['mean_abs']:.1%} | {of['geometric_abs']:.1%} | {of['bias']:+.1%} | "
                          f"{of['within_10']} of {of['jobs']} | {of['right_pairs']} of {of['pairs']} |", flush=True)


if __name__ == "__main__":
    main()
