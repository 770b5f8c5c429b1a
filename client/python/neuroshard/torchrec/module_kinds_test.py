"""Which sharding types TorchRec runs of each kind of module, tried: two ranks over gloo train each (kind, type) for two steps. module_kinds.py has the table.

What it says of CUDA devices is tried on CPUs too, but where TorchRec hands DistributedDataParallel a device's number, which CPUs do not have.

  module_kinds_test.py [PLANNER CLIENT] [--write]     --write: put today's table into module_kinds.py
"""

import datetime
import logging
import multiprocessing
import os
import pathlib
import sys
import time
import unittest

import torch
import torch.distributed as dist
from held_port import HeldPort
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed import embedding_tower_sharding, fused_embedding, fused_embeddingbag
from torchrec.distributed import sharding_plan as plans
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerCollectionSharder, EmbeddingTowerSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, EmbeddingBagSharder
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.fused_embedding import FusedEmbeddingCollectionSharder
from torchrec.distributed.fused_embeddingbag import FusedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embedding import ManagedCollisionEmbeddingCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection, FusedEmbeddingCollection
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection, ManagedCollisionEmbeddingCollection
from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from neuroshard.torchrec import module_kinds

RANKS, ROWS, COLS, BATCH, IDS = 2, 64, 8, 2, 3
TIMEOUT_S = 30
NAMES = ("a", "b")
TYPES = ["data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"]


def bag_configs():
    return [EmbeddingBagConfig(name=name, num_embeddings=ROWS, embedding_dim=COLS, feature_names=[f"f_{name}"]) for name in NAMES]


def configs():
    return [EmbeddingConfig(name=name, num_embeddings=ROWS, embedding_dim=COLS, feature_names=[f"f_{name}"]) for name in NAMES]


class Interaction(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.linear = nn.Linear(tables * COLS, 4)

    def forward(self, found):
        return self.linear(found.values())


def towers():
    return EmbeddingTowerCollection([EmbeddingTower(EmbeddingBagCollection(tables=[config]), Interaction(1)) for config in bag_configs()])


def collisions(tables):
    settings = {"zch_size": ROWS, "input_hash_size": 4 * ROWS, "eviction_interval": 2, "device": torch.device("cpu")}
    return ManagedCollisionCollection(
        {table.name: MCHManagedCollisionModule(eviction_policy=DistanceLFU_EvictionPolicy(), **settings) for table in tables}, tables
    )


FUSED = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.1}, "device": torch.device("cpu")}
KINDS = {
    EmbeddingBagCollection: (lambda: EmbeddingBagCollection(tables=bag_configs()), EmbeddingBagCollectionSharder),
    EmbeddingCollection: (lambda: EmbeddingCollection(tables=configs()), EmbeddingCollectionSharder),
    nn.EmbeddingBag: (lambda: nn.EmbeddingBag(ROWS, COLS, mode="sum", include_last_offset=True), EmbeddingBagSharder),
    FeatureProcessedEmbeddingBagCollection: (
        lambda: FeatureProcessedEmbeddingBagCollection(
            EmbeddingBagCollection(tables=bag_configs(), is_weighted=True), PositionWeightedModuleCollection({f"f_{name}": 10 for name in NAMES})
        ),
        FeatureProcessedEmbeddingBagCollectionSharder,
    ),
    FusedEmbeddingBagCollection: (lambda: FusedEmbeddingBagCollection(tables=bag_configs(), **FUSED), FusedEmbeddingBagCollectionSharder),
    FusedEmbeddingCollection: (
        lambda: FusedEmbeddingCollection(tables=configs(), **{**FUSED, "device": torch.device("meta")}),  # takes no CPU
        FusedEmbeddingCollectionSharder,
    ),
    EmbeddingTower: (lambda: EmbeddingTower(EmbeddingBagCollection(tables=bag_configs()), Interaction(2)), EmbeddingTowerSharder),
    EmbeddingTowerCollection: (towers, EmbeddingTowerCollectionSharder),
    ManagedCollisionEmbeddingBagCollection: (
        lambda: ManagedCollisionEmbeddingBagCollection(EmbeddingBagCollection(tables=(tables := bag_configs())), collisions(tables)),
        ManagedCollisionEmbeddingBagCollectionSharder,
    ),
    ManagedCollisionEmbeddingCollection: (
        lambda: ManagedCollisionEmbeddingCollection(EmbeddingCollection(tables=(tables := configs())), collisions(tables)),
        ManagedCollisionEmbeddingCollectionSharder,
    ),
}


