"""Details of errors: hostile bytes, and packages that bring another version of google.rpc."""

import random
import subprocess
import sys
import textwrap
import unittest

import grpc

from neuroshard import errors


class DetailsTest(unittest.TestCase):
    def test_bytes_of_any_kind_are_no_fault_of_their_own(self):
        status = errors._MESSAGES["google.rpc.Status"](code=3, message="why")
        status.details.add().Pack(errors._MESSAGES["google.rpc.BadRequest"](field_violations=[{"field": "tables[0]", "description": "is none"}]))
        status.details.add().Pack(errors._MESSAGES["google.rpc.ErrorInfo"](reason="BAD_INPUT", domain="neuroshard"))
        status.details.add(type_url="type.googleapis.com/unheard.Of", value=b"\x08\x01")
        good = status.SerializeToString()
        error = errors.from_status(grpc.StatusCode.INVALID_ARGUMENT, "why", (("other-bin", b"x"), ("grpc-status-details-bin", good)), "here:1")
        self.assertEqual((error.violations, error.reason), ([errors.FieldViolation("tables[0]", "is none")], "BAD_INPUT"))

        chance = random.Random(7)
        for _ in range(3000):
            bad = bytearray(good)
            for _ in range(chance.randint(1, 8)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            cut = bytes(bad[: chance.randint(0, len(bad))])
            error = errors.from_status(grpc.StatusCode.INVALID_ARGUMENT, "why", (("grpc-status-details-bin", cut),), "here:1")
            self.assertIs(type(error), errors.InvalidRequest)
            self.assertIn("why", str(error))

    def test_a_status_without_words_or_metadata(self):
        error = errors.from_status(grpc.StatusCode.INTERNAL, None, None, "here:1")
        self.assertEqual((str(error), error.violations, error.reason, error.retry_delay_s), ("planner at here:1: INTERNAL", [], None, None))

    def test_the_request_id_is_said_where_the_log_tells_more(self):
        trailers = (("x-request-id", "r-1"),)
        ours = errors.from_status(grpc.StatusCode.INTERNAL, "broken", trailers, "p:1")
        self.assertEqual((ours.request_id, str(ours)), ("r-1", "planner at p:1: broken (request id r-1)"))
        theirs = errors.from_status(grpc.StatusCode.INVALID_ARGUMENT, "wrong", trailers, "p:1")
        self.assertEqual((theirs.request_id, str(theirs)), ("r-1", "planner at p:1: wrong"))
        self.assertIsNone(errors.from_status(grpc.StatusCode.UNAVAILABLE, "nobody", None, "p:1").request_id)

    def test_another_version_of_google_rpc_in_the_process(self):
        program = textwrap.dedent("""
            import sys
            from google.protobuf import descriptor_pb2, descriptor_pool

            def another_package():
                file = descriptor_pb2.FileDescriptorProto(name="google/rpc/status.proto", package="google.rpc")
                file.message_type.add(name="Status").field.add(name="other", number=1, type=9, label=1)
                descriptor_pool.Default().AddSerializedFile(file.SerializeToString())

            if sys.argv[1] == "before":
                another_package()
            import grpc
            from neuroshard import errors
            if sys.argv[1] == "after":
                another_package()
            status = errors._MESSAGES["google.rpc.Status"]()
            status.details.add().Pack(errors._MESSAGES["google.rpc.ErrorInfo"](reason="NO_MODEL"))
            metadata = (("grpc-status-details-bin", status.SerializeToString()),)
            print(type(errors.from_status(grpc.StatusCode.FAILED_PRECONDITION, "", metadata, "")).__name__)
        """)
        for order in ("before", "after"):
            done = subprocess.run([sys.executable, "-B", "-c", program, order], capture_output=True, text=True, check=False)
            self.assertEqual((done.stdout, done.stderr), ("NoModel\n", ""), order)


if __name__ == "__main__":
    unittest.main()
