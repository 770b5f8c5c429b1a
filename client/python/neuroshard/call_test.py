"""The channel to replicas; the attempts of a call, on a clock of the test's own."""

import json
import os
import unittest
from unittest import mock

import grpc

from neuroshard.call import Attempts, planner_address, planner_error, replica_channel
from neuroshard.errors import from_status


def unavailable(retry_delay_s=None):
    error = from_status(grpc.StatusCode.UNAVAILABLE, "draining", None, "here:1")
    error.retry_delay_s = retry_delay_s
    return error


class ReplicaChannelTest(unittest.TestCase):
    def test_a_list_is_a_target_of_grpc_and_waits_for_readiness(self):
        for address, target, health, authority in (
            ("planner:1", "planner:1", None, None),
            ("10.0.0.1:1,10.0.0.2:2", "ipv4:10.0.0.1:1,10.0.0.2:2", {"serviceName": "neuroshard.v1.PlannerService"}, "10.0.0.1:1"),
            ("[::1]:1,[::2]:2", "ipv6:[::1]:1,[::2]:2", {"serviceName": "neuroshard.v1.PlannerService"}, "[::1]:1"),
        ):
            found, options = replica_channel(address)
            self.assertEqual(found, target)
            self.assertEqual(json.loads(dict(options)["grpc.service_config"]).get("healthCheckConfig"), health)
            self.assertEqual(dict(options).get("grpc.default_authority"), authority)


class AddressTest(unittest.TestCase):
    def test_hosts_have_ports_and_lists_are_of_one_family(self):
        for address in ("planner:1", "planner.example:65535", "10.0.0.1:1", "[::1]:50051", "10.0.0.1:1,10.0.0.2:2", "[::1]:1,[::2]:2"):
            self.assertEqual(planner_address(address), address)
        for address in ("localhost", "localhost:", ":50051", "planner:0", "planner:65536", "planner:http", "::1:50051", "dns:///planner:1", "", " "):
            with self.assertRaises(ValueError) as caught:
                planner_address(address)
            self.assertEqual(str(caught.exception), f'address: must be HOST:PORT, got "{address}"')
        for address in ("a:1,b:2", "10.0.0.1:1,[::1]:2", "[::1]:1,10.0.0.1:2", "10.0.0.1:1,300.0.0.1:2"):
            with self.assertRaisesRegex(ValueError, "a list must be of IP addresses of one family, each with its port"):
                planner_address(address)

    def test_the_variable_is_named(self):
        with mock.patch.dict(os.environ, {"NEUROSHARD_PLANNER": "localhost"}), self.assertRaises(ValueError) as caught:
            planner_address(None)
        self.assertEqual(str(caught.exception), 'NEUROSHARD_PLANNER: must be HOST:PORT, got "localhost"')


class PlannerErrorTest(unittest.TestCase):
    class Fault:
        def __init__(self, code, details):
            self.code, self.details, self.trailing_metadata = lambda: code, lambda: details, lambda: ()

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