def qualified(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def layout(kind, name):
    """The plan's layout of a table; where the type has one rank, the tables are on both, since a rank without any fails for another reason."""
    return {
        "data_parallel": plans.data_parallel,
        "table_wise": lambda: plans.table_wise(rank=int(name == "b")),
        "column_wise": lambda: plans.column_wise(ranks=[0, 1]),
        "row_wise": plans.row_wise,
        "table_row_wise": lambda: plans.table_row_wise(host_index=0),
        "table_column_wise": lambda: plans.column_wise(ranks=[0, 1]),
        "grid_shard": lambda: plans.grid_shard(host_indexes=[0]),
    }[kind]()


class Model(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.sparse, self.over = sparse, nn.Linear(1, 1)

    def forward(self, *inputs):
        parts = []
        stack = [self.sparse(*inputs)]
        while stack:
            found = stack.pop()
            found = found.wait() if hasattr(found, "wait") else found
            if isinstance(found, torch.Tensor):
                parts.append(found)
            elif isinstance(found, tuple):  # managed collision: and the remapped features
                stack.append(found[0])
            elif isinstance(found, dict):
                parts += [jagged.values() for jagged in found.values()]
            else:
                parts.append(found.values())
        return (self.over(torch.cat([(part**2).flatten() for part in parts]).unsqueeze(1)) ** 2).mean()


def batch(kind, rank):
    generator = torch.Generator().manual_seed(rank)
    if kind is nn.EmbeddingBag:
        return torch.randint(0, ROWS, (BATCH * IDS,), generator=generator), torch.arange(0, BATCH * IDS + 1, IDS)
    values = torch.randint(0, ROWS, (len(NAMES) * BATCH * IDS,), generator=generator)
    return (KeyedJaggedTensor(keys=[f"f_{name}" for name in NAMES], values=values, lengths=torch.full((len(NAMES) * BATCH,), IDS)),)


def without_device_ids(module, device_ids=None, **others):
    return DistributedDataParallel(module, **others)


def train(kind, sharding_type, device, rank):
    if device == "cuda":
        for part in (embedding_tower_sharding, fused_embedding, fused_embeddingbag):
            part.DistributedDataParallel = without_device_ids
    make, sharder = KINDS[kind][0], KINDS[kind][1]()
    torch.manual_seed(0)
    model = Model(make())
    if not hasattr(model.sparse, "optimizer_type"):  # fused collections bring their own
        apply_optimizer_in_backward(torch.optim.SGD, sharder.shardable_parameters(model.sparse).values(), {"lr": 0.1})
    layouts = {}
    for name, parameter in sharder.shardable_parameters(model.sparse).items():
        layouts[name] = layout(sharding_type, name)(parameter, RANKS, RANKS, "cpu", sharder)
        layouts[name].sharding_type = sharding_type
    plan = ShardingPlan({"sparse": EmbeddingModuleShardingPlan(layouts)})
    sharded = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=[sharder])
    for _ in range(2):
        sharded.zero_grad()
        loss = sharded(*batch(kind, rank))
        loss.backward()
    assert torch.isfinite(loss)


def rank_main(kind, sharding_type, device, rank, port, why):
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
        train(kind, sharding_type, device, rank)
        why.put("")
    except Exception as fault:
        why.put(f"{type(fault).__name__}: {fault}".split("\n")[0][:110].strip())
    why.close()
    why.join_thread()
    os._exit(0)  # the other rank may wait for this one


def why_not(kind, sharding_type, device):
    """What TorchRec says; empty: both ranks train. A process each, since some pairs end it."""
    context = multiprocessing.get_context("fork")
    port, why = HeldPort(), context.Queue()
    ranks = [context.Process(target=rank_main, args=(kind, sharding_type, device, rank, port.number, why)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    said = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(said) < RANKS and not any(said) and time.monotonic() < deadline and (any(each.is_alive() for each in ranks) or not why.empty()):
        try:
            said.append(why.get(timeout=0.1))
        except Exception:  # queue.Empty: look again whether they live
            continue
    for each in ranks:
        if each.is_alive() and len(said) < RANKS:
            each.kill()
        each.join()
    port.close()
    return next((each for each in said if each), "" if len(said) == RANKS else "a rank ended without a word")


def what_runs():
    """({kind: {device: types that run}}, {kind: {type: why it does not run on CUDA devices}})."""
    runs, reasons = {}, {}
    for kind in KINDS:
        faults = {device: {each: why_not(kind, each, device) for each in TYPES} for device in ("cuda", "cpu")}
        runs[qualified(kind)] = {device: tuple(each for each in TYPES if not found[each]) for device, found in faults.items()}
        reasons[qualified(kind)] = {each: fault for each, fault in faults["cuda"].items() if fault}
    return runs, reasons


class ModuleKindsTest(unittest.TestCase):
    maxDiff = None

    def test_the_table_has_what_runs_under_torchrec(self):
        runs, reasons = what_runs()
        self.assertEqual(module_kinds.RUNNABLE, runs, reasons)


def write():
    runs, reasons = what_runs()
    lines = ["RUNNABLE: Dict[str, Dict[str, Tuple[str, ...]]] = {"]
    for kind, by_device in runs.items():
        lines += [f"    # {each}: {fault}" for each, fault in reasons[kind].items()]
        lines.append(f'    "{kind}": {{')
        for device, types in by_device.items():
            listed = ", ".join(f'"{each}"' for each in types)
            lines.append(f'        "{device}": ({listed}{"," if len(types) == 1 else ""}),')
        lines.append("    },")
    path = pathlib.Path(__file__).with_name("module_kinds.py")
    head, rest = path.read_text(encoding="utf-8").split("RUNNABLE:")
    path.write_text(head + "\n".join(lines) + "\n}\n" + rest.split("\n}\n", 1)[1], encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        unittest.main(argv=sys.argv[:1])
