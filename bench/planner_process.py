"""A planner for the length of a measurement."""

import pathlib
import subprocess


class PlannerProcess:
    """Serves `models` (empty: only what is built in) on a port of its own until the block ends; the log is in `folder`."""

    def __init__(self, bin_folder, folder, models=None):
        self.models = pathlib.Path(models) if models else folder / "no-models"
        self.models.mkdir(exist_ok=True)
        self.log = folder / "planner.log"
        self.command = [
            str(bin_folder / "neuroshard-planner"),
            *("--models", str(self.models), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"),
        ]

    def __enter__(self):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True)
        prefix = "listening on "
        for line in self.process.stdout:
            if line.startswith(prefix):
                self.address = line[len(prefix) :].strip()
                return self
        raise SystemExit(f"the planner did not start:\n{self.log.read_text()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def peak_rss_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise ValueError("no VmHWM")
