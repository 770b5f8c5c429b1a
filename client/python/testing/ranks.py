"""Ranks of a job in processes of this machine, over gloo."""

import datetime
import multiprocessing
import os
import traceback

import torch
import torch.distributed as dist
from held_port import HeldPort

TIMEOUT_S = 60


def _rank_main(rank, world_size, local_world_size, port, functions, results):
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank % local_world_size), LOCAL_WORLD_SIZE=str(local_world_size),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    for name, function in functions.items():
        fault = None
        try:
            function()
        except Exception:
            fault = traceback.format_exc()
        results.put((rank, name, fault))
        # After a failure the ranks may be at different places, so that only this exchange is left to trust: it fails too where one waits elsewhere.
        faults = [None] * world_size
        dist.all_gather_object(faults, fault)
        if any(faults) and not all(faults):
            break
    dist.destroy_process_group()


def run_on_ranks(functions, world_size, local_world_size):
    """Runs every function of `functions` (by name) on every rank, in order; returns {name: faults}, empty where it went well on all ranks.

    The processes are forked: what is imported here is there. A function that fails on some ranks only ends the job; those after it are "did not run".
    """
    context = multiprocessing.get_context("fork")
    results, port = context.Queue(), HeldPort()
    processes = [
        context.Process(target=_rank_main, args=(rank, world_size, local_world_size, port.number, functions, results)) for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    found = {name: {} for name in functions}
    while any(process.is_alive() for process in processes) or not results.empty():
        try:
            rank, name, fault = results.get(timeout=0.2)
            found[name][rank] = fault
        except Exception:  # queue.Empty: look again whether they live
            continue
    for process in processes:
        process.join()
    port.close()
    faults = {}
    for name, by_rank in found.items():
        faults[name] = [f"rank {rank}: {fault}" for rank, fault in sorted(by_rank.items()) if fault]
        if len(by_rank) < world_size:
            faults[name].append(f"did not run to its end on rank {', '.join(str(rank) for rank in range(world_size) if rank not in by_rank)}")
    return faults
