#!/usr/bin/env python3
"""Writes plan requests of the kind that TorchRec's planner gets: tables of log-uniform size, hosts of eight devices.

    make_requests.py --tables 100 --ranks 8 --seed 1 > request.json
    make_requests.py --tables 100 --ranks 8 --seed 1 --host-memory > request.json

Rows 10^3 to 10^7 log-uniform, dims 16 to 256, pooling factors 1 to 100, both uniform; fp32 and SGD; 80 GiB a device, of
which 15 % is reserved; 4096 samples a rank; TorchRec's memory rule, cost model and default sharding types. With host memory:
TorchRec's default Topology, 32 GiB a device and 128 GiB of its host's for it, and
all rows multiplied until device memory is 30 % of the weights. The same arguments
give the same request on any machine. Standard library only.
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
OFFLOAD_DEVICE_BYTES = 32 << 30  # torchrec/distributed/planner/constants.py: HBM_CAP, DDR_CAP
OFFLOAD_HOST_BYTES = 128 << 30  # a device
OFFLOAD_SHARE = 0.3  # of the weights that device memory is


def request(tables, ranks, seed, host_memory=False):
    draw = random.Random(f"{tables} {ranks} {seed}")
    local = min(ranks, RANKS_PER_HOST)
    if ranks % local:
        raise SystemExit(f"ranks: must be up to {local} or a multiple of it, got {ranks}")
    drawn = [
        {
            "name": f"table_{i}",
            "num_embeddings": round(10 ** draw.uniform(3, 7)),
            "embedding_dim": draw.choice(DIMS),
            "pooling_factor": draw.randint(1, 100),
            "zipf_exponent": 1.05,
        }
        for i in range(tables)
    ]
    host = {"count": ranks // local, "num_devices": local, "memory_bytes": DEVICE_BYTES}
    if host_memory:
        weights = sum(4 * t["num_embeddings"] * t["embedding_dim"] for t in drawn)
        for table in drawn:
            table["num_embeddings"] = round(table["num_embeddings"] * OFFLOAD_DEVICE_BYTES * ranks / (OFFLOAD_SHARE * weights))
        host |= {"memory_bytes": OFFLOAD_DEVICE_BYTES, "host_memory_bytes": OFFLOAD_HOST_BYTES * local,
                 "max_host_memory_bytes_per_device": OFFLOAD_HOST_BYTES}
    return {
        "tables": drawn,
        "topology": {"hosts": [host]},
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
    parser.add_argument("--host-memory", action="store_true")
    options = parser.parse_args()
    json.dump(request(options.tables, options.ranks, options.seed, options.host_memory), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
