"""What a rank sends and receives in an exchange: the cases of worker/measure/exchange_counts_test.cc."""

import unittest
from typing import Any

from neuroshard import v1
from neuroshard.worker.collectives import exchange_of


def sample(collective: str, dim_sums: list, **more: Any) -> v1.CommSample:
    return v1.CommSample(**{"collective": collective, "dim_sums": dim_sums, "batch_size": 8, "element_bytes": 4, "direction": "forward", **more})


class ExchangeTest(unittest.TestCase):
    def test_forward_sends_own_columns_of_every_ranks_samples(self) -> None:
        exchange = exchange_of(sample("all_to_all", [3, 5]), 0)
        self.assertEqual((exchange.send, exchange.receive), ([12, 12], [12, 20]))
        self.assertEqual(exchange.bytes, (24 + 32) * 4)
        exchange = exchange_of(sample("all_to_all", [3, 5], element_bytes=2), 1)
        self.assertEqual((exchange.send, exchange.receive, exchange.bytes), ([20, 20], [12, 20], (40 + 32) * 2))

    def test_what_is_cast_is_there_besides(self) -> None:
        exchange = exchange_of(sample("all_to_all", [3, 5], element_bytes=2, wire_dtype="bf16"), 1)
        self.assertEqual(exchange.bytes, (40 + 32) * (2 + 4))

    def test_backward_is_the_reverse(self) -> None:
        for rank in (0, 1):
            forward, backward = (exchange_of(sample("all_to_all", [3, 5], direction=direction), rank) for direction in ("forward", "backward"))
            self.assertEqual((backward.send, backward.receive), (forward.receive, forward.send))

    def test_what_all_ranks_do_alike(self) -> None:
        for collective, send, receive, size in (("reduce_scatter", 32, 8, 72), ("all_gather", 8, 32, 40), ("all_reduce", 32, 32, 96)):
            exchange = exchange_of(sample(collective, [4, 4, 4, 4]), 2)
            self.assertEqual((sum(exchange.send), sum(exchange.receive), exchange.bytes), (send, receive, size * 4), collective)


if __name__ == "__main__":
    unittest.main()
