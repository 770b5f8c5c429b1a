#!/usr/bin/env python3
"""Memory stashing on 96 ranks: how much less the fullest rank stashes for a little of the cost.

    bench/torchrec/stash.py --bin build/dev/bin [--seeds 1,2,3,4,5] [--open]

Made up after TorchRec's pull request 4520, whose model is not public: 12 hosts of eight H100, 1,000 tables, of which 5 GiB to 7 GiB a rank are stashed: those
with the fewest lookups a byte. The largest can be cut into columns alone, in shards of 8.345 GB at least, which is the floor. Default search by TorchRec's
formulas, `search.goals` with 2.5 % of the cost: `max_stash`, and beside it `max_memory`, which evens out all memory alike. `--open`: no table is marked, and
dense layers take 54 GiB of each device; the planner chooses.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server_process import PlannerProcess  # noqa: E402

HOSTS, RANKS_OF_HOST, TABLES = 12, 8, 1000
GIB = 1 << 30
FLOOR_BYTES = 8.345e9
WIDTH = 128  # TorchRec's min_partition
STASHED_GIB = (5, 7)  # a rank
DENSE_GIB = 54
TOLERANCE = 0.025


def request(seed, is_open):
    draw = random.Random(seed)
    tables = [
        {
            "name": f"table_{i}",
            "num_embeddings": round(10 ** draw.uniform(4, 7.5)),
            "embedding_dim": draw.choice((64, 128, 192, 256)),
            "pooling_factor": round(10 ** draw.uniform(0, 2), 2),
            "zipf_exponent": 1.05,
        }
        for i in range(TABLES - 1)
    ]
    rows = round(FLOOR_BYTES / (4 * WIDTH))
    tables.append({"name": "largest", "num_embeddings": rows, "embedding_dim": 4 * WIDTH, "pooling_factor": 1, "zipf_exponent": 1.05})
    left = draw.uniform(*STASHED_GIB) * GIB * HOSTS * RANKS_OF_HOST
    for table in sorted(tables, key=lambda of: of["pooling_factor"] / of["num_embeddings"]):
        left -= 4 * table["num_embeddings"] * table["embedding_dim"]
        if left > 0 and not is_open:
            table["stash_weights"] = True
    return {
        "tables": tables,
        "topology": {"hosts": [{"count": HOSTS, "num_devices": RANKS_OF_HOST, "device": "h100-sxm"}]},
        "global_batch_size": 2048 * HOSTS * RANKS_OF_HOST,
        "optimizer": "rowwise_adagrad",
        "memory": {"rule": "torchrec", "reserve_fraction": 0.15, **({"dense_bytes": DENSE_GIB * GIB} if is_open else {})},
        "constraints": {
            "sharding_types": ["table_wise", "column_wise", "row_wise", "table_row_wise"],
            "tables": [{"tables": ["largest"], "sharding_types": ["column_wise"], "min_column_width": WIDTH, "distinct_ranks": True}],
        },
        "cost_model": {"name": "analytic"},
        "search": {"goals": [{"measure": "cost", "tolerance": TOLERANCE}, {"measure": "max_stash"}]},
    }


def ask(cli, address, file, content):
    file.write_text(json.dumps(content))
    done = subprocess.run([cli, "plan", file, "--planner", address, "--format", "json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def row(cli, address, file, seed, is_open):
    asked = request(seed, is_open)
    answer = ask(cli, address, file, asked)
    before, *_, after = answer["trades"][0]["points"]
    asked["search"]["goals"][1]["measure"] = "max_memory"
    even = ask(cli, address, file, asked)
    stashed = sum(int(rank["memory"].get("stashed_bytes", 0)) for rank in answer["cost"]["ranks"])
    sizes = (int(even["stash"]["max_stashed_bytes"]), before["value"], after["value"])
    even_gib, before_gib, after_gib = (size / GIB for size in sizes)
    return (
        f"| {seed} | {len(answer['stash']['tables'])} | {before_gib:.2f} | {even_gib:.2f} | {after_gib:.2f} | {1 - after_gib / min(before_gib, even_gib):.0%}"
        f" | {after['cost_ms'] / before['cost_ms'] - 1:+.2%} | {stashed / GIB / HOSTS / RANKS_OF_HOST:.2f} | {answer['search']['search_ms'] / 1000:.0f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--open", action="store_true")
    options = parser.parse_args()
    print("| seed | tables stashed | cheapest plan, GiB | max_memory | max_stash | less than both | cost | mean of ranks | s |\n|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder)) as planner:
        for seed in map(int, options.seeds.split(",")):
            print(row(options.bin / "neuroshard", planner.address, pathlib.Path(folder) / "request.json", seed, options.open), flush=True)


if __name__ == "__main__":
    main()
