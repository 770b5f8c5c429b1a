#!/usr/bin/env python3
"""A sweep over many worker processes on this machine: does it keep all of them busy, and what becomes of it when some of them are killed?

    bench/fleet.py --bin build/release/bin                       64 workers, nothing goes wrong
    bench/fleet.py --bin build/release/bin --kill 21             a third of them get SIGKILL in the middle

The workers are real but for their device (waiting_worker): a sample takes --sample-ms, in which nothing is computed, so that what is measured is the
sweep's scheduling and not this machine's cores. Busy is the share of the time, from the first sample's begin to the last sample's begin, in which a
worker's device was at work; killed workers count until they are killed. Reported besides: CPU of the client and of all workers, which is what a machine
of few cores limits.
"""

import argparse
import json
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SWEEP = """kind: compute
seed: 1
num_samples: {samples}
tables: {root}/configs/workloads/dlrm_2021_tables856.csv
dims: [4]
min_tables: 1
max_tables: 1
max_weights_bytes: 64KiB
batch_size: 16
optimizer: sgd
settings: {{warmup_iterations: 0, min_iterations: 1, max_iterations: 1, max_time_ms: 60000, flush_cache: false}}
"""


def start_workers(binary, count, stage_ms, folder):
    workers = [subprocess.Popen([binary, str(stage_ms), folder], stdout=subprocess.PIPE, text=True) for _ in range(count)]
    addresses = [worker.stdout.readline().split()[-1] for worker in workers]
    return dict(zip(addresses, workers))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cpu_of_ended_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def kill_some(addresses, workers, sweep, client, store, after):
    """SIGKILL to these once so many records are there, or the sweep has ended."""
    while records(client, store) < after and sweep.poll() is None:
        time.sleep(0.2)
    for address in addresses:
        workers[address].send_signal(signal.SIGKILL)


def records(client, store):
    """How many a store has; 0 while the sweep makes it."""
    info = subprocess.run([client, "store", "info", "--store", store, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return sum(sweep["ok"] + sweep["out_of_memory"] for sweep in json.loads(info.stdout)["sweeps"]) if info.returncode == 0 else 0


def busy_shares(folder, workers, killed):
    """{address: share}, and from when to when, in ms."""
    stages = {}
    for address, worker in workers.items():
        lines = (folder / str(worker.pid)).read_text().splitlines()
        stages[address] = [tuple(map(float, line.split())) for line in lines if line.count(" ") == 1]
    begin = min(of_worker[0][0] for of_worker in stages.values())
    end = max(of_worker[-2][0] for of_worker in stages.values() if len(of_worker) > 1)
    shares = {}
    for address, of_worker in stages.items():
        until = min(end, of_worker[-1][1] if address in killed else end)
        shares[address] = sum(min(stop, until) - start for start, stop in of_worker if start < until) / (until - begin)
    return shares, begin, end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and waiting_worker")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--samples-per-worker", type=int, default=30)
    parser.add_argument("--sample-ms", type=int, default=1000)
    parser.add_argument("--kill", type=int, default=0, help="so many workers get SIGKILL after a third of the samples")
    parser.add_argument("--reconnect-s", type=int, default=10)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args()
    client = options.bin / "neuroshard"
    samples = options.workers * options.samples_per_worker
    with tempfile.TemporaryDirectory(prefix="neuroshard-fleet-") as made:
        folder = pathlib.Path(made)
        stages = folder / "stages"
        stages.mkdir()
        (folder / "sweep.yaml").write_text(SWEEP.format(samples=samples, root=ROOT))
        workers = start_workers(options.bin / "waiting_worker", options.workers, options.sample_ms // 2, stages)
        try:
            with open(folder / "log", "w", encoding="utf-8") as log:
                sweep = subprocess.Popen(
                    [client, "sweep", "compute", folder / "sweep.yaml", "--workers", ",".join(workers), "--store", folder / "store.db",
                     "--reconnect-s", str(options.reconnect_s), "--format", "json"], stdout=subprocess.PIPE, stderr=log, text=True)
                doomed = list(workers)[:: max(1, options.workers // max(1, options.kill))][: options.kill]
                if doomed:
                    kill_some(doomed, workers, sweep, client, folder / "store.db", samples // 3)
                others_s = cpu_of_ended_children()
                report = json.loads(sweep.communicate()[0])
            client_s = cpu_of_ended_children() - others_s
            workers_s = sum(cpu_seconds(worker.pid) for address, worker in workers.items() if address not in doomed)
            shares, begin, end = busy_shares(stages, workers, doomed)
            result = {
                "workers": options.workers, "samples": samples, "sample_ms": options.sample_ms, "killed": len(doomed), "recorded": report["recorded"],
                "stored": records(client, folder / "store.db"), "complete": report["complete"], "given_up": len(report["given_up"]),
                "seconds": (end - begin) / 1e3, "busy_least": min(shares.values()), "busy_median": statistics.median(shares.values()),
                "client_cpu_s": client_s, "workers_cpu_s": workers_s,
                "names_of_the_killed": sorted(lost["worker"] for lost in report["lost"]) == sorted(doomed),
            }
            if options.format == "json":
                print(json.dumps(result, indent=2))
            else:
                for key, value in result.items():
                    print(f"{key:20} {value:.4g}" if isinstance(value, float) else f"{key:20} {value}")
        finally:
            for worker in workers.values():
                worker.kill()
                worker.wait()
    return 0 if result["complete"] and result["stored"] == samples and result["names_of_the_killed"] else 1


if __name__ == "__main__":
    sys.exit(main())
