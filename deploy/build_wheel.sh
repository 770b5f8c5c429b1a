#!/usr/bin/env bash
# Builds the Python package neuroshard as a wheel, from its sdist, so that both are known to be complete:
#   deploy/build_wheel.sh [--out build/wheel] [--programs build/release/bin]
# With --programs there is a second wheel, for x86-64 Linux, which has planner, worker and client with their libraries and the shipped models in it.
# Its tag says which glibc it needs. The same programs, libraries and commit give the same bytes.
# pip fetches what the build needs (client/python/pyproject.toml, wheel) into an environment of its own; PIP_NO_INDEX and PIP_FIND_LINKS make it
# take that from a folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/build/wheel
programs=
max_bytes=60000000
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --programs) programs=${2:?--programs needs a folder}; shift 2 ;;
    --help | -h) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
    *) echo "unknown argument: $1 (try --help)" >&2; exit 2 ;;
  esac
done
# Debian's Python, whose setuptools and venv deploy/packages.txt has; another one that comes first in PATH need not have them.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

umask 022
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)}  # zip begins in 1980

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$root/client/python" && "$python" -B -W ignore setup.py --quiet sdist --dist-dir "$work/sdist" 2>"$work/log") || { cat "$work/log" >&2; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/wheel" "$work"/sdist/neuroshard-*.tar.gz

# A wheel that has programs: the other one with a folder more.
if [ -n "$programs" ]; then
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check wheel
  "$root/deploy/bundle.sh" --bin "$programs" --wheel "$work/programs" "$programs/neuroshard-planner"
  "$work/venv/bin/python" -m wheel unpack --dest "$work/unpacked" "$work"/wheel/neuroshard-*.whl >/dev/null
  tree=$(echo "$work"/unpacked/neuroshard-*)
  mv "$work"/programs/* "$tree/neuroshard_programs/"
  newest=$(find "$tree" -type f \( -path '*/bin/*' -o -path '*/lib/*' \) -exec objdump -T {} + | grep -oP 'GLIBC_2\.\K\d+' | sort -n | tail -1)
  sed -i -e 's/^Root-Is-Purelib: .*/Root-Is-Purelib: false/' -e "s/^Tag: .*/Tag: py3-none-manylinux_2_${newest}_x86_64/" "$tree"/*.dist-info/WHEEL
  for name in neuroshard neuroshard-planner neuroshard-worker; do
    sed -i "/^\[console_scripts\]/a $name = neuroshard_programs:main" "$tree"/*.dist-info/entry_points.txt
  done
  "$work/venv/bin/python" -m wheel pack --dest-dir "$work/wheel" "$tree" >/dev/null
  bytes=$(stat -c %s "$work"/wheel/neuroshard-*-manylinux*.whl)
  [ "$bytes" -le "$max_bytes" ] || { echo "the wheel with programs would have $bytes bytes, more than $max_bytes" >&2; exit 1; }
fi

mkdir -p "$out"
mv -f "$work"/sdist/neuroshard-*.tar.gz "$work"/wheel/neuroshard-*.whl "$out/"
(cd "$out" && ls -1 neuroshard-*.tar.gz neuroshard-*.whl)
