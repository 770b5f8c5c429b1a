"""Dynamic tables: bytes of each memory beside TorchEasyRec's formula, plans with static tables under one budget, and what DynamicEmb is told of them.

  dynamic_tables_test.py PLANNER     path of neuroshard-planner
"""

import math
import random
import sys
import unittest

from planner_process import PlannerProcess

import neuroshard
from neuroshard import dynamic_tables, v1

GIB = 1 << 30
TENTHS = [(i + 1) / 10 for i in range(10)]


def easyrec_bytes(rows, dim, element, multiplier, share, caching, in_hbm):
    """(alibaba/TorchEasyRec, tzrec/utils/dynamicemb_util.py, since the planner chooses between HYBRID and CACHING) of a shard: rows in sixteens, each a value
    of whole 16 bytes; 8 bytes of key, 8 of score and 1 of digest a row and 4 a bucket of 128 on the device."""
    rows = max(1, -(-rows // 16)) * 16
    value = -(-math.ceil(dim * (1 + multiplier) * element) // 16) * 16
    if in_hbm:
        return math.ceil(rows * (value * share + (8 + 8 + 1 + 4 / 128)))
    return math.ceil(rows * (value * (1.0 if caching else 1.0 - share)))


def blocks(rows, parts):
    size = -(-rows // parts)
    return [max(0, min(size, rows - size * part)) for part in range(parts)]


class DynamicTablesTest(unittest.TestCase):
    address = ""

    def setUp(self):
        self.client = neuroshard.PlannerClient(self.address)
        self.addCleanup(self.client.close)

    def test_bytes_are_torcheasyrecs_of_a_thousand_tables(self):
        draw = random.Random(20260512)
        for number in range(1000):
            ranks, dim = draw.choice([1, 2, 3, 8]), 4 * draw.randint(1, 256)
            rows = draw.choice([draw.randint(ranks * ranks, 5000), draw.randint(10**4, 4 * 10**9)])
            dtype, element = draw.choice([("fp32", 4), ("fp16", 2), ("bf16", 2)])
            optimizer, multiplier = draw.choice([("sgd", 0), ("adam", 2), ("adagrad", 1), ("rowwise_adagrad", 1 / dim), ("lamb", 1), ("partial_rowwise_adam", 1)])
            caching, share = draw.random() < 0.5, draw.choice(TENTHS)
            shards = blocks(rows, ranks)
            request = {
                "tables": [{"name": "t", "num_embeddings": rows, "embedding_dim": dim, "weight_dtype": dtype, "pooling_factor": 0, "optimizer": optimizer}],
                "topology": {"hosts": [{"count": ranks, "num_devices": 1, "memory_bytes": 1 << 49, "host_memory_bytes": 1 << 49}]},
                "memory": {"rule": draw.choice(["torchrec", "full"])},
                "global_batch_size": 8 * ranks,
                "cost_model": {"name": "analytic"},
            }
            kernel = dynamic_tables.CACHING if caching else dynamic_tables.HYBRID
            plan = {"tables": [{"name": "t", "sharding_type": "row_wise", "compute_kernel": kernel, "cache_load_factor": share, "shards": []}]}
            for rank, size in enumerate(shards):
                plan["tables"][0]["shards"].append({"row_offset": sum(shards[:rank]), "rows": size, "cols": dim, "rank": rank})
            plan |= {"world_size": ranks, "local_world_size": 1}
            answer = self.client.evaluate(request, plan)
            self.assertEqual(list(answer.violations), [], request)
            of_hosts = {use.host: use.total_bytes for use in answer.cost.host_memory}
            for rank, size in enumerate(shards):
                if size == 0:
                    continue
                expected = [easyrec_bytes(size, dim, element, multiplier, share, caching, in_hbm) for in_hbm in (True, False)]
                got = [answer.cost.ranks[rank].memory.weights_bytes, of_hosts.get(rank, 0)]
                self.assertEqual(got, expected, (number, request, plan))
                self.assertEqual(answer.cost.ranks[rank].memory.optimizer_bytes, 0)
            told = dynamic_tables.options(request, neuroshard.mapping.as_message(v1.Plan, plan))["t"]
            beside = math.ceil(-(-shards[0] // 16) * 16 * (8 + 8 + 1 + 4 / 128))
            self.assertEqual(told["caching"], caching)
            self.assertEqual(told["global_hbm_for_values"], told["local_hbm_for_values"] * ranks)
            first = easyrec_bytes(shards[0], dim, element, multiplier, share, caching, True)
            self.assertLessEqual(abs(told["local_hbm_for_values"] + beside - first), 1)

    def mixed(self, host_gib, device_gib=8.0, modes=dynamic_tables.KERNELS, **more):
        tables = [{"name": f"static{i}", "num_embeddings": 2_000_000 * (i + 1), "embedding_dim": 64, "pooling_factor": 2 + i} for i in range(4)]
        grows = [{"name": f"grows{i}", "num_embeddings": 8_000_000 * (i + 1), "embedding_dim": 128, "pooling_factor": 4, "optimizer": "adam"} for i in range(3)]
        return {
            "tables": tables + grows,
            "topology": {"hosts": [{"num_devices": 4, "memory_bytes": int(device_gib * GIB), "host_memory_bytes": int(host_gib * GIB)}]},
            "memory": {"rule": "torchrec"},
            "global_batch_size": 65536,
            "cost_model": {"name": "analytic"},
            "constraints": {"tables": [dynamic_tables.rule([table["name"] for table in grows], modes, **more)]},
        }

    def planned(self, request):
        answer = self.client.plan(request)
        return answer, {table.name: (table.compute_kernel, table.cache_load_factor) for table in answer.plan.tables}

    def test_static_and_dynamic_tables_share_one_budget(self):
        # 48 M rows of 1.5 KiB with Adam's state: 69 GiB of values.
        answer, found = self.planned(self.mixed(host_gib=100))
        self.assertEqual({table.sharding_type for table in answer.plan.tables if table.name.startswith("grows")}, {"row_wise"})
        self.assertTrue(all(found[f"grows{i}"][0] in dynamic_tables.KERNELS for i in range(3)), found)
        self.assertTrue(all(found[f"static{i}"][0] not in dynamic_tables.KERNELS for i in range(4)), found)
        self.assertIn("dynamic_caching", {kernel for kernel, _ in found.values()})
        self.assertIn("TorchEasyRec", answer.price_basis.text + "".join(answer.warnings))
        # No copy of what is on the device where host memory is short.
        short, of_short = self.planned(self.mixed(host_gib=46, device_gib=8))
        self.assertIn("dynamic_hybrid", {kernel for kernel, _ in of_short.values()})
        self.assertGreaterEqual(short.cost.embedding_cost_ms, answer.cost.embedding_cost_ms)
        for response in (answer, short):
            self.assertLessEqual(response.lower_bound.cost_ms, response.cost.embedding_cost_ms)
        # Room for all values on the devices: no host memory is taken, and none is faster.
        roomy, of_roomy = self.planned(self.mixed(host_gib=100, device_gib=40))
        self.assertEqual({of_roomy[f"grows{i}"] for i in range(3)}, {("dynamic_hybrid", 1.0)})
        self.assertEqual(sum(use.total_bytes for use in roomy.cost.host_memory), 0)
        with self.assertRaises(neuroshard.Infeasible) as caught:
            self.client.plan(self.mixed(host_gib=30))
        self.assertIn("at the least", caught.exception.message)

    def test_a_plan_is_found_wherever_some_share_fits(self):
        one = self.mixed(host_gib=0)
        one["tables"] = one["tables"][-1:]  # 24 M rows, 34.3 GiB of values and 0.38 of keys
        one["constraints"]["tables"][0]["tables"] = ["grows2"]
        host, rows = one["topology"]["hosts"][0], one["tables"][0]["num_embeddings"]
        for on_device in (0.2, 0.5, 0.9):
            host["memory_bytes"] = int(rows * (1536 * on_device + 17.5) / 4 + (64 << 20))
            host["host_memory_bytes"] = int(rows * 1536 * (1 - on_device) + (1 << 20))
            self.assertEqual(self.planned(one)[1]["grows2"], ("dynamic_hybrid", on_device))
            host["host_memory_bytes"] -= 2 << 20
            host["memory_bytes"] -= 128 << 20
            with self.assertRaises(neuroshard.Infeasible):
                self.client.plan(one)

    def test_rules_and_options_say_what_dynamicemb_takes(self):
        answer, found = self.planned(self.mixed(100, modes=[dynamic_tables.CACHING], cache_load_factor=0.3))
        self.assertEqual({found[f"grows{i}"] for i in range(3)}, {("dynamic_caching", 0.3)})
        told = dynamic_tables.options(self.mixed(100), answer.plan)
        self.assertEqual(sorted(told), ["grows0", "grows1", "grows2"])
        local = math.ceil(2_000_000 * 1536 * 0.3)
        self.assertEqual(told["grows0"], {"caching": True, "max_capacity": 2_000_000, "local_hbm_for_values": local, "global_hbm_for_values": 4 * local})
        with self.assertRaisesRegex(ValueError, "modes: must be of dynamic_hybrid and dynamic_caching, got .'fused'"):
            dynamic_tables.rule(["a"], ["fused"])
        with self.assertRaises(neuroshard.InvalidRequest) as caught:
            self.client.plan(self.mixed(100, cache_load_factor=1.5))
        self.assertEqual([fault.field for fault in caught.exception.violations], ["constraints.tables[0].cache_load_factor"])


if __name__ == "__main__":
    with PlannerProcess(sys.argv.pop(1)) as planner:
        DynamicTablesTest.address = planner.address
        unittest.main(verbosity=2)
