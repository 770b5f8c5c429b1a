"""kill -9 at random moments of a sweep, of training and of publishing, of the client, of a worker, of the process that drives a device.

After each: the same command again goes on and completes; no record that the store had is lost, changed or there twice; a planner that watches the
model root all the time never sees a part of a model.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import random
import signal
import time
from collections import Counter
from typing import Dict, List

from disk import make_shared
from setting import (
    REPOSITORY, SWEEP, TRAINING, Broken, HeldPort, Programs, Server, left_beside, models_of, planner, records_of, require, require_kept, worker)

SAMPLES = 60


class KillSuite:
    def __init__(self, programs: Programs, folder: pathlib.Path, seed: int):
        self.programs, self.folder, self.draw = programs, folder.resolve(), random.Random(seed)
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        make_shared(programs, self.shared)
        self.moments: Counter = Counter()
        self.hits: Counter = Counter()  # moments in which the victim was still at work
        self.broken: List[str] = []

    def moment(self, what: str, longest_s: float) -> None:
        self.moments[what] += 1
        time.sleep(self.draw.uniform(0, longest_s))

    # Sweeps.

    def sweeps(self, moments: int) -> None:
        """One sweep after another, each killed until it is complete."""
        port = HeldPort()  # of one worker after another
        server = worker(self.programs, self.folder, "--cpu-devices", "2", address=port.address)
        try:
            number = 0
            while moments > 0:
                number += 1
                store = self.folder / f"sweep.{number}.db"
                config = self.folder / f"sweep.{number}.yaml"
                config.write_text(SWEEP.format(seed=number, samples=SAMPLES, repository=REPOSITORY))
                known: Dict = {}
                while moments > 0 and len(known) < SAMPLES:
                    victim = self.draw.choice(["client", "worker", "device process"])
                    moments -= 1
                    server = self.disturbed_sweep(server, config, store, victim)
                    now = records_of(store)
                    require_kept(known, now, f"sweep, {victim}")
                    known = now
                command = self.sweep_command(config, store, server)
                self.programs.run_well(command)
                done = records_of(store)
                require_kept(known, done, "a sweep that goes on")
                require(len(done) == SAMPLES, f"a sweep is complete: {len(done)} of {SAMPLES}")
                self.programs.run_well(command)
                require(records_of(store) == done, "a complete sweep measures nothing")
        finally:
            server.kill()
            port.close()

    def sweep_command(self, config: pathlib.Path, store: pathlib.Path, server: Server) -> List:
        return ["neuroshard", "sweep", "compute", config, "--workers", server.address, "--store", store, "--reconnect-s", "20"]

    def disturbed_sweep(self, server: Server, config: pathlib.Path, store: pathlib.Path, victim: str) -> Server:
        """Kills the victim at a random moment; the worker that serves afterwards."""
        client = self.programs.start(self.sweep_command(config, store, server))
        self.moment(f"sweep: {victim}", 0.8)
        acknowledged = records_of(store)
        self.hits[f"sweep: {victim}"] += client.poll() is None
        if victim == "client":
            client.kill()
        elif victim == "worker":
            address = server.address
            server.kill()
            server = worker(self.programs, self.folder, "--cpu-devices", "2", address=address)
        else:
            for child in server.children()[:1]:
                os.kill(child, signal.SIGKILL)
        _, said = client.communicate(timeout=120)
        if victim != "client":
            require(client.returncode in (0, 1), f"a sweep outlives its {victim}: {client.returncode}: {said[-500:]}")
            require(server.process.poll() is None, f"the worker outlives its {victim}")
        require_kept(acknowledged, records_of(store), f"kill -9 of the {victim}")
        return server

    # Training and publishing.

    def trainings(self, moments: int) -> None:
        """One version after another, each killed a few times before it is trained to the end; the planner watches."""
        root = self.folder / "models"
        config = self.folder / "train.yaml"
        config.write_text(TRAINING.format(epochs=40))
        command = ["neuroshard-pretrain", "train", "--store", self.shared / "s.db", "--config", config, "--out"]
        started = time.monotonic()
        self.programs.run_well([*command, self.folder / "reference/m/1"])
        longest_s = 1.1 * (time.monotonic() - started)
        reference = self.tensors(self.folder / "reference/m/1")
        with planner(self.programs, self.folder, root) as watching:
            version = 0
            while moments > 0:
                version += 1
                out = root / f"m/{version}"
                for _ in range(min(moments, self.draw.randint(1, 4))):
                    moments -= 1
                    overwrite = ["--overwrite"] if out.exists() else []
                    trainer = self.programs.start([*command, out, *overwrite])
                    self.moment("training and publishing", longest_s)
                    self.hits["training and publishing"] += trainer.poll() is None
                    trainer.kill()
                    trainer.communicate()
                    self.check_models(watching, root, out, reference)
                if not out.exists():
                    self.programs.run_well([*command, out])
                self.check_models(watching, root, out, reference)
                require(out.exists(), "a training that goes on publishes")
        print(f"training and publishing: {version} versions; left by killed processes: {len(left_beside(root))} hidden files and folders", flush=True)

    @staticmethod
    def tensors(model: pathlib.Path) -> Dict[str, str]:
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(model.glob("*.safetensors"))}

    def check_models(self, watching: Server, root: pathlib.Path, out: pathlib.Path, reference: Dict[str, str]) -> None:
        require(watching.process.poll() is None, "the planner serves on")
        models = models_of(self.programs, watching)
        require(not models.get("refused"), f"no part of a model is seen: {models.get('refused')}")
        if out.exists():
            require(self.tensors(out) == reference, "a model that was killed on its way is the one that was not")

    def restarts(self, moments: int) -> None:
        """A planner killed while it loads: the next one starts and serves the same."""
        root = self.shared / "models"
        with planner(self.programs, self.folder, root) as server:
            expected = models_of(self.programs, server)["models"]
        for _ in range(moments):
            victim = self.programs.start(["neuroshard-planner", "--models", root, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            self.moment("planner", 0.3)
            self.hits["planner"] += victim.poll() is None
            victim.kill()
            victim.communicate()
            with planner(self.programs, self.folder, root) as server:
                require(models_of(self.programs, server)["models"] == expected, "a planner serves the same after kill -9")

    def run(self, moments: int) -> None:
        parts = {self.sweeps: moments // 2, self.trainings: moments - moments // 2 - moments // 10, self.restarts: moments // 10}
        for part, share in parts.items():
            try:
                if share > 0:
                    part(share)
            except Broken as broken:
                self.broken.append(str(broken))
                print("BROKEN", broken, flush=True)
        for what, count in sorted(self.moments.items()):
            print(f"kill -9, {what}: {count} moments, {self.hits[what]} of them at work", flush=True)
