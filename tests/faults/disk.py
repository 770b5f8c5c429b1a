"""A disk that is full, read-only or broken, or a process that is killed, at each change that a program makes to files.

For every program and every number N, the program's N-th change below its folder fails (write_faults.c), then all that follow. Afterwards:
  - it ended by itself, and with 0 only if its work is complete;
  - what it says names a file of the folder, or the folder;
  - what was there before is there and unchanged, or the new state is there, complete;
  - the same command again, on a disk that works, completes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import shutil
from typing import Callable, Dict, List, Optional

from setting import REPOSITORY, REQUEST, SWEEP, TRAINING, Programs, Server, records_of, require, require_kept, write_cost_data

ERRORS = ("ENOSPC", "EROFS", "EIO", "KILL")


@dataclasses.dataclass
class Program:
    name: str
    prepare: Callable[[pathlib.Path], None]  # what is there before
    command: Callable[[pathlib.Path], List[str]]
    state: Callable[[pathlib.Path], object]  # what a reader sees; raises for half a thing
    complete: Callable[[object, object], bool]  # (before, now)
    kept: Callable[[object, object], bool] = lambda before, now: before == now


def text_of(path: pathlib.Path) -> Optional[str]:
    return path.read_text() if path.exists() else None


def whole_model(programs: Programs, folder: pathlib.Path) -> Optional[Dict[str, str]]:
    """The files of m/1 by their hashes; None: there is no such version. Evaluating loads it."""
    model = folder / "models/m/1"
    if not model.exists():
        return None
    require((model / "model.yaml").exists(), "a version that is visible has its manifest")
    programs.run_well(["neuroshard-pretrain", "evaluate", "--model", model, "--store", folder / "s.db"])
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in model.iterdir() if file.suffix == ".safetensors"}


def programs_under_test(programs: Programs, shared: pathlib.Path, worker: Server, planner: Server) -> List[Program]:
    """`shared` has inputs that no program writes."""

    def imported(folder: pathlib.Path) -> None:
        shutil.copy(shared / "s.db", folder / "s.db")

    def trained(folder: pathlib.Path) -> None:
        imported(folder)
        shutil.copytree(shared / "models", folder / "models")

    def records_kept(before, now) -> bool:
        require_kept(before, now, "after a fault")
        return True

    def model(folder):
        return whole_model(programs, folder)

    def training(folder, *more):
        return ["neuroshard-pretrain", "train", "--store", folder / "s.db", "--config", shared / "train.yaml", "--out", folder / "models/m/1", *more]

    def import_command(data):
        return lambda folder: ["neuroshard-pretrain", "import-cost-data", "--compute", shared / data / "compute", "--comm", shared / data / "comm", "--store", folder / "s.db"]

    def sweep_of(config):
        return ["neuroshard", "sweep", "compute", shared / config, "--workers", worker.address, "--store"]

    sweep = sweep_of("sweep.yaml")
    programs.run_well([*sweep_of("later.yaml"), shared / "later.db"])
    plan = ["neuroshard", "plan", shared / "request.yaml", "--planner", planner.address, "--steps", "5", "--format", "torchrec", "--out"]
    return [
        Program("init", lambda folder: None, lambda folder: ["neuroshard", "init", "--out", folder / "r.yaml"],
                lambda folder: text_of(folder / "r.yaml"), lambda before, now: now is not None and now.endswith("\n")),
        Program("plan", lambda folder: (folder / "plan.json").write_text("old"), lambda folder: [*plan, folder / "plan.json"],
                lambda folder: text_of(folder / "plan.json"), lambda before, now: now not in (None, "old") and now.rstrip().endswith("}")),
        Program("import", lambda folder: None, import_command("more"), lambda folder: records_of(folder / "s.db"),
                lambda before, now: len(now) == 60 + 240, records_kept),
        Program("import_again", imported, import_command("more"), lambda folder: records_of(folder / "s.db"),
                lambda before, now: len(now) == len(before) + 60 + 240, records_kept),
        Program("sweep", imported, lambda folder: [*sweep, folder / "s.db"], lambda folder: records_of(folder / "s.db"), lambda before, now: len(now) == len(before) + 4, records_kept),
        Program("train", imported, training, model, lambda before, now: now is not None),
        Program("train_overwrite", trained, lambda folder: training(folder, "--overwrite"), model, lambda before, now: now is not None),
        Program("drift", trained, lambda folder: ["neuroshard-pretrain", "drift", "--model", folder / "models/m/1", "--store", shared / "later.db"],
                lambda folder: text_of(folder / "models/m/1/drift.yaml"), lambda before, now: now is not None and "stages" in now),
    ]


def make_shared(programs: Programs, shared: pathlib.Path) -> None:
    for seed, name in enumerate(("data", "more")):
        write_cost_data(shared / name, seed)
    (shared / "request.yaml").write_text(REQUEST)
    (shared / "train.yaml").write_text(TRAINING.format(epochs=2))
    sweep = SWEEP.format(seed=1, samples=4, repository=REPOSITORY)
    (shared / "sweep.yaml").write_text(sweep)
    # What a model of imported costs is compared with.
    (shared / "later.yaml").write_text(sweep.replace("flush_cache: false", "flush_cache: true"))
    data = shared / "data"
    programs.run_well(["neuroshard-pretrain", "import-cost-data", "--compute", data / "compute", "--comm", data / "comm", "--store", shared / "s.db"])
    programs.run_well(["neuroshard-pretrain", "train", "--store", shared / "s.db", "--config", shared / "train.yaml", "--out", shared / "models/m/1"])


class DiskSuite:
    def __init__(self, programs: Programs, folder: pathlib.Path, held: Optional[pathlib.Path] = None):
        self.programs, self.folder = programs, folder.resolve()
        self.held = held
        self.held_before = set(held.read_text().splitlines()) if held and held.exists() else set()
        self.runs = 0
        self.broken: List[str] = []

    def fresh(self, program: Program) -> pathlib.Path:
        place = self.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        program.prepare(place)
        return place

    def under_faults(self, program: Program, place: pathlib.Path, at: int, error: str):
        log = self.folder / "changes.log"
        log.unlink(missing_ok=True)
        done = self.programs.run(program.command(place), {
            "LD_PRELOAD": str(self.programs.preload), "FAULTS_BELOW": str(place), "FAULTS_AT": str(at), "FAULTS_ERROR": error, "FAULTS_LOG": str(log)})
        return done, log.read_text().splitlines() if log.exists() else []

    def one(self, program: Program, before, at: int, error: str) -> bool:
        """Whether anything failed. `before`: the state of a fresh place."""
        place = self.fresh(program)
        done, changes = self.under_faults(program, place, at, error)
        failed = [line for line in changes if line.endswith(" failed")]
        self.runs += 1
        now = program.state(place)
        complete = program.complete(before, now)
        require(complete or program.kept(before, now), "the old state is there, or the new one")
        if error == "KILL":
            require(done.returncode == (-9 if failed else 0), f"ends with {done.returncode}")
        else:
            require(done.returncode in (0, 1), f"ends with {done.returncode}: {done.stderr[-300:]}")
            require(done.returncode != 0 or complete, f"0 is success; failed: {failed[:1]}; {done.stderr[-300:]}")
            require(done.returncode == 0 or str(place) in done.stderr, f"what is said names a file: {done.stderr[-300:]}")
        if failed:
            again = self.programs.run(program.command(place))
            done_already = complete and "exist" in again.stderr  # killed behind the last change that counts
            require(again.returncode == 0 or done_already, f"the same again completes: {again.stderr[-300:]}")
            require(program.complete(before, program.state(place)), "the same again completes")
        return bool(failed)

    def note(self, fault: str) -> None:
        if self.held is not None:
            with open(self.held, "a", encoding="utf-8") as file:
                file.write(fault + "\n")

    def run(self, program: Program, errors, points: int) -> None:
        """At most `points` changes of each error, spread evenly."""
        place = self.fresh(program)
        before = program.state(place)
        done, changes = self.under_faults(program, place, 0, "EIO")
        require(done.returncode == 0, f"{program.name} works: {done.stderr[-500:]}")
        count = len(changes)
        chosen = sorted({1 + i * (count - 1) // max(1, min(points, count) - 1) for i in range(min(points, count))})
        for error in errors:
            for at in chosen:
                fault = f"{program.name} {error} {at}"
                if fault in self.held_before:
                    continue
                try:
                    self.one(program, before, at, error)
                    self.note(fault)
                except AssertionError as broken:
                    line = changes[at - 1].replace(str(place), "") if at <= count else ""
                    self.broken.append(f"{program.name}, {error} at {line}: {broken}")
                    print("BROKEN", self.broken[-1], flush=True)
        print(f"{program.name}: {count} changes, {len(chosen)} x {len(errors)} faults", flush=True)
