"""What only happens when two things happen at once."""

import asyncio
import types
import unittest

from neuroshard.worker.faults import Fault
from neuroshard.worker.service import WorkerService


def waiting_for_client(step: "asyncio.Future[str]", timeout_s: float) -> "asyncio.Future[str]":
    service = types.SimpleNamespace(_stream_idle_timeout_s=timeout_s)
    return asyncio.ensure_future(WorkerService._waiting_for_client(service, step))


class WaitingTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_client_that_sends_and_leaves_at_once_has_left(self) -> None:
        step = asyncio.get_running_loop().create_future()
        waiting = waiting_for_client(step, 60)
        await asyncio.sleep(0)
        step.set_result("a sample")
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting

    async def test_an_idle_client_is_told_so(self) -> None:
        step = asyncio.get_running_loop().create_future()
        with self.assertRaises(Fault) as caught:
            await waiting_for_client(step, 0.001)
        self.assertEqual((caught.exception.code, caught.exception.message), ("CANCELLED", "the client neither sent nor read anything for 1 ms"))
        self.assertTrue(step.cancelled())

    async def test_what_the_client_sent_is_returned(self) -> None:
        step = asyncio.get_running_loop().create_future()
        waiting = waiting_for_client(step, 60)
        step.set_result("a sample")
        self.assertEqual(await waiting, "a sample")


if __name__ == "__main__":
    unittest.main()
