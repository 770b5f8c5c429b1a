#!/usr/bin/env python3
"""MLPerf's DLRMv4 planned by TorchRec's planner and by ours, both plans priced by both. Runs in the environment of bench/pytorch/setup_environment.sh.

    PYTHONPATH=build/dev/client/python/package build/pytorch/bin/python bench/torchrec/dlrmv4.py --bin build/release/bin [--ranks 8,16,32]

The tables are those of configs/workloads/sources/mlperf_dlrmv4_hstu.yaml in one EmbeddingCollection on the meta device; memory and bandwidths of the
ranks are the card's of configs/devices.yaml, as the service publishes them. Times of planning are seconds of the clock. Exits 1 where ours is the dearer
one by TorchRec's estimators.
"""

import argparse
import importlib.util
import logging
import pathlib
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

from torchrec import EmbeddingCollection, EmbeddingConfig  # noqa: E402
from torchrec.distributed.embedding import EmbeddingCollectionSharder  # noqa: E402
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import neuroshard  # noqa: E402
from neuroshard.torchrec import NeuroShardPlanner  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

logging.disable(logging.WARNING)

CARD = "b200"
RANKS_OF_HOST = 8
LOCAL_BATCH = 1024  # samples of a rank


def source_tables():
    """(name, rows, ids of a sample by feature, features) of each table."""
    spec = importlib.util.spec_from_file_location("make_workloads", ROOT / "configs/workloads/make_requests.py")
    workloads = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(workloads)
    for line in (ROOT / "configs/workloads/sources/mlperf_dlrmv4_hstu.yaml").read_text().splitlines():
        if line.lstrip().startswith("- {name:"):
            entry = workloads.inline_mapping(line)
            yield entry["name"], int(entry["rows"]), [float(n) for n in entry["ids"].strip("[]").split(",")], entry["features"].strip("[]").split(", ")


def topology(card, ranks):
    return Topology(
        world_size=ranks, local_world_size=RANKS_OF_HOST, compute_device="cuda", hbm_cap=card.memory_bytes,
        hbm_mem_bw=card.memory_bytes_per_s / 1000, intra_host_bw=card.intra_host_bytes_per_s / 1000, inter_host_bw=card.inter_host_bytes_per_s / 1000,
    )


def timed_plan(planner, module, sharders):
    begin = time.perf_counter()
    return planner.plan(module, sharders), time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard-planner")
    parser.add_argument("--ranks", default="8,16,32")
    options = parser.parse_args()

    tables = list(source_tables())
    module = EmbeddingCollection(
        device="meta",
        tables=[EmbeddingConfig(name=name, num_embeddings=rows, embedding_dim=512, feature_names=features) for name, rows, _, features in tables],
    )
    constraints = {name: ParameterConstraints(pooling_factors=ids) for name, _, ids, _ in tables}
    wire = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.FP16))
    sharders = [EmbeddingCollectionSharder(qcomm_codecs_registry=wire, use_index_dedup=True)]
    is_cheaper = True
    print("| ranks | TorchRec's planner, ms | s | ours, ms | s | ours / TorchRec's | ours / bound | fullest device, TorchRec's | ours |\n|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder)) as server:
        with neuroshard.PlannerClient(server.address) as client:
            card = next(device for device in client.devices().devices if device.name == CARD)
        for ranks in map(int, options.ranks.split(",")):
            shared = {"topology": topology(card, ranks), "batch_size": LOCAL_BATCH, "constraints": constraints, "debug": False, "stats": []}
            planner = NeuroShardPlanner(server.address, device=CARD, optimizer="rowwise_adagrad", **shared)
            _, our_s = timed_plan(planner, module, sharders)
            their_plan, their_s = timed_plan(EmbeddingShardingPlanner(**shared), module, sharders)
            ours, theirs = planner.compare(their_plan).plans
            bound = planner.response.lower_bound.cost_ms
            print(
                f"| {ranks} | {theirs.estimate_ms:.3f} | {their_s:.1f} | {ours.estimate_ms:.3f} | {our_s:.1f} | {ours.estimate_ms / theirs.estimate_ms:.3f} "
                f"| {ours.cost_ms / bound:.3f} | {theirs.memory_share:.0%} | {ours.memory_share:.0%} |",
                flush=True,
            )
            is_cheaper &= ours.estimate_ms <= theirs.estimate_ms * (1 + 1e-6)
    return 0 if is_cheaper else 1


if __name__ == "__main__":
    sys.exit(main())
