"""Whose turn it is of replicas; the attempts of a call, on a clock of the test's own."""

import json
import os
import unittest
from unittest import mock

import grpc

from neuroshard.call import Attempts, Replicas, planner_address, planner_error
from neuroshard.errors import from_status


def unavailable(retry_delay_s=None):
    error = from_status(grpc.StatusCode.UNAVAILABLE, "draining", None, "here:1")
    error.retry_delay_s = retry_delay_s
    return error


READY, BROKEN, CONNECTING = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.CONNECTING


class ReplicasTest(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.replicas = Replicas("10.0.0.1:1,planner-2:2,[::1]:3", clock=lambda: self.now)

    def turn(self, *states):
        attempts = Attempts(10, 0, clock=lambda: 0.0)
        return self.replicas.turn(states, attempts), attempts

    def test_every_replica_of_a_list_has_a_channel_that_waits_for_readiness(self):
        for address, health in (("planner:1", None), ("10.0.0.1:1,planner-2:2,[::1]:3", {"serviceName": "neuroshard.v1.PlannerService"})):
            targets = Replicas(address, "planner.example").targets()
            self.assertEqual([target for target, _ in targets], address.split(","))
            for _, options in targets:
                self.assertEqual(json.loads(dict(options)["grpc.service_config"]).get("healthCheckConfig"), health)
                self.assertEqual(dict(options)["grpc.ssl_target_name_override"], "planner.example")
        self.assertNotIn("grpc.ssl_target_name_override", dict(Replicas("planner:1").targets()[0][1]))

    def test_those_that_are_ready_take_turns_after_one_call_to_those_that_are_not(self):
        self.assertIsNone(self.turn(READY, BROKEN, CONNECTING)[0])
        broken, attempts = self.turn(READY, BROKEN, READY)
        self.assertEqual(broken, 1)
        with self.assertLogs("neuroshard", "WARNING") as log:
            self.assertEqual(attempts.wait_s(unavailable()), 0)  # though no retry is left
        self.assertEqual(log.output, ["WARNING:neuroshard:planner at planner-2:2: draining; calls go to the others of 10.0.0.1:1,planner-2:2,[::1]:3"])
        with self.assertRaises(type(unavailable())):
            attempts.wait_s(unavailable())
        turns = [self.turn(READY, BROKEN, READY)[0] for _ in range(4)]
        self.assertIn(turns, ([0, 2, 0, 2], [2, 0, 2, 0]))
        self.assertEqual({self.turn(READY, READY, READY)[0] for _ in range(3)}, {0, 1, 2})

    def test_one_that_does_not_connect_is_waited_for_for_a_second(self):
        self.assertIsNone(self.turn(READY, CONNECTING, None)[0])
        self.now = 1.0
        with self.assertLogs("neuroshard", "WARNING") as log:
            self.assertEqual(self.turn(READY, CONNECTING, READY)[0] in (0, 2), True)
        self.assertIn("planner at planner-2:2: no connection after 1 s", log.output[0])
        with self.assertNoLogs("neuroshard", "WARNING"):  # they may connect again
            self.assertEqual(self.turn(CONNECTING, BROKEN, READY)[0], 2)
            self.assertIsNone(self.turn(CONNECTING, BROKEN, BROKEN)[0])


class AddressTest(unittest.TestCase):
    def test_hosts_have_ports(self):
        for address in ("planner:1", "planner.example:65535", "10.0.0.1:1", "[::1]:50051", "10.0.0.1:1,planner:2", "[::1]:1,10.0.0.1:2", "unix:/run/a.sock"):
            self.assertEqual(planner_address(address), address)
        for address in ("localhost", "localhost:", ":50051", "planner:0", "planner:65536", "planner:http", "::1:50051", "dns:///planner:1", "unix:a.sock", "", " ", " planner:1", "planner:1\n"):
            with self.assertRaises(ValueError) as caught:
                planner_address(address)
            self.assertEqual(str(caught.exception), f'address: must be HOST:PORT, got "{address}"')
        for address in ("a:1,b", "10.0.0.1:1,", ",a:1"):
            with self.assertRaisesRegex(ValueError, "must be HOST:PORT, got "):
                planner_address(address)

    def test_the_variable_is_named(self):
        with mock.patch.dict(os.environ, {"NEUROSHARD_PLANNER": "localhost"}), self.assertRaises(ValueError) as caught:
            planner_address(None)
        self.assertEqual(str(caught.exception), 'NEUROSHARD_PLANNER: must be HOST:PORT, got "localhost"')


class PlannerErrorTest(unittest.TestCase):
    class Fault:
        def __init__(self, code, details):
            self.code, self.details, self.trailing_metadata = lambda: code, lambda: details, lambda: ()

    def test_where_nobody_listens_by_default_the_other_wheel_is_named(self):
        for address, words in (("127.0.0.1:50051", "nothing listens there, and this package has no planner of its own: the wheel for x86-64 Linux brings one"),
                               ("planner:1", "nothing listens there (Connection refused)")):
            fault = self.Fault(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; Connection refused")
            self.assertEqual(planner_error(fault, address).message, words)

    def test_what_a_server_that_stops_cancels_is_unavailable(self):
        for code, details, expected in (
            (grpc.StatusCode.CANCELLED, "", grpc.StatusCode.UNAVAILABLE),
            (grpc.StatusCode.CANCELLED, "CANCELLED", grpc.StatusCode.UNAVAILABLE),
            (grpc.StatusCode.CANCELLED, "Locally cancelled by application!", grpc.StatusCode.CANCELLED),
            (grpc.StatusCode.INTERNAL, "", grpc.StatusCode.INTERNAL),
        ):
            self.assertIs(planner_error(self.Fault(code, details), "here:1").code, expected)


class AttemptsTest(unittest.TestCase):
    def setUp(self):
        self.now_s = 1000.0
        self.ranges = []

    def attempts(self, timeout_s, retries):
        def uniform(low, high):
            self.ranges.append((low, high))
            return high

        return Attempts(timeout_s, retries, clock=lambda: self.now_s, uniform=uniform)

    def test_waits_grow_up_to_a_second_with_jitter(self):
        attempts = self.attempts(600, 6)
        self.assertEqual([attempts.wait_s(unavailable()) for _ in range(6)], [0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        self.assertEqual(self.ranges, [(high / 2, high) for high in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)])
        with self.assertRaises(type(unavailable())):
            attempts.wait_s(unavailable())

    def test_all_attempts_together_keep_the_deadline(self):
        attempts = self.attempts(1, 100)
        self.assertEqual(attempts.remaining_s(), 1)
        self.now_s += 0.75
        self.assertEqual(attempts.remaining_s(), 0.25)
        self.assertEqual(attempts.wait_s(unavailable()), 0.1)
        self.now_s += 0.1
        with self.assertRaises(type(unavailable())):  # 0.2 s do not fit into what is left
            attempts.wait_s(unavailable())
        self.now_s += 100
        self.assertEqual(attempts.remaining_s(), 0)

    def test_what_the_server_asks_for_is_added(self):
        attempts = self.attempts(600, 3)
        self.assertEqual([attempts.wait_s(unavailable(delay)) for delay in (30, 0.5)], [30.1, 0.7])
        with self.assertRaises(type(unavailable())):
            attempts.wait_s(unavailable(1e9))  # longer than the deadline

    def test_an_overloaded_server_is_asked_again_when_it_says(self):
        error = from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", None, "here:1")
        error.retry_delay_s = 0.25
        attempts = self.attempts(600, 3)
        self.assertEqual([attempts.wait_s(error) for _ in range(3)], [0.35, 0.45, 0.65])
        with self.assertRaises(type(error)):
            attempts.wait_s(error)

    def test_other_errors_are_not_retried(self):
        for code in grpc.StatusCode:
            if code not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE):
                error = from_status(code, "no", None, "here:1")
                with self.subTest(code=code), self.assertRaises(type(error)) as caught:
                    self.attempts(600, 3).wait_s(error)
                self.assertIs(caught.exception, error)


if __name__ == "__main__":
    unittest.main()
