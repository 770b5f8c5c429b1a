"""A model in, a plan out: its picture, TorchRec's planner beside it, and three cards. Needs no server and no GPU.

python tour.py    # writes plan.html and plan.json; train_dlrm.py trains on such a plan
"""

import time

from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import HardwareConfig, KernelConfig, TopologyFactory, TrainerConfig
from torchrec.distributed.sharding_plan import get_default_sharders

import neuroshard
from neuroshard import report
from neuroshard.torchrec import NeuroShardPlanner, save_plan

BATCH = 4096  # samples of one rank
RANKS = 8
CARDS = ("a100-sxm-80gb", "h100-sxm", "b200")

# A model, its tables without memory: 24 of them, from 100,000 to 60 million rows.
ROWS = [int(100_000 * 1.32**index) for index in range(24)]
tables = [EmbeddingBagConfig(name=f"t{i}", feature_names=[f"f{i}"], num_embeddings=rows, embedding_dim=64 if i % 3 else 128) for i, rows in enumerate(ROWS)]
model = EmbeddingBagCollection(tables=tables, device="meta")

# What cards can do, as their vendors publish it. TorchRec counts bandwidths by the millisecond.
with neuroshard.PlannerClient() as client:
    published = {card.name: card for card in client.devices().devices}


def topology(name):
    card = published[name]
    # Without use_hardware_based_bandwidth the factory takes memory alone, and bandwidths of a V100.
    kernel = KernelConfig(compute_device="cuda", use_hardware_based_bandwidth=True)
    hardware = HardwareConfig(
        hbm_cap_bytes=card.memory_bytes,
        hbm_mem_bw=card.memory_bytes_per_s / 1000,
        intra_host_bw=card.intra_host_bytes_per_s / 1000,
        inter_host_bw=card.inter_host_bytes_per_s / 1000,
    )
    return TopologyFactory.create_topology(TrainerConfig(world_size=RANKS, local_world_size=RANKS), hardware, kernel)


def timed(planner):
    begin = time.perf_counter()
    plan = planner.plan(model, get_default_sharders())
    print(f"{type(planner).__name__}: {time.perf_counter() - begin:.2f} s")
    return plan


# The plan, for TorchRec and as a page to look at.
planner = NeuroShardPlanner(topology=topology("h100-sxm"), device="h100-sxm", batch_size=BATCH)
save_plan(timed(planner), "plan.json")
print(planner.summary)
with open("plan.html", "w", encoding="utf-8") as file:
    file.write(report.show(planner.response).html)

# TorchRec's planner on the same model: cost by both models.
print(planner.compare(timed(EmbeddingShardingPlanner(topology=topology("h100-sxm"), batch_size=BATCH, debug=False, stats=[]))))

# The same model on other cards, by one measure: only one of them has a measured model here.
for name in CARDS:
    other = NeuroShardPlanner(topology=topology(name), device=name, batch_size=BATCH)
    cost = other.evaluate(other.plan(model, get_default_sharders())).plans[0]
    print(f"{name}: {cost.estimate_ms:.3f} ms by TorchRec's formulas, the fullest device {cost.memory_share:.0%} full")
