#!/usr/bin/env python3
"""Static tables and tables that grow (DynamicEmb) under one budget, as TorchEasyRec's planner plans them and as ours does; each prices both plans.

    build/pytorch/bin/python bench/torchrec/dynamic_tables.py --bin build/dev/bin

100 tasks: 8 to 30 tables of make_requests.py on 4 or 8 ranks, of which every other one grows, with device memory of 30 % of all weights and host memory of 80
to 200 %. TorchEasyRec's planner (alibaba/TorchEasyRec at 0467638) is TorchRec's with other proposals (two_memories_proposer.py) and, of each table that grows,
20 options: HYBRID or CACHING, and 0.1 to 1.0 of the values on the device. Cost and bytes are TorchRec's estimators' and, of those options, TorchEasyRec's,
written down here anew. Where EvaluatePlan says otherwise of any plan, of a cost by more than 1e-5 or of a rank's memory by a byte, it ends with an error.
Ours plans as it comes, and with TorchRec's one column width a table and its caches of a fifth of the rows, so that both choose among the same options. Exits 1
where one of ours is dearer.
"""

import argparse
import copy
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import make_requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from compare import TOLERANCE, Comparison  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

KERNELS = ("dynamic_hybrid", "dynamic_caching")
SHARES = [(i + 1) / 10 for i in range(10)]


def request(seed):
    draw = random.Random(f"dynamic {seed}")
    made = make_requests.request(draw.randint(8, 30), draw.choice([4, 8]), seed, host_memory=True)
    host = made["topology"]["hosts"][0]
    weights = sum(4 * table["num_embeddings"] * table["embedding_dim"] for table in made["tables"])
    host["max_host_memory_bytes_per_device"] = int(draw.uniform(0.8, 2) * weights / host["num_devices"])
    host["host_memory_bytes"] = host["max_host_memory_bytes_per_device"] * host["num_devices"]
    grow = [table["name"] for table in made["tables"][::2]]
    made["constraints"] = {"tables": [{"tables": grow, "sharding_types": ["row_wise"], "compute_kernels": KERNELS}]}
    return made


def on_device_share(caching, share):
    """Of TorchEasyRec's bandwidth: fitted to DynamicEmb on an A10."""
    if share >= 1:
        return math.nextafter(1.0, 0.0)  # TorchRec refuses cached tables that are all on the device, which these are not
    return (0.28 if caching else 0.11) + 0.01 * share


