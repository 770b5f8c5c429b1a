"""Programs of Debian that tests need and that are not installed."""

import fcntl
import pathlib
import shutil
import subprocess
import tempfile


def unpacked(cache, packages, program):
    """CACHE with these Debian packages unpacked, not installed, once `program` is in it; None where they cannot be fetched."""
    cache = pathlib.Path(cache).resolve()
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{cache}.lock", "w") as lock:  # tests share a cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (cache / program).exists():
            return cache
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            return None
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            try:
                subprocess.run(["apt-get", "download", *packages], cwd=folder, capture_output=True, timeout=100, check=True)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                return None
            for package in pathlib.Path(folder).glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, f"{folder}/unpacked"], check=True)
            shutil.rmtree(cache, ignore_errors=True)
            pathlib.Path(folder, "unpacked").rename(cache)
    return cache
