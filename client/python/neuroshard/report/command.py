"""`neuroshard-report`: the command."""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Optional

from neuroshard.command_line import parse_arguments
from neuroshard.report.answer import Answer, answer_of
from neuroshard.report.input_files import InputError, read_plan, read_validation
from neuroshard.report.markup import printable
from neuroshard.report.plan_page import plan_page

EXIT_FAILURE = 1  # 2, of argparse: a usage error


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="neuroshard-report",
        description="Draws a plan, or a cost model, as one HTML file that needs nothing else.",
        epilog="Exit codes: 0 success, 1 failure, 2 usage error.",
    )
    parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN.json",
                        help="output of `neuroshard plan` or `neuroshard evaluate` with --format json, or a bare plan")
    parser.add_argument("--model", type=Path, metavar="DIR", help="instead of a plan: directory of a cost model, as neuroshard-pretrain made it")
    parser.add_argument("--compare", type=Path, metavar="OTHER.json", help="the plan before, to compare with")
    parser.add_argument("--measured", type=Path, metavar="VALIDATION.json", help="output of `neuroshard validate --format json` for the plan")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the HTML file, written all or nothing")
    parser.add_argument("--png", type=Path, metavar="DIR", help="also the charts as PNG files in this directory (needs the extra [report])")
    options = parse_arguments(parser, arguments)
    if (options.plan is None) == (options.model is None):
        parser.error("give either PLAN.json or --model DIR")
    if options.model is not None and (options.compare or options.measured):
        parser.error("--compare and --measured are about a plan")
    if options.out is None and options.png is None:
        parser.error("give --out FILE, --png DIR or both")
    try:
        files = _rendered(options)
    except InputError as error:
        sys.stderr.write(error.report())
        return EXIT_FAILURE
    for path, content in files.items():
        try:
            write_file(path, content)
        except OSError as error:
            sys.stderr.write(f"error: cannot write {printable(path)}: {error.strerror}\n")
            return EXIT_FAILURE
        sys.stderr.write(f"written to {printable(path)}\n")
    return 0


def _may_be_of_one_model(answer: Answer, other: Answer) -> bool:
    """Whether the plans have a table in common; an answer may be without a plan."""
    names = [{(table.module, table.name) for table in each.plan.tables} for each in (answer, other) if each.plan is not None]
    return len(names) < 2 or not all(names) or bool(names[0] & names[1])


def _rendered(options: argparse.Namespace) -> Dict[Path, bytes]:
    """Everything that is to be written, before anything is."""
    if options.model is not None:
        from neuroshard.report.model_directory import read_model
        from neuroshard.report.model_page import model_page

        model = read_model(options.model)
        text = model_page(model)
    else:
        faults, read = [], {}
        for name, reader in (("plan", read_plan), ("compare", read_plan), ("measured", read_validation)):
            path = getattr(options, name)
            try:
                read[name] = None if path is None else reader(path)
            except InputError as error:
                faults.append(error)
        if faults:
            raise InputErrors(faults)
        answer = answer_of(read["plan"])
        before = (options.compare.name, answer_of(read["compare"])) if read["compare"] is not None else None
        if before is not None and not _may_be_of_one_model(answer, before[1]):
            raise InputError(options.compare, f"has no table of {printable(options.plan)}: a plan of another model")
        text = plan_page(answer, options.plan.name, before, read["measured"])
    files = {}
    if options.out is not None:
        files[options.out] = text.encode()
    if options.png is not None:
        from neuroshard.report import figures

        drawn = figures.of_model(model) if options.model is not None else figures.of_plan(answer, before, read["measured"])
        files.update({options.png / name: content for name, content in drawn.items()})
    return files


class InputErrors(InputError):
    """Faults of several files."""

    def __init__(self, errors: List[InputError]):
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors

    def report(self) -> str:
        return "".join(error.report() for error in self.errors)


def write_file(path: Path, content: bytes) -> None:
    """Beside its place, then renamed over it. Raises OSError, and then leaves nothing new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
