"""Lines as the C++ servers write them (common/observe/logger_test.cc)."""

import datetime
import io
import json
import logging
import unittest

from neuroshard.worker.logs import FailureLines, Log, Others

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678900)


class LogsTest(unittest.TestCase):
    def line(self, form="text", level="info", **fields):
        out = io.StringIO()
        Log(level, form, out, lambda: AT).info("event_word", **fields)
        return out.getvalue()

    def test_text(self):
        self.assertEqual(self.line(a=1, b=0.5, c=True, d="x/y:1"), "2026-01-02T03:04:05.678Z info event_word a=1 b=0.5 c=true d=x/y:1\n")
        for value, shown in (("", '""'), ("a b", '"a b"'), ("a=b", '"a=b"'), ('"\\', '"\\"\\\\"'), ("a\nb", '"a\\nb"'), ("ü", '"\\xc3\\xbc"'), ("\x1b", '"\\x1b"')):
            self.assertEqual(self.line(a=value).rstrip("\n").partition("a=")[2], shown)
        self.assertTrue(self.line(a="x" * 2001).endswith("x" * 2000 + '..."\n'))

    def test_json(self):
        line = self.line("json", a=1, b=0.5, c=True, d="ü\n\u2028", e=float("nan"), f="x" * 2001)
        self.assertTrue(line.isascii() and line.count("\n") == 1)
        self.assertEqual(json.loads(line), {"time": "2026-01-02T03:04:05.678Z", "level": "info", "event": "event_word", "a": 1, "b": 0.5, "c": True,
                                            "d": "ü\n\u2028", "e": "nan", "f": "x" * 2000 + "..."})

    def test_levels(self):
        for level, count in (("debug", 5), ("info", 4), ("warn", 3), ("error", 2), ("off", 0)):
            out = io.StringIO()
            log = Log(level, "text", out)
            for write in (log.debug, log.info, log.warn, log.error):
                write("word")
            log.audit("changed_hands", device=0)
            self.assertEqual(len(out.getvalue().splitlines()), count, level)

    def test_others_are_lines_too(self):
        out = io.StringIO()
        Others(Log("info", "json", out)).emit(logging.LogRecord("asyncio", logging.ERROR, "", 1, "a %s", ("b",), None))
        line = json.loads(out.getvalue())
        self.assertEqual((line["event"], line["level"], line["name"], line["message"]), ("library", "error", "asyncio", "a b"))

    def test_a_flood_of_failures_is_a_hundred_lines_a_second(self):
        now = [0.0]
        lines = FailureLines(2, lambda: now[0])
        self.assertEqual([lines.admit() for _ in range(4)], [{}, {}, None, None])
        now[0] = 1.0
        self.assertEqual([lines.admit(), lines.admit(), lines.admit()], [{"not_logged": 2}, {}, None])


if __name__ == "__main__":
    unittest.main()
