"""TorchRec's DLRM on random data, its tables sharded by a plan of the planner in this package, or of the service that NEUROSHARD_PLANNER names.

torchrun --nproc_per_node 2 train_dlrm.py
"""

import os

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.datasets.random import RandomRecDataset
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.planner.types import KernelConfig, TopologyFactory, TrainerConfig
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.optimizers import in_backward_optimizer_filter

from neuroshard.torchrec import NeuroShardPlanner, save_plan, statistics

BATCH = 256  # samples of one rank
ROWS = [5_000 * (index + 1) for index in range(8)]
STEPS = 20

# One process a rank: on GPUs over NCCL, otherwise on CPUs over Gloo.
cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

# The model, its tables without memory yet: they may be larger than a device.
tables = [EmbeddingBagConfig(name=f"t{i}", feature_names=[f"f{i}"], num_embeddings=rows, embedding_dim=32) for i, rows in enumerate(ROWS)]
model = DLRMTrain(
    DLRM(
        embedding_bag_collection=EmbeddingBagCollection(tables=tables, device=torch.device("meta")),
        dense_in_features=13,
        dense_arch_layer_sizes=[64, 32],
        over_arch_layer_sizes=[64, 1],
        dense_device=device,
    )
)
apply_optimizer_in_backward(RowWiseAdagrad, model.model.sparse_arch.parameters(), {"lr": 0.05})

data = RandomRecDataset(
    keys=[f"f{i}" for i in range(len(ROWS))], batch_size=BATCH, hash_sizes=ROWS, ids_per_feature=5, num_dense=13, manual_seed=rank, num_batches=STEPS
)

# The plan: rank 0 asks the planner, the others get it from rank 0.
topology = TopologyFactory.create_topology(
    TrainerConfig(world_size=world_size, local_world_size=int(os.environ["LOCAL_WORLD_SIZE"])), kernel_config=KernelConfig(compute_device=device.type)
)
sample = [batch for _, batch in zip(range(world_size), iter(data))]
planner = NeuroShardPlanner(topology=topology, batch_size=BATCH, statistics=statistics(sample))
plan = planner.collective_plan(model, get_default_sharders())
if rank == 0:
    print(plan)
    save_plan(plan, "plan.json")

# Wrapping draws the tables' weights anew: load a checkpoint after it, not before.
model = DistributedModelParallel(model, device=device, plan=plan)
optimizer = torch.optim.Adam([parameter for _, parameter in in_backward_optimizer_filter(model.named_parameters())], lr=0.01)

for step, batch in enumerate(data):
    optimizer.zero_grad()
    loss, _ = model(batch.to(device))
    loss.backward()
    optimizer.step()
    dist.all_reduce(mean := loss.detach().clone())
    if rank == 0:
        print(f"step {step}: loss {float(mean) / world_size:.4f}", flush=True)
dist.destroy_process_group()
