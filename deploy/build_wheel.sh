#!/usr/bin/env bash
# Builds the Python package neuroshard as a wheel, from its sdist, so that both are known to be complete:
#   deploy/build_wheel.sh [--out build/wheel]
# pip fetches what the build needs (client/python/pyproject.toml) into an environment of its own; PIP_NO_INDEX and PIP_FIND_LINKS make it take
# that from a folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/build/wheel
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --help | -h) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    *) echo "unknown argument: $1 (try --help)" >&2; exit 2 ;;
  esac
done
# Debian's Python, whose setuptools and venv deploy/packages.txt has; another one that comes first in PATH need not have them.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$root/client/python" && "$python" -B -W ignore setup.py --quiet sdist --dist-dir "$work/sdist" 2>"$work/log") || { cat "$work/log" >&2; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/wheel" "$work"/sdist/neuroshard-*.tar.gz
mkdir -p "$out"
mv -f "$work"/sdist/neuroshard-*.tar.gz "$work"/wheel/neuroshard-*.whl "$out/"
(cd "$out" && ls -1 neuroshard-*.tar.gz neuroshard-*.whl)
