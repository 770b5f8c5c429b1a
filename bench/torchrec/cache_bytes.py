#!/usr/bin/env python3
"""What FBGEMM allocates for the caches of a plan, rank by rank, beside what is counted: as TorchRec groups the tables, and as the package `neuroshard` sets them apart.

    make_requests.py --tables 100 --ranks 8 --seed 1 --host-memory > request.json
    neuroshard plan request.json --format json --out plan.json
    PYTHONPATH=build/dev/client/python/package build/pytorch/bin/python bench/torchrec/cache_bytes.py request.json plan.json

All tables are taken as one EmbeddingBagCollection.
"""

import argparse
import json
import logging
import pathlib
from unittest import mock

logging.disable(logging.WARNING)

import torch  # noqa: E402
from google.protobuf import json_format  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from torchrec.distributed.planner.planners import to_sharding_plan  # noqa: E402
from torchrec.distributed.planner.types import Topology  # noqa: E402
from torchrec.distributed.sharding_plan import get_default_sharders  # noqa: E402

from neuroshard import v1  # noqa: E402
from neuroshard.torchrec import layout  # noqa: E402
from neuroshard.torchrec.module_tables import TableEnumerator  # noqa: E402
from neuroshard.torchrec.table_groups import table_groups  # noqa: E402

GIB = 1 << 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", type=pathlib.Path)
    parser.add_argument("plan", type=pathlib.Path)
    options = parser.parse_args()
    request = json.loads(options.request.read_text())
    message = json_format.ParseDict(json.loads(options.plan.read_text())["plan"], v1.ShardPlanResponse().plan, ignore_unknown_fields=True)
    for table in message.tables:
        table.module = "ebc"
    host = request["topology"]["hosts"][0]
    topology = Topology(world_size=host["count"] * host["num_devices"], local_world_size=host["num_devices"], compute_device="cuda")
    configs = [
        EmbeddingBagConfig(name=each["name"], num_embeddings=each["num_embeddings"], embedding_dim=each["embedding_dim"], feature_names=[each["name"]])
        for each in request["tables"]
    ]
    module = torch.nn.ModuleDict({"ebc": EmbeddingBagCollection(tables=configs, device=torch.device("meta"))})
    tables = TableEnumerator(topology, 1).tables(module, get_default_sharders(), topology)

    def groups_of():
        return table_groups(to_sharding_plan(layout.chosen_options(layout.from_message(message), tables, topology, 1), topology), tables)

    with mock.patch.object(layout, "separate_caches"):
        before = groups_of()
    print("rank  counted_gib  grouped_gib  ratio  lookups  own_caches_gib  ratio  lookups")
    for rank in range(topology.world_size):
        columns = []
        for groups in (before, groups_of()):
            mine = [group for group in groups if group.rank == rank]
            columns.append((sum(each.cache_bytes for each in mine), sum(each.counted_cache_bytes for each in mine), len(mine)))
        counted = columns[0][1]
        text = "".join(f"  {allocated / GIB:11.2f}  {allocated / max(1, counted):5.3f}  {lookups:7}" for allocated, _, lookups in columns)
        print(f"{rank:4}  {counted / GIB:11.2f}{text}")


if __name__ == "__main__":
    main()
