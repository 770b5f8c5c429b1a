"""Rules of callers, without a server; tls_test.py has the server."""

import types
import unittest

from neuroshard.worker.faults import Fault
from neuroshard.worker.security import Caller, Tls, matches, reachable_from_elsewhere, trace_id

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def caller(metadata=(), auth=None, peer="ipv4:10.1.2.3:55"):
    return Caller(types.SimpleNamespace(auth_context=lambda: auth or {}, peer=lambda: peer, invocation_metadata=lambda: metadata))


class SecurityTest(unittest.TestCase):
    def test_patterns_are_those_of_the_other_worker(self) -> None:
        self.assertTrue(matches("spiffe://a/*", "spiffe://a/trainer/1"))
        for pattern, text in (("spiffe://a/*", "spiffe://b/trainer"), ("", "a"), ("a.b", "axb"), ("[ab]", "a"), ("a*b", "a\nc")):
            self.assertFalse(matches(pattern, text), pattern)

    def test_roles_deny_by_default(self) -> None:
        tls = Tls("", "", "", 60, {"read": ["dash*"], "profile": ["op"], "admin": ["root"]})
        for names, rpc, allowed in (
            (["dash-1"], "GetWorkerInfo", True), (["dash-1"], "ProfileCompute", False), (["x", "op"], "ProfileCompute", True), (["op"], "GetWorkerInfo", True),
            (["root"], "CloseCommGroup", True), ([], "GetWorkerInfo", False), (["stranger"], "GetWorkerInfo", False), (["dash"], "SomethingNew", False),
        ):
            with self.subTest(names=names, rpc=rpc):
                try:
                    tls.check_role(rpc, names)
                    self.assertTrue(allowed)
                except Fault as fault:
                    self.assertEqual((fault.code, allowed), ("PERMISSION_DENIED", False))

    def test_a_caller_is_its_certificate_else_its_address(self) -> None:
        names = {"x509_subject_alternative_name": [b"spiffe://a/b", b"c"], "x509_common_name": [b"d"]}
        self.assertEqual(caller(auth=names).name, "spiffe://a/b")
        self.assertEqual(caller(auth={"x509_common_name": [b"d"]}).name, "d")
        self.assertEqual((caller().name, caller(peer="ipv6:%5B::1%5D:55").name, caller(peer="unix:").name), ("10.1.2.3", "::1", "unix:"))

    def test_ids_are_taken_over_or_made(self) -> None:
        given = caller((("x-request-id", "r-1"), ("traceparent", TRACE)))
        self.assertEqual((given.request_id, given.trace_id), ("r-1", "0af7651916cd43dd8448eb211c80319c"))
        for metadata in ((), (("x-request-id", "a b"),), (("x-request-id", "a"), ("x-request-id", "b")), (("x-request-id", "x" * 129),), (("x-request-id", b"a"),)):
            self.assertRegex(caller(metadata).request_id, "^[0-9a-f]{16}$")
        self.assertEqual(given.fields(), {"request_id": "r-1", "trace_id": given.trace_id, "caller": "10.1.2.3", "peer": "ipv4:10.1.2.3:55"})

    def test_a_byte_that_is_wrong_makes_a_trace_none(self) -> None:
        self.assertEqual(trace_id("01" + TRACE[2:] + "-more"), "0af7651916cd43dd8448eb211c80319c")
        for text in (None, "", TRACE + "-", TRACE[:-1], "ff" + TRACE[2:], TRACE.upper(), TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
                     TRACE.replace("b7ad6b7169203331", "0" * 16), "01" + TRACE[2:] + "more"):
            self.assertIsNone(trace_id(text), text)

    def test_what_other_hosts_reach(self) -> None:
        self.assertEqual([reachable_from_elsewhere(host) for host in ("127.0.0.1", "[::1]", "localhost", "0.0.0.0", "", "[::]", "10.0.0.1")],
                         [False, False, False, True, True, True, True])


if __name__ == "__main__":
    unittest.main()