def bytes_of_rows(rows, dim, caching, share):
    """(device, host) of fp32 without optimizer state."""
    slots, value = max(1, -(-rows // 16)) * 16, -(-4 * dim // 16) * 16
    return math.ceil(slots * (value * share + (8 + 8 + 1 + 4 / 128))), math.ceil(slots * (value * (1.0 if caching else 1.0 - share)))


def peer_of(made):
    import peer
    from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
    from torchrec.distributed.planner.types import Storage
    from torchrec.distributed.types import CacheParams

    grow = set(made["constraints"]["tables"][0]["tables"])

    class Enumerator(EmbeddingEnumerator):
        def enumerate(self, module, sharders):
            found = []
            for option in super().enumerate(module, sharders):
                if option.name not in grow:
                    found.append(option)
                    continue
                for number in range(2 * len(SHARES)):
                    variant = copy.deepcopy(option)
                    variant.cache_params = CacheParams(reserved_memory=float(number))  # which of them it is, in plans too
                    found.append(variant)
            self.populate_estimates(found)
            return found

        def populate_estimates(self, options):
            """Times are those of TorchRec's cached kernel with another share, since its bandwidth is the same; ids and vectors take what they do of a table on the device."""
            dynamic = [option for option in options if option.name in grow and option.cache_params is not None]
            for option in dynamic:
                option.compute_kernel = "fused"
            super().populate_estimates(dynamic)
            beside = [[shard.storage.hbm - 4 * shard.size[0] * shard.size[1] for shard in option.shards] for option in dynamic]
            kinds = []
            for option in dynamic:
                number = int(option.cache_params.reserved_memory)
                kinds.append((number >= len(SHARES), SHARES[number % len(SHARES)]))
                option.compute_kernel = "fused_uvm_caching"
                option.cache_params = CacheParams(load_factor=on_device_share(*kinds[-1]), reserved_memory=float(number))
            super().populate_estimates(options)
            for option, (caching, share), io_bytes in zip(dynamic, kinds, beside):
                for shard, more in zip(option.shards, io_bytes):
                    device, host = bytes_of_rows(shard.size[0], shard.size[1], caching, share)
                    shard.storage = Storage(hbm=device + more, ddr=host)

    class Peer(peer.Peer):
        def _constraints(self, types_of, cache_of=lambda table: None, kernels=None):
            found = super()._constraints(types_of, cache_of, kernels)
            for name in grow:
                found[name].sharding_types, found[name].compute_kernels, found[name].cache_params = ["row_wise"], ["fused_uvm_caching"], None
            return found

        def enumerator(self, constraints):
            return Enumerator(topology=self.topology, batch_size=self.batch_size, constraints=constraints)

        def _table_plan(self, table, sharding):
            entry = super()._table_plan(table, sharding)
            if table["name"] in grow:
                number = int(sharding.cache_params.reserved_memory)
                entry |= {"compute_kernel": KERNELS[number // len(SHARES)], "cache_load_factor": SHARES[number % len(SHARES)]}
            return entry

        def is_planned(self, option, plan):
            if option.name not in grow:
                return super().is_planned(option, plan)
            number = KERNELS.index(plan["compute_kernel"]) * len(SHARES) + SHARES.index(plan["cache_load_factor"])
            return int(option.cache_params.reserved_memory) == number

    return Peer(made)


def planned(comparison, **constraints):
    try:
        return comparison.ours(**constraints)
    except ValueError as error:
        return {"error": str(error)[:120]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--first", type=int, default=1, help="seed of the first task")
    parser.add_argument("--limit-s", type=int, default=120, help="TorchRec's limit of time for each plan")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of TorchRec's options depends on it
        os.execve(sys.executable, [sys.executable, "-B", *sys.argv], os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"})
    ratios, narrow_ratios, alone, neither, dearer = [], [], 0, 0, 0
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:

        def cli(*arguments):
            command = [options.bin / "neuroshard", *arguments, "--planner", planner.address, "--format", "json"]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if not done.stdout:
                raise ValueError(done.stderr)
            return json.loads(done.stdout)

        for seed in range(options.first, options.first + options.tasks):
            made = request(seed)
            comparison = Comparison(f"task {seed}", made, planner, cli, pathlib.Path(name))
            comparison.peer = peer_of(made)
            grow = made["constraints"]["tables"]
            static = {"tables": [table["name"] for table in made["tables"][1::2]], "cache_load_factor": 0.2}
            ours, narrow = planned(comparison), planned(comparison, tables=[*grow, static], column_rule="torchrec")
            try:
                theirs = comparison.price(comparison.peer.plan("both memories", options.limit_s))
            except Exception as error:  # TorchRec's PlannerError, above all
                theirs = {"error": f"{type(error).__name__}: {error}"[:120]}
            text = [f"{each['cost_ms']:.3f} ms" if "cost_ms" in each else f"none ({each['error'].splitlines()[0][:60]})" for each in (ours, narrow, theirs)]
            print(f"task {seed}: {len(made['tables'])} tables, ours {text[0]}, with their options {text[1]}, theirs {text[2]}", flush=True)
            if "cost_ms" in theirs:
                for each, found in ((ours, ratios), (narrow, narrow_ratios)):
                    found.append(each.get("cost_ms", math.inf) / theirs["cost_ms"])
                dearer += ratios[-1] > 1 + TOLERANCE
            elif "cost_ms" in ours:
                alone += 1
            else:
                neither += 1
    print(f"{options.tasks} tasks: theirs plans {len(ratios)}, ours alone {alone}, neither {neither}")
    for name, found in (("ours", ratios), ("with their options", narrow_ratios)):
        dearer_on, cheaper_on = (sum(sign * (ratio - 1) > TOLERANCE for ratio in found) for sign in (1, -1))
        mean = statistics.geometric_mean(found) if found else math.nan
        print(f"{name}: dearer on {dearer_on}, cheaper on {cheaper_on}; cost / theirs {mean:.3f}, at most {max(found, default=math.nan):.4f}")
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
