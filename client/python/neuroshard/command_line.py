"""What the commands of this package have in common, as common/cli/command_line_parse.h has it for the others."""

from __future__ import annotations

import argparse
import sys
from typing import Collection, Optional, Sequence


def parse_arguments(parser: argparse.ArgumentParser, arguments: Optional[Sequence[str]] = None, may_be_empty: Collection[str] = ()) -> argparse.Namespace:
    """None: those of this process. An empty value, as a script's unset variable leaves it, is no absent option, but of the options `may_be_empty`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for before, word in zip(["", *words], words):
        option = word[:-1] if word.startswith("--") and word.endswith("=") else before
        if word in ("", f"{option}=") and option not in may_be_empty:
            parser.error(f"argument {option}: must not be empty" if option.startswith("--") else "an argument is empty")
    return parser.parse_args(words)
