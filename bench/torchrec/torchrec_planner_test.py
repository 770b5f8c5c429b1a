#!/usr/bin/env python3
"""Holds the re-implementation of TorchRec's planner to the values of TorchRec's own tests (planner/tests of 1.4), and of
its functions where they were run for two hosts."""

import unittest

import torchrec_costs as costs
import torchrec_planner as planner

GIB = 1 << 30


def table(name, rows, cols, **fields):
    return costs.Table(name, rows, cols, **fields)


def perf_and_hbm(of, kind, batch_size, topology):
    option = planner.enumerate_options([of], topology, batch_size, [kind])[0]
    return option.shapes, option.perfs[0], option.hbms


def fixed_option(name, kind, topology, perf=100.0, hbm=1000, of=None, dependency=None):
    shapes = costs.shard_shapes(of or table(name, 64, 64), kind, topology)
    count = len(shapes)
    return planner.Option(of or table(name, 64, 64), kind, shapes, [(perf, 0.0, 0.0, 0.0)] * count, [hbm] * count, dependency)


class Costs(unittest.TestCase):
    def check(self, of, kind, batch_size, topology, expected):
        shapes, perf, _ = perf_and_hbm(of, kind, batch_size, topology)
        for value, golden in zip(perf, expected):
            self.assertAlmostEqual(value, golden, delta=1e-12 * max(1.0, abs(golden)), msg=kind)
        return shapes

    def test_one_host(self):
        topology = costs.Topology(2, 2, GIB)
        of = table("t", 100, 10)
        column = (0.000327460077428233, 6.357828776041667e-05, 0.000654920154856466, 6.357828776041667e-05)
        row = (6.804365245261984e-05, 6.357828776041667e-05, 0.0001360873049052397, 0.00016798276699240525)
        for kind in ("table_wise", "column_wise", "table_column_wise"):
            self.check(of, kind, 512, topology, column)
        for kind in ("row_wise", "table_row_wise", "grid_shard"):
            self.check(of, kind, 512, topology, row)
        self.check(of, "data_parallel", 512, topology, (9.356002212235228e-05, 0, 0.00018712004424470456, 0.000225593945387348))

    def test_two_hosts(self):
        topology = costs.Topology(16, 8, GIB)
        of = table("t", 1_000_000, 128, pooling_factor=20, min_partition=64)
        goldens = {
            "table_wise": (1, 1_000_000, 128, 556040192, (0.7424923355629878, 2.5, 1.4849846711259755, 2.5)),
            "row_wise": (16, 62500, 128, 66209792, (0.07906672414994426, 2.5, 0.1581334482998885, 2.585528149386845)),
            "table_row_wise": (8, 125000, 128, 98865152, (0.12329509824414715, 0.3645833333333333, 0.2465901964882943, 0.45011148272017837)),
            "grid_shard": (16, 125000, 64, 50087936, (0.062327985646599776, 0.18229166666666666, 0.12465597129319955, 0.22505574136008918)),
            "data_parallel": (16, 1_000_000, 128, 514752512, (0.09281154194537347, 0, 0.18562308389074694, 16.95509605450242)),
            "column_wise": (2, 1_000_000, 64, 283262976, (0.4331931089743589, 1.25, 0.8663862179487178, 1.25)),
        }
        for kind, (count, rows, cols, hbm, perf) in goldens.items():
            shapes, _, hbms = perf_and_hbm(of, kind, 4096, topology)
            self.assertEqual((len(shapes), shapes[0][1], shapes[0][3], hbms[0]), (count, rows, cols, hbm), kind)
            self.check(of, kind, 4096, topology, perf)

    def test_memory(self):
        topology = costs.Topology(8, 4, GIB)
        poolings = ([1], [1, 3, 5], [8, 2], [2, 1, 3, 7])
        first = {
            "row_wise": (166928, 1003712, 1007120, 2653504),
            "table_row_wise": (169936, 1024384, 1031200, 2685248),
            "column_wise": (188224, 647776, 501120, 1544512),
        }
        last_of_row_wise = (166608, 1003392, 1007120, 2651584)
        for i, pooling in enumerate(poolings):
            of = table("t", 100 + 10 * i, 20 + 20 * i, pooling_factor=sum(pooling), features=len(pooling),
                       min_partition=(20, 20, 20, 40)[i])
            for kind, goldens in first.items():
                self.assertEqual(perf_and_hbm(of, kind, 256, topology)[2][0], goldens[i], kind)
            self.assertEqual(perf_and_hbm(of, "row_wise", 256, topology)[2][-1], last_of_row_wise[i])

    def test_shapes(self):
        topology = costs.Topology(8, 4, GIB)

        def rows(i, kind):
            of = table("t", 100 + 10 * i, 20 + 20 * i)
            return [shape[1] for shape in costs.shard_shapes(of, kind, topology)]

        self.assertEqual([rows(i, "row_wise") for i in range(4)],
                         [[13] * 7 + [9], [14] * 7 + [12], [15] * 8, [17] * 7 + [11]])
        self.assertEqual([rows(i, "table_row_wise") for i in range(4)],
                         [[25] * 4, [28] * 3 + [26], [30] * 4, [33] * 3 + [31]])
        widths = [costs.column_block(table("t", 100, 20 + 20 * i, min_partition=(20, 20, 20, 40)[i])) for i in range(4)]
        self.assertEqual(widths, [20, 20, 20, 40])
        self.assertEqual([costs.column_block(table("t", 9, cols)) for cols in (64, 128, 192, 256, 130)],
                         [64, 128, 192, 128, 130])
        self.assertEqual([size for _, size in costs.ceil_blocks(5, 4)], [2, 2, 1, 0])


