"""Empty values on the command lines of the package."""

import argparse
import contextlib
import io
import subprocess
import sys
import unittest

from neuroshard.command_line import parse_arguments

COMMANDS = ("worker", "report", "checkpoints.convert_checkpoints", "dataset.dataset_statistics")  # parquet asks for pyarrow first


class ParseArgumentsTest(unittest.TestCase):
    def parse(self, *words):
        parser = argparse.ArgumentParser()
        parser.add_argument("file", nargs="?")
        parser.add_argument("--key")
        parser.add_argument("--metrics")
        return parse_arguments(parser, words, may_be_empty=("--metrics",))

    def test_an_empty_value_is_no_absent_option(self):
        for words, said in ((("--key", ""), "argument --key: must not be empty"), (("f", "--key="), "argument --key: must not be empty"),
                            (("",), "an argument is empty"), (("--key", "k", ""), "an argument is empty")):  # fmt: skip
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit):
                self.parse(*words)
            self.assertIn(said, err.getvalue())

    def test_what_is_not_empty_or_may_be_is_parsed(self):
        self.assertEqual(vars(self.parse("f", "--key=k", "--metrics", "")), {"file": "f", "key": "k", "metrics": ""})
        self.assertEqual(self.parse("--metrics=", "f").metrics, "")

    def test_every_command_of_the_package(self):
        for name in COMMANDS:
            command = subprocess.run([sys.executable, "-m", f"neuroshard.{name}", "--out", ""], capture_output=True, text=True, check=False)
            self.assertEqual((command.returncode, "argument --out: must not be empty" in command.stderr), (2, True), command.stderr)


if __name__ == "__main__":
    unittest.main()
