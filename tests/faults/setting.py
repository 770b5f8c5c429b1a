"""What the fault suites share: small inputs, our programs as processes, and what a store and a model root hold."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from typing import Dict, List, Optional, Sequence, Tuple

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "client/python/testing"))

from held_port import HeldPort  # noqa: E402
PATIENCE_S = 600  # a process at a low priority beside builds is slow, and not stuck

SWEEP = """kind: compute
seed: {seed}
num_samples: {samples}
tables: {repository}/configs/workloads/dlrm_2021_tables856.csv
dims: [16, 8, 4]
min_tables: 1
max_tables: 3
max_weights_bytes: 16777216
batch_size: 64
optimizer: sgd
settings: {{warmup_iterations: 1, min_iterations: 3, max_iterations: 3, flush_cache: false}}
"""
TRAINING = """preset: universal
max_epochs: {epochs}
members: 1
representation: 4
table_hidden: [8]
head_hidden: [8]
comm_hidden: [8]
comm: {{max_epochs: {epochs}}}
min_compute_tau: -1
threads: 1
"""
REQUEST = """tables:
  - {name: users, num_embeddings: 100000, embedding_dim: 16, pooling_factor: 3}
  - {name: items, num_embeddings: 50000, embedding_dim: 32, pooling_factor: 5}
topology: {hosts: [{num_devices: 2, memory_bytes: 1GiB}]}
global_batch_size: 1024
"""


class Broken(AssertionError):
    """A promise that was not kept."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def write_cost_data(folder: pathlib.Path, seed: int, lines: int = 60) -> None:
    """NeuroShard's text formats with made-up costs: folder/compute and folder/comm."""
    draw = random.Random(seed)
    tables = []
    for _ in range(lines):
        table = {"row": draw.randint(100, 100_000), "dim": draw.choice([4, 8, 16, 32]), "pooling_factor": draw.uniform(1, 30)}
        bins = [draw.random() for _ in range(17)]
        table.update({f"bin_{i}": value / sum(bins) for i, value in enumerate(bins)})
        tables.append(table)
    (folder / "compute").mkdir(parents=True)
    (folder / "comm").mkdir()
    (folder / "compute/table_configs.json").write_text(json.dumps(tables))
    with open(folder / "compute/data.txt", "w", encoding="utf-8") as file:
        for _ in range(lines):
            ids = draw.sample(range(lines), draw.randint(1, 5))
            cost = 0.1 + sum(tables[i]["dim"] * tables[i]["pooling_factor"] for i in ids) / 500
            file.write(f"{','.join(map(str, ids))} {cost:.4f}\n")
    with open(folder / "comm/data.txt", "w", encoding="utf-8") as file:
        for _ in range(lines):
            dims = [draw.randint(4, 400) for _ in range(2)]
            cost = max(dims) / 100 + 0.1
            file.write(f"{dims[0]},{dims[1]} {draw.randint(0, 5)},{draw.randint(0, 5)} {cost:.4f},{cost:.4f} {cost:.4f},{cost:.4f}\n")


def records_of(store: pathlib.Path) -> Dict[Tuple[str, str, str], Tuple]:
    """What a store has: (kind, sweep, sample and rank) -> costs. Empty where there is no store yet. The file has to be sound, once SQLite has
    rolled back what a killed program left (which needs a connection that may write)."""
    if not store.exists() or store.stat().st_size == 0:
        return {}
    connection = sqlite3.connect(f"file:{store}?mode=rw", uri=True, timeout=30)
    try:
        require(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], f"{store} is sound")
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return {}
        rows = connection.execute(
            "SELECT 'compute', w.config_hash, s.sample_id, m.outcome, m.total_ms FROM compute_measurements m"
            " JOIN compute_samples s USING (sample) JOIN sweeps w USING (sweep_id)"
            " UNION ALL SELECT 'comm', w.config_hash, s.sample_id || '/' || m.rank, m.outcome, m.cost_ms FROM comm_measurements m"
            " JOIN comm_samples s USING (sample) JOIN sweeps w USING (sweep_id)"
        ).fetchall()
    finally:
        connection.close()
    found = {tuple(row[:3]): tuple(row[3:]) for row in rows}
    require(len(found) == len(rows), f"{store} has no record twice")
    return found


def require_kept(before: Dict, after: Dict, when: str) -> None:
    lost = [key for key, value in before.items() if after.get(key) != value]
    require(not lost, f"{when}: {len(lost)} records lost or changed, e.g. {lost[:2]}")


class Programs:
    """Our binaries."""

    def __init__(self, binaries: pathlib.Path, preload: Optional[pathlib.Path] = None):
        self.binaries = binaries.resolve()
        self.preload = preload.resolve() if preload else None

    def path(self, name: str) -> str:
        return str(self.binaries / name)

    def start(self, command: Sequence[str], **options) -> subprocess.Popen:
        return subprocess.Popen(
            [self.path(command[0]), *map(str, command[1:])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
        )

    def run(self, command: Sequence[str], environment: Optional[Dict[str, str]] = None) -> subprocess.CompletedProcess:
        process = self.start(command, env={**os.environ, **(environment or {})})
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Broken(f"{' '.join(map(str, command))} does not end: {process.communicate()[1][-500:]}") from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def run_well(self, command: Sequence[str]) -> str:
        done = self.run(command)
        require(done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}: {done.stderr[-800:]}")
        return done.stdout


class Server:
    """A server as a process; its log goes to a file. A context manager that kills it."""

    def __init__(self, programs: Programs, folder: pathlib.Path, command: List[str], prefix: Sequence[str] = (), address: str = "127.0.0.1:0"):
        self.log_path = folder / f"{command[0]}.{time.monotonic_ns()}.log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*prefix, programs.path(command[0]), "--listen", address, "--metrics", "127.0.0.1:0", *command[1:]],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )
        line = self.process.stdout.readline()
        require(line.startswith("listening on "), f"{command[0]} starts: {self.log()[-500:]}")
        self.address = line.split()[-1]

    def log(self) -> str:
        return self.log_path.read_text()

    def children(self) -> List[int]:
        found = []
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                pass
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def worker(programs: Programs, folder: pathlib.Path, *arguments: str, **options) -> Server:
    return Server(programs, folder, ["neuroshard-worker", *arguments], **options)


def planner(programs: Programs, folder: pathlib.Path, models: pathlib.Path, *arguments: str, more: str = "", **options) -> Server:
    models.mkdir(parents=True, exist_ok=True)
    config = folder / "planner.yaml"
    config.write_text("models: {poll_ms: 100}\n" + more)
    return Server(programs, folder, ["neuroshard-planner", "--config", str(config), "--models", str(models), *arguments], **options)


def models_of(programs: Programs, server: Server) -> Dict:
    """What a planner serves and refuses."""
    return json.loads(programs.run_well(["neuroshard", "models", "list", "--planner", server.address, "--format", "json"]))


def left_beside(folder: pathlib.Path) -> List[str]:
    """Hidden files and folders below: what a process made for itself and has not removed."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/.*"))
