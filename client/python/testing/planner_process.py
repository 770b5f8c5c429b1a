"""Real servers, planner and neuroshard-worker, as processes for tests."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "configs", "models")


def list_files(directory):
    """Lists the files of a cost model's directory anew, as whoever edits a version has to."""
    from neuroshard.checkpoints.model_directory import file_list

    directory = pathlib.Path(directory)
    names = [file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file() and file.name not in ("files.sha256", "drift.yaml")]
    (directory / "files.sha256").write_bytes(file_list({name: (directory / name).read_bytes() for name in names}))


class ServerProcess:
    """A server with this configuration. A context manager that kills it."""

    def __init__(self, binary, *arguments, config=""):
        self._folder = tempfile.TemporaryDirectory(prefix="neuroshard-server-")
        path = os.path.join(self._folder.name, "config.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config or "{}\n")
        self._log = os.path.join(self._folder.name, "log")
        command = [binary, "--config", path, "--metrics", "127.0.0.1:0", *arguments]
        with open(self._log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.wait()
            log = self.log()
            self.stop()
            raise RuntimeError(f"{binary} did not start: {log}")
        self.address = line.split()[-1]

    def log(self):
        with open(self._log, encoding="utf-8") as file:
            return file.read()

    @property
    def metrics_address(self):
        return re.search(r"metrics_listening address=(\S+)", self.log())[1]

    def metrics(self):
        """What a scrape of /metrics says."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def wait_for_metric(self, line):
        """Returns when a scrape has this line; polls."""
        give_up = time.monotonic() + 30
        while line not in (text := self.metrics()).splitlines():
            if time.monotonic() > give_up:
                raise TimeoutError(f"{line} is not in\n" + "\n".join(found for found in text.splitlines() if "_rpc_" in found and "_bucket" not in found))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def drain(self):
        """SIGTERM; does not wait for the end."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class PlannerProcess(ServerProcess):
    """neuroshard-planner with the models that the project ships, on a port that the system chose unless told otherwise."""

    def __init__(self, binary, listen="127.0.0.1:0", config="", models=MODELS):
        super().__init__(binary, "--listen", listen, "--models", models, config=config)


class NativeWorkerProcess(ServerProcess):
    """neuroshard-worker with one CPU device; worker_process.py has the package's own."""

    def __init__(self, binary, config=""):
        super().__init__(binary, "--listen", "127.0.0.1:0", "--cpu-devices", "1", config=config)
