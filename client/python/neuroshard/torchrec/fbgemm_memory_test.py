"""Bytes of the memory rule "full" against the tensors of the lookup that FBGEMM makes of a table, on random tables and a device that is not there.

  fbgemm_memory_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import collections
import random
import unittest

from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from meta_lookup import lookup_on_meta
from planner_case import GIB, Programs, main

import neuroshard
from neuroshard.worker.fbgemm_lookup import OPTIMIZERS

CASES = 400
PLACES = {"fused": EmbeddingLocation.DEVICE, "fused_uvm": EmbeddingLocation.MANAGED, "fused_uvm_caching": EmbeddingLocation.MANAGED_CACHING}
DTYPES = {"fp32": SparseType.FP32, "fp16": SparseType.FP16}
STATE = ("momentum1", "momentum2", "prev_iter", "row_counter")
CACHE_STATE = ("cache_index_table_map", "lxu_cache_state", "lxu_state")  # FBGEMM's own list of what grows with rows
CACHE_WAYS = 32
EMPTY_STATE = 32  # bytes at most of tensors of one number, which FBGEMM has for state that an optimizer lacks


class Shard:
    """A whole table on one rank."""

    def __init__(self, draw):
        self.rows, self.cols = int(10 ** draw.uniform(1, 6.5)), draw.choice([4, 8, 20, 64, 128])
        self.kernel, self.dtype, self.optimizer = draw.choice(list(PLACES)), draw.choice(list(DTYPES)), draw.choice(list(OPTIMIZERS))
        self.load_factor = draw.choice([0.05, 0.2, 0.5, 0.9]) if self.kernel == "fused_uvm_caching" else 0.0

    def counted(self, client):
        """Bytes as EvaluatePlan counts them."""
        table = dict(name="t", num_embeddings=self.rows, embedding_dim=self.cols, pooling_factor=1, weight_dtype=self.dtype)
        host = dict(num_devices=1, memory_bytes=100 * GIB, host_memory_bytes=100 * GIB)
        request = dict(tables=[table], topology=dict(hosts=[host]), global_batch_size=1, optimizer=self.optimizer, cost_model=dict(name="analytic"))
        request["memory"] = dict(rule="full")
        shard = dict(rows=self.rows, cols=self.cols)
        of_table = dict(name="t", sharding_type="table_wise", shards=[shard], compute_kernel=self.kernel)
        of_table.update(dict(cache_load_factor=self.load_factor) if self.load_factor else {})
        answer = client.evaluate(request, dict(world_size=1, local_world_size=1, tables=[of_table]))
        assert not answer.violations, answer.violations
        return answer.cost.ranks[0].memory

    def lookup(self):
        table = (self.rows, self.cols, PLACES[self.kernel])
        settings = dict(weights_precision=DTYPES[self.dtype], optimizer=OPTIMIZERS[self.optimizer], cache_load_factor=self.load_factor or 0.2)
        return lookup_on_meta([table], **settings)


def bytes_of(lookup, *names):
    tensors = [getattr(lookup, name, None) for name in names]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


class FbgemmMemoryTest(unittest.TestCase):
    def test_rows_state_and_caches_take_what_fbgemm_allocates(self):
        seen = collections.Counter()
        with neuroshard.PlannerClient(Programs.address) as client:
            for seed in range(CASES):
                shard = Shard(random.Random(seed))
                counted, lookup = shard.counted(client), shard.lookup()
                with self.subTest(seed=seed, **vars(shard)):
                    set_bytes = CACHE_WAYS * shard.cols * 4 if shard.load_factor else 0  # caches are rounded to whole sets
                    pairs = {
                        "rows on the device": (counted.weights_bytes, bytes_of(lookup, "weights_dev", "lxu_cache_weights"), set_bytes),
                        "rows in host memory": (counted.host_weights_bytes, bytes_of(lookup, "weights_uvm"), 0),
                        "state on the device": (counted.optimizer_bytes, bytes_of(lookup, *(f"{name}_dev" for name in STATE)), EMPTY_STATE),
                        "state in host memory": (counted.host_optimizer_bytes, bytes_of(lookup, *(f"{name}_uvm" for name in STATE)), EMPTY_STATE),
                        "of caches": (counted.cache_state_bytes, bytes_of(lookup, *CACHE_STATE) if shard.load_factor else 0, CACHE_WAYS * 16),
                    }
                    for name, (ours, fbgemms, slack) in pairs.items():
                        self.assertAlmostEqual(ours, fbgemms, delta=max(slack, 0.01 * fbgemms), msg=name)
                        seen[(name, shard.optimizer)] += fbgemms > EMPTY_STATE
        for optimizer in OPTIMIZERS:
            self.assertGreater(seen[("rows on the device", optimizer)], 10)
            if optimizer != "sgd":
                self.assertGreater(seen[("state on the device", optimizer)], 10)


if __name__ == "__main__":
    main()