class Partitioning(unittest.TestCase):
    def ranks(self, options, topology, hbm=10**9):
        return planner.partition(options, topology, hbm)[1]

    def test_table_wise(self):
        two = costs.Topology(2, 2, GIB)
        options = [fixed_option(f"t{i}", "table_wise", two) for i in range(4)]
        self.assertEqual(self.ranks(options, two), [[0], [1], [0], [1]])
        options[0] = fixed_option("t0", "table_wise", two, perf=300.0)
        self.assertEqual(self.ranks(options, two), [[0], [1], [1], [1]])

    def test_row_wise_and_hosts(self):
        hosts = costs.Topology(16, 8, GIB)
        four = costs.Topology(4, 4, GIB)
        options = [fixed_option(f"t{i}", "table_row_wise", hosts) for i in range(4)]
        low, high = list(range(8)), list(range(8, 16))
        self.assertEqual(self.ranks(options, hosts), [low, high, low, high])
        options = [fixed_option(f"t{i}", "row_wise", four) for i in range(4)]
        self.assertEqual(self.ranks(options, four), [[0, 1, 2, 3]] * 4)

    def test_column_blocks_on_hosts(self):
        hosts = costs.Topology(16, 8, GIB)
        options = [
            fixed_option(f"t{i}", "table_column_wise", hosts, of=table(f"t{i}", 64, 80 * (i + 1), min_partition=m))
            for i, m in enumerate((8, 40, 20, 32))
        ]
        self.assertEqual(
            self.ranks(options, hosts),
            [[*range(8, 16), 8, 9], [4, 5, 6, 7], [*range(8), 0, 1, 2, 3], [*range(10, 16), 8, 9, 10, 11]],
        )

    def test_rows_and_columns_on_hosts(self):
        hosts = costs.Topology(16, 8, GIB)

        def options(dependency):
            kinds = ("table_row_wise", "table_column_wise", "table_column_wise", "table_row_wise")
            return [
                fixed_option(f"t{i}", kind, hosts, of=table(f"t{i}", 128, 80 * (i + 1), min_partition=m),
                             dependency=dependency if i < 3 else None)
                for i, (kind, m) in enumerate(zip(kinds, (8, 32, 40, 32)))
            ]

        low, high = list(range(8)), list(range(8, 16))
        self.assertEqual(self.ranks(options(None), hosts), [low, [8, 9, 10, 11, 12], [0, 1, 2, 3, 4, 5], high])
        self.assertEqual(self.ranks(options("host_0"), hosts), [low, [0, 1, 2, 3, 4], [5, 6, 7, 0, 1, 2], high])

    def test_no_room(self):
        topology = costs.Topology(2, 1, GIB)
        options = [fixed_option(f"t{i}", "row_wise", topology, hbm=GIB // 2) for i in range(3)]
        with self.assertRaises(planner.DoesNotFit):
            self.ranks(options, topology, GIB)


class Planning(unittest.TestCase):
    """Two GPUs of 2 MiB, of which 15 % and 20 copies of the ids are reserved; fused kernels."""

    def plan(self, tables, types):
        hbm = int(0.85 * 2 * 2**20) - 20 * 8 * 512 * len(tables)
        topology = costs.Topology(2, 2, hbm)
        return planner.plan(tables, topology, 512, hbm, types)

    def test_table_wise_solution(self):
        result = self.plan([table(f"t{i}", 100, 64) for i in range(4)], ("row_wise", "table_wise"))
        self.assertEqual([o.sharding_type for o in result.options], ["table_wise"] * 4)
        self.assertEqual(sorted(r for ranks in result.ranks for r in ranks), [0, 0, 1, 1])

    def test_hidden_row_wise_solution(self):
        result = self.plan([table(f"t{i}", 100, 64) for i in range(3)], ("row_wise", "table_wise"))
        placed = sorted((o.sharding_type, r) for o, r in zip(result.options, result.ranks))
        self.assertEqual(placed, [("row_wise", [0, 1]), ("table_wise", [0]), ("table_wise", [1])])

    def test_fails_until_another_type_is_allowed(self):
        self.assertIsNone(self.plan([table("t", 4096, 128)], ("table_wise",)))
        self.assertEqual(self.plan([table("t", 4096, 128)], ("table_wise", "row_wise")).ranks, [[0, 1]])

    def test_counts_of_proposals(self):
        topology = costs.Topology(2, 2, GIB)
        three = planner.enumerate_options([table(f"t{i}", 100, 64) for i in range(3)], topology, 512)
        five = planner.enumerate_options([table(f"t{i}", 100, 64) for i in range(6)], topology, 512)
        self.assertEqual(len(list(planner.grid_proposals(three))), 6**3)
        self.assertEqual(len(list(planner.grid_proposals(five))), 0)  # 6^6 are too many
        self.assertEqual(len(list(planner.greedy_proposals(five, use_depth=True))), 1 + 6 * 5)
        self.assertEqual(len(list(planner.uniform_proposals(five))), 6)


if __name__ == "__main__":
    unittest.main()
