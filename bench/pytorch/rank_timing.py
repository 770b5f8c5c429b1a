"""How long a rank of torch.distributed takes for something that all ranks do."""

import statistics
import time

import torch.distributed as dist

WARMUP = 3


def median_seconds(work, iterations):
    """From the rank's own start, after a barrier, to its own end: the median over the iterations, without WARMUP ones."""
    times = []
    for i in range(WARMUP + iterations):
        dist.barrier()
        begin = time.perf_counter()
        work()
        if i >= WARMUP:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)
