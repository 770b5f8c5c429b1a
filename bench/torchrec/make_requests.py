#!/usr/bin/env python3
"""Writes plan requests of the kind that TorchRec's planner gets: tables of log-uniform size, hosts of eight devices.

    make_requests.py --tables 100 --ranks 8 --seed 1 > request.json

Rows 10^3 to 10^7 log-uniform, dims 16 to 256, pooling factors 1 to 100, both uniform; fp32 and SGD; 80 GiB a device, of
which 15 % is reserved; 4096 samples a rank; TorchRec's memory rule, cost model and default sharding types. The same
arguments give the same request on any machine. Standard library only.
"""

import argparse
import json
import random
import sys

RANKS_PER_HOST = 8
DIMS = (16, 32, 64, 96, 128, 192, 256)
SAMPLES_PER_RANK = 4096
DEVICE_BYTES = 80 << 30
RESERVED_SHARE = 0.15


def request(tables, ranks, seed):
    draw = random.Random(f"{tables} {ranks} {seed}")
    local = min(ranks, RANKS_PER_HOST)
    if ranks % local:
        raise SystemExit(f"ranks: must be up to {local} or a multiple of it, got {ranks}")
    return {
        "tables": [
            {
                "name": f"table_{i}",
                "num_embeddings": round(10 ** draw.uniform(3, 7)),
                "embedding_dim": draw.choice(DIMS),
                "pooling_factor": draw.randint(1, 100),
                "zipf_exponent": 1.05,
            }
            for i in range(tables)
        ],
        "topology": {"hosts": [{"count": ranks // local, "num_devices": local, "memory_bytes": DEVICE_BYTES}]},
        "global_batch_size": SAMPLES_PER_RANK * ranks,
        "optimizer": "sgd",
        "memory": {"rule": "torchrec", "reserve_fraction": RESERVED_SHARE},
        "cost_model": {"name": "analytic"},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    json.dump(request(options.tables, options.ranks, options.seed), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
