#!/usr/bin/env python3
"""Whether what our documents say about commands and files is so.

    check_docs.py BIN            BIN: the folder with our programs
    check_docs.py BIN --write    puts today's outputs into the READMEs

Three things are checked, in every Markdown file of the project but models' reports:
- A fenced block below a line `<!-- output of: COMMAND -->` is what COMMAND prints on stdout and stderr. It runs in the root of the
  project with BIN in PATH and NEUROSHARD_PLANNER naming a planner of configs/models. Durations (`search 29.7 ms`) and versions
  count as equal.
- Every option behind the name of one of our programs, in a fenced block or between backticks, is one that this command has.
- Every relative link leads to a file that is there, and to a heading of it where it names one. Of ARCHITECTURE.md also every path between
  backticks that begins with a folder of the project.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!-- output of: (?P<command>.+?) -->\n```\w*\n(?P<text>.*?)```\n", re.DOTALL)
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"(?<!`)`([^`]+)`(?!`)", re.DOTALL)
PROGRAMS = ("neuroshard", "neuroshard-planner", "neuroshard-worker", "neuroshard-pretrain")
# How a process of ours starts another; not for people.
INTERNAL = {("neuroshard-worker", "--device-process")}
# What differs from run to run.
VOLATILE = ((re.compile(r"request id [0-9a-f-]+"), "request id #"), (re.compile(r"search [0-9.]+ ms"), "search # ms"), (re.compile(r"[0-9.]+ \([0-9a-f]{12}(-dirty)?\)"), "#"))


def documents():
    # A model's own report is part of its digest, and names files that are not shipped with it.
    found = subprocess.run(["git", "ls-files", "*.md", ":!configs/models"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in found]


def settled(text):
    text = re.sub(r"\n {2,}", " ", text)  # a longer number wraps a sentence elsewhere
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text


class Planner:
    """A planner of the shipped models on a port that the system chose."""

    def __init__(self, binaries):
        with tempfile.TemporaryFile() as log:
            self.process = subprocess.Popen(
                [binaries / "neuroshard-planner", "--models", ROOT / "configs/models", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
                stdout=subprocess.PIPE, stderr=log, text=True)
            line = self.process.stdout.readline()
            if not line.startswith("listening on "):
                self.process.wait()
                log.seek(0)
                sys.exit(f"the planner did not start: {log.read().decode()}")
        self.address = line.split()[-1]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def check_outputs(path, environment, write):
    """Runs the marked commands of a file; returns the faults, or writes the file anew."""
    faults = []

    def compare(match):
        run = subprocess.run(["bash", "-c", match["command"]], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        if settled(run.stdout) == settled(match["text"]):
            return match[0]
        faults.append(f"{path.relative_to(ROOT)}: `{match['command']}` prints\n{run.stdout}and not\n{match['text']}")
        return match[0][: match.start("text") - match.start()] + run.stdout + "```\n"

    text = path.read_text()
    new = MARKED.sub(compare, text)
    if write and new != text:
        path.write_text(new)
        return []
    return faults


class Help:
    """The options of our commands, each asked for once."""

    def __init__(self, binaries):
        self.binaries = binaries
        self.known = {}

    def options(self, command):
        """Those of a program, or of a command of it; None: there is no such command."""
        if command not in self.known:
            run = subprocess.run([self.binaries / command[0], *command[1:], "--help"], capture_output=True, text=True)
            self.known[command] = None if run.returncode else set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", run.stdout)) | {"--version"}
        return self.known[command]

    def commands(self, command):
        run = subprocess.run([self.binaries / command[0], *command[1:], "--help"], capture_output=True, text=True)
        listed = run.stdout.partition("\nSubcommands:\n")[2]
        return set(re.findall(r"^  (\S+)", listed, re.MULTILINE))


def commands_in(text):
    """Words of every command of ours that a README shows."""
    pieces = [line for block in FENCED.findall(MARKED.sub("", text)) for line in block.replace("\\\n", " ").splitlines()]
    pieces += [" ".join(quoted.split()) for quoted in QUOTED.findall(FENCED.sub("", text))]
    for piece in pieces:
        piece = re.split(r"\s#\s|\s#$", piece)[0]
        for part in re.split(r"\||&&|;|&\s*$", piece):
            words = part.replace("(", " ").replace(")", " ").split()
            while words and ("=" in words[0] or words[0] in ("$", "source")):
                words.pop(0)
            if words and pathlib.PurePath(words[0]).name in PROGRAMS:
                yield [pathlib.PurePath(words[0]).name, *words[1:]]


def check_options(path, help_texts):
    faults = []
    for words in commands_in(path.read_text()):
        command = (words[0],)
        for word in words[1:]:
            if not re.fullmatch(r"[a-z][a-z-]+", word) or word not in help_texts.commands(command):
                break
            command += (word,)
        options = help_texts.options(command)
        for word in words[len(command):]:
            if word.startswith("--") and len(word) > 2:
                name = re.match(r"--[a-z0-9-]*", word)[0]
                if name not in options and (words[0], name) not in INTERNAL:
                    faults.append(f"{path.relative_to(ROOT)}: `{' '.join(command)}` has no option {name}")
    return faults


def anchors(path):
    """What a link may name of a document: its headings in lower case, without punctuation, with hyphens for spaces."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(path):
    faults = []
    text = FENCED.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if ":" in name:
            continue
        other = path if not name else (path.parent / name).resolve()
        if not other.exists():
            faults.append(f"{path.relative_to(ROOT)}: a link to {name}, which is not there")
        elif anchor and other.suffix == ".md" and anchor not in anchors(other):
            faults.append(f"{path.relative_to(ROOT)}: a link to #{anchor} of {other.relative_to(ROOT)}, which has no such heading")
    if path.name == "ARCHITECTURE.md":
        for quoted in QUOTED.findall(text):
            if (ROOT / quoted.split("/")[0]).is_dir() and re.fullmatch(r"[\w./]+", quoted) and "/" in quoted and not (ROOT / quoted).exists():
                faults.append(f"{path.relative_to(ROOT)}: `{quoted}` is not there")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    binaries = options.binaries.resolve()
    planner = Planner(binaries)
    try:
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NEUROSHARD_PLANNER": planner.address}
        for variable in ("NEUROSHARD_WORKERS", "NEUROSHARD_STORE", "NEUROSHARD_MODELS"):
            environment.pop(variable, None)
        help_texts = Help(binaries)
        faults = []
        marked = 0
        for path in documents():
            faults += check_links(path)
            marked += len(MARKED.findall(path.read_text()))
            faults += check_outputs(path, environment, options.write)
            faults += check_options(path, help_texts)
    finally:
        planner.stop()
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{marked} outputs compared, {len(faults)} faults")
    return 1 if faults or not marked else 0


if __name__ == "__main__":
    sys.exit(main())
