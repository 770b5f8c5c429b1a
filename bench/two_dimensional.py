#!/usr/bin/env python3
"""2D parallelism: what groups of their own for EmbeddingCollections are worth, against the best size of a group that is the same for all tables.

    bench/two_dimensional.py --bin build/release/bin                 forty requests of 64 to 1,024 H100
    bench/two_dimensional.py --bin build/dev/bin --requests 10 --first 11

A request has 26 to 200 tables, a tenth to a half of them unpooled, on hosts of eight h100-sxm. Rows are log-uniform and scaled until weights and
optimizer state are 2 to 40 % of all device memory; dims 32 to 256, pooling factors 1 to 50 and 10 to 200 ids where tables are unpooled; rowwise_adagrad, 512 to
4,096 samples a rank. Groups average in every batch, in every 16th or in every 256th. All are asked by one `neuroshard plan --what-if`. Each line has the
milliseconds of a batch, averaging included: the best uniform row, the answer's fastest row, and their ratio. Prices are TorchRec's formulas at the published
figures. The same arguments give the same requests on any machine. Standard library only. Exit status 1: the answer was dearer than the best uniform size. That
tells a fault of the client and says nothing of how good pairs are: all sizes are rows, and a pair is one only where it is faster.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from server_process import PlannerProcess

DEVICE_BYTES = 80e9
RANKS = (64, 128, 256, 512, 1024)
INTERVALS = (1, 16, 256)


def draw_request(number, effort):
    draw = random.Random(f"two dimensional {number}")
    ranks = RANKS[number % len(RANKS)]
    count = draw.randint(26, 200)
    unpooled = max(1, round(count * draw.uniform(0.1, 0.5)))
    tables = []
    for i in range(count):
        table = {"name": f"t{i}", "num_embeddings": 10 ** draw.uniform(4, 8), "embedding_dim": draw.choice((32, 64, 128, 256)), "zipf_exponent": 1.05}
        table |= {"kind": "embedding", "pooling_factor": draw.randint(10, 200)} if i < unpooled else {"pooling_factor": draw.randint(1, 50)}
        tables.append(table)
    share = 10 ** draw.uniform(math.log10(0.02), math.log10(0.4))
    scale = share * DEVICE_BYTES * ranks / sum(4 * t["num_embeddings"] * t["embedding_dim"] for t in tables)
    for table in tables:
        table["num_embeddings"] = max(1000, round(table["num_embeddings"] * scale))
    topology = {"hosts": [{"count": ranks // 8, "num_devices": 8, "device": "h100-sxm"}]}
    request = {
        "tables": tables,
        "topology": topology,
        "global_batch_size": ranks * draw.choice((512, 1024, 2048, 4096)),
        "optimizer": "rowwise_adagrad",
        "memory": {"reserve_fraction": 0.1},
        "cost_model": {"name": "analytic"},
        "search": {"effort": effort},
    }
    interval = INTERVALS[number // len(RANKS) % len(INTERVALS)]
    what_if = {"topologies": [{"name": f"{ranks} H100", "topology": topology, "two_dimensional": {"sync_interval_batches": interval}}]}
    return request, what_if, f"{ranks:5} ranks {count:4} tables {unpooled:4} unpooled {share:6.1%} of memory, averaged every {interval:3}"


def ask(options, address, folder, request, what_if):
    paths = [folder / name for name in ("request.json", "what_if.json")]
    for path, content in zip(paths, (request, what_if)):
        path.write_text(json.dumps(content))
    command = [options.bin / "neuroshard", "plan", paths[0], "--what-if", paths[1], "--planner", address, "--format", "json", "--timeout-s", "600"]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [row for row in json.loads(done.stdout)["rows"] if not row.get("failure")]


def ms_a_batch(row):
    return 1e3 * int(row["global_batch_size"]) / row["samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--effort", default="quick")
    options = parser.parse_args()
    ratios, alone = [], 0
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as server:
        for number in range(options.first, options.first + options.requests):
            request, what_if, text = draw_request(number, options.effort)
            began = time.monotonic()
            rows = ask(options, server.address, pathlib.Path(name), request, what_if)
            uniform = min((row for row in rows if not row["two_dimensional"].get("submodule_configs")), key=ms_a_batch)
            ours = next(row for row in rows if row["two_dimensional"]["fastest"])
            ratios.append(ms_a_batch(ours) / ms_a_batch(uniform))
            alone += ours is not uniform
            print(
                f"{number:3} {text}: {ms_a_batch(uniform):9.3f} {ms_a_batch(ours):9.3f} {ratios[-1]:.4f} {time.monotonic() - began:5.1f} s "
                f"{uniform['name'].partition(' in ')[2]}{' -> ' + ours['name'].partition(' in ')[2] if ours is not uniform else ''}",
                flush=True,
            )
    dearer = sum(ratio > 1 for ratio in ratios)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"{len(ratios)} requests: ours / best uniform: mean {mean:.4f}, least {min(ratios):.4f}, greatest {max(ratios):.4f}; {alone} by class, {dearer} dearer")
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
