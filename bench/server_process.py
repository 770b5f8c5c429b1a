"""Servers for the length of a measurement, each on a port of its own."""

import pathlib
import subprocess


class ServerProcess:
    """Runs until the block ends; the log is in `folder`. `program`: a binary, or a list that begins with one."""

    def __init__(self, program, folder, *arguments):
        program = program if isinstance(program, list) else [program]
        self.log = folder / f"{pathlib.Path(program[-1]).name}-{id(self)}.log"
        self.command = [str(c) for c in (*program, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *arguments)]

    def __enter__(self):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True)
        prefix = "listening on "
        for line in self.process.stdout:
            if line.startswith(prefix):
                self.address = line[len(prefix) :].strip()
                return self
        raise SystemExit(f"{self.command[0]} did not start:\n{self.log.read_text()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def peak_rss_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise ValueError("no VmHWM")


class PlannerProcess(ServerProcess):
    """Serves `models`; none: only what is built in."""

    def __init__(self, bin_folder, folder, models=None):
        models = pathlib.Path(models) if models else folder / "no-models"
        models.mkdir(exist_ok=True)
        super().__init__(bin_folder / "neuroshard-planner", folder, "--models", models)
