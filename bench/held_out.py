#!/usr/bin/env python3
"""What different networks learn from one store, on samples that none of them saw.

    held_out.py --bin build/release/bin --store profile.db --config configs/pretrain_h100.yaml --memory-gb-per-s 3350

Held out are samples at one set of conditions (batch 65,536, row-wise Adagrad, fp32 sums in device memory: the networks of the paper know only one), those
with one in five hashes of their tables, and the ranks of real plans (sweeps of `neuroshard validate`) at the same conditions. All others are learned
from: by the preset `universal` all or those at the conditions, by `neuroshard` and `per_count` those at the conditions. Beside them TorchRec's formulas
at the device's bandwidth, which their compute is inversely proportional to.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

from server_process import PlannerProcess

BATCH_SIZE, OPTIMIZER = 65536, "rowwise_adagrad"
ONE_CONDITION = f"records: {{batch_size: {BATCH_SIZE}, optimizer: {OPTIMIZER}, weight_dtype: fp32, pooling_mode: sum, weighted: false, compute_kernel: fused}}\n"
DEFAULT_GB_PER_S = 897 * 2**30 / 1e9  # that the formulas have where nobody names a device: TorchRec's
NETWORKS = {"universal, all conditions": "", "universal": ONE_CONDITION, "per_count": "preset: per_count\n" + ONE_CONDITION, "neuroshard": "preset: neuroshard\n" + ONE_CONDITION}


def split(store):
    """Takes the measurements of held-out samples out of the store: {"held-out samples": [(set of shards, ms)], "ranks of plans": ...}."""
    held, gone = {"held-out samples": [], "ranks of plans": []}, []
    shards = {row["shard_id"]: row for row in store.execute("SELECT * FROM shards")}
    for row in store.execute("SELECT * FROM compute_samples JOIN sweeps USING (sweep_id) JOIN compute_measurements USING (sample) WHERE outcome = 'ok'").fetchall():
        of = [shards[i] for i in json.loads(row["shard_ids"])]
        plain = all((s["weight_dtype"], s["pooling_mode"], s["weighted"]) == ("fp32", "sum", 0) for s in of) and not row["shard_kernels"]
        is_rank = row["name"] == "validation"
        at_condition = plain and (row["batch_size"], row["optimizer"]) == (BATCH_SIZE, OPTIMIZER) and sum(s["pooling_factor"] for s in of) > 0
        if not is_rank and not (at_condition and hashlib.sha256(row["shard_ids"].encode()).digest()[0] % 5 == 0):
            continue
        gone.append((row["sample"],))
        if at_condition:
            held["ranks of plans" if is_rank else "held-out samples"].append((
                [{"rows": s["num_rows"], "cols": s["cols"], "pooling_factor": s["pooling_factor"], "reuse_histogram": json.loads(s["reuse_histogram"])} for s in of],
                row["total_ms"]))
    store.executemany("DELETE FROM compute_measurements WHERE sample = ?", gone)
    store.commit()
    return held


def kendall_tau(pairs):
    """tau-b without ties."""
    signs = [(a - c) * (b - d) for i, (a, b) in enumerate(pairs) for c, d in pairs[:i]]
    return sum((s > 0) - (s < 0) for s in signs) / len(signs)


def predict(options, planner, model, sets):
    asked = {"cost_model": {"name": model}, "sets": [{"shards": s, "batch_size": BATCH_SIZE, "optimizer": OPTIMIZER} for s in sets]}
    command = [options.bin / "neuroshard", "predict", "compute", "-", "--planner", planner.address, "--format", "json"]
    done = subprocess.run([str(c) for c in command], input=json.dumps(asked), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["predictions"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--config", type=pathlib.Path, required=True, help="of the universal preset")
    parser.add_argument("--memory-gb-per-s", type=float, required=True, help="of the device, as published (configs/devices.yaml)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        store = folder / "learn.db"
        shutil.copy(options.store, store)
        database = sqlite3.connect(store)
        database.row_factory = sqlite3.Row
        held = split(database)
        database.close()
        names = {}
        for network, config in NETWORKS.items():
            names[network] = network.replace(", ", "-").replace(" ", "-")
            base = "" if "preset" in config else options.config.read_text()
            (folder / "config.yaml").write_text(base + config + "min_compute_tau: -1\n")
            command = [options.bin / "neuroshard-pretrain", "train", "--store", store, "--config", folder / "config.yaml", "--out", folder / "models" / names[network] / "1"]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            print(f"{network}:", (done.stdout or done.stderr).splitlines()[1 if done.stdout else -1], file=sys.stderr, flush=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
        print("| learned by | " + " | ".join(f"{len(samples)} {what}: error (MAPE), Kendall tau, inside the 90 % interval" for what, samples in held.items()) + " |")
        print("|---|" + "---|" * len(held))
        with PlannerProcess(options.bin, folder, folder / "models") as planner:
            for network, model in (names | {"TorchRec's formulas": "analytic"}).items():
                cells = []
                for samples in held.values():
                    predictions = predict(options, planner, model, [shards for shards, _ in samples])
                    scale = DEFAULT_GB_PER_S / options.memory_gb_per_s if model == "analytic" else 1
                    pairs = [(p["total_ms"] * scale, ms) for p, (_, ms) in zip(predictions, samples)]
                    error = sum(abs(p - ms) / ms for p, ms in pairs) / len(pairs)
                    inside = [p["total_interval"]["low_ms"] <= ms <= p["total_interval"]["high_ms"] for p, (_, ms) in zip(predictions, samples) if "total_interval" in p]
                    cells.append(f"{100 * error:.1f} %, {kendall_tau(pairs):.3f}, " + (f"{100 * sum(inside) / len(inside):.0f} %" if inside else "-"))
                print(f"| {network} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
