#!/usr/bin/env python3
"""Writes the .pt files beside it, and what PyTorch itself computes with them (expected.json). Needs PyTorch; the tests do not.

The networks have the layers of NeuroShard's (peers of ComputeCostNet and CommCostNet by names of parameters, keys of the file and arithmetic), fewer
units, and random weights. Run again only to add a file: PyTorch's zip files are not the same byte for byte under every version.
"""

import json
import os

import torch
from torch import nn
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
FEATURES = 20


class Compute(nn.Module):
    def __init__(self):
        super().__init__()
        self.t_hidden = nn.ModuleList([nn.Linear(FEATURES, 6), nn.Linear(6, 4)])
        self.c_hidden = nn.ModuleList([nn.Linear(4, 5), nn.Linear(5, 1)])

    def forward(self, tables):
        for layer in self.t_hidden:
            tables = functional.relu(layer(tables))
        return self.c_hidden[1](functional.relu(self.c_hidden[0](tables.sum(dim=0))))


class Comm(nn.Module):
    def __init__(self, inputs, devices):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(inputs, 7), nn.Linear(7, 5), nn.Linear(5, devices)])

    def forward(self, x):
        return self.hidden[2](functional.relu(self.hidden[1](functional.relu(self.hidden[0](x)))))


def shifted(network, by):
    """Costs around `by` ms, so that none is cut off at 0."""
    with torch.no_grad():
        list(network.parameters())[-1].add_(by)
    return network


def plan_costs(tables, assignment, devices, compute, networks):
    """Costs of a plan as the original's simulator adds them up: offsets of the forward exchange are compute + backward, minus the least of them."""

    def comm(direction, inputs):
        network, mean, std = networks[direction]
        return network((torch.tensor(inputs) - mean) / std).tolist()

    with torch.no_grad():
        ranks = [[t for t in range(len(assignment)) if assignment[t] == r] for r in range(devices)]
        compute_ms = [compute(tables[rank]) for rank in ranks]
        dims = [tables[rank, 17].sum().item() for rank in ranks]
        backward_ms = comm("bw", dims)
        starts = [a + b for a, b in zip(compute_ms, backward_ms)]
        forward_ms = comm("fw", dims + [start - min(starts) for start in starts])
    return {"devices": devices, "assignment": assignment, "compute_ms": compute_ms, "backward_comm_ms": backward_ms, "forward_comm_ms": forward_ms}


def main():
    torch.manual_seed(856)
    # Raw features of six tables in the order of the network's columns: bins, dim, pooling factor, rows.
    bins = torch.rand(6, 17)
    tables = torch.cat([bins / bins.sum(dim=1, keepdim=True), torch.tensor([[4.0, 3.0, 1e3], [8.0, 9.5, 2e4], [16.0, 0.25, 3e5], [64.0, 30.0, 4e6], [128.0, 1.0, 100.0], [32.0, 12.0, 7e4]])], dim=1)
    expected = {"torch": torch.__version__, "tables": tables.tolist(), "compute": [], "comm": [], "plans": []}

    means, stds = tables.mean(dim=0), tables.std(dim=0) + 1e-6
    compute = shifted(Compute(), 3.0)
    saved = {
        "state_dict": compute.state_dict(), "feature_means": means, "feature_stds": stds,
        "num_table_features": FEATURES, "table_mlp_sizes": [6, 4], "pred_mlp_sizes": [4, 5],
    }
    torch.save(saved, os.path.join(HERE, "compute.pt"))
    torch.save(saved, os.path.join(HERE, "compute_legacy.pt"), _use_new_zipfile_serialization=False)
    for rank in ([0], [1, 2, 3], [5, 4], [0, 1, 2, 3, 4, 5]):
        with torch.no_grad():
            expected["compute"].append({"tables": rank, "total_ms": compute((tables[rank] - means) / stds).item()})

    plans = {2: [0, 1, 1, 0, 0, 1], 4: [0, 1, 2, 3, 1, 0]}
    for devices in (2, 4):
        dims = torch.tensor([[8.0 * (r + 1) for r in range(devices)], [640.0 / (r + 1) for r in range(devices)]])
        offsets = torch.tensor([[0.5 * r for r in range(devices)], [7.25 / (r + 1) for r in range(devices)]])
        networks = {}
        for direction, x in (("fw", torch.cat([dims, offsets], dim=1)), ("bw", dims)):
            network = shifted(Comm(x.shape[1], devices), 4.0)
            mean, std = x.mean(dim=0), x.std(dim=0) + 1e-6
            torch.save(
                {
                    "state_dict": network.state_dict(), "feature_means": mean, "feature_stds": std,
                    "num_features": x.shape[1], "mlp_sizes": [7, 5], "ndevices": devices,
                },
                os.path.join(HERE, f"comm_{devices}_{direction}.pt"),
            )
            with torch.no_grad():
                costs = network((x - mean) / std)
            for row, cost in zip(x.tolist(), costs.tolist()):
                expected["comm"].append({"devices": devices, "direction": direction, "inputs": row, "cost_ms": cost})
            networks[direction] = (network, mean, std)
        expected["plans"].append(plan_costs(tables, plans[devices], devices, lambda x: compute((x - means) / stds).item(), networks))

    # A bare state_dict under other names, in half and bfloat16, its weights views of one storage.
    block = torch.randn(400, dtype=torch.float32)
    half, bfloat = block.half(), block.bfloat16()
    torch.save(
        {
            "embed.weight": half[:120].view(FEATURES, 6).t(), "embed.bias": half[120:126], "out.weight": bfloat[30:36].view(1, 6), "out.bias": bfloat[36:37],
        },
        os.path.join(HERE, "other_names.pt"),
    )
    expected["other_names"] = {
        "embed.weight": half[:120].view(FEATURES, 6).t().float().tolist(), "embed.bias": half[120:126].float().tolist(),
        "out.weight": bfloat[30:36].view(1, 6).float().tolist(), "out.bias": bfloat[36:37].float().tolist(),
    }
    torch.save(compute, os.path.join(HERE, "whole_module.pt"))

    # Three tables, batch 4, as dlrm_datasets saves them: ids table by table, offsets into them, lengths [tables, batch].
    ids = [[5, 5, 5, 7, 900], [], [0, 1, 1, 1, 2, 2, 40, 41]]
    lengths = [[1, 0, 2, 2], [0, 0, 0, 0], [2, 2, 2, 2]]
    flat = torch.tensor(sum(ids, []))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(lengths).flatten().cumsum(0)])
    torch.save((flat, offsets, torch.tensor(lengths)), os.path.join(HERE, "dataset.pt"))
    torch.save([flat.int(), offsets.int(), torch.tensor(lengths).int()], os.path.join(HERE, "dataset_legacy_int.pt"), _use_new_zipfile_serialization=False)

    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
