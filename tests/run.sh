#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test, plain and under the sanitizers.
#   tests/run.sh             all of dev, asan, tsan
#   tests/run.sh dev asan    only these presets
#   tests/run.sh dev -- -L ^server_search    only what ctest selects by these arguments
#   tests/run.sh torchrec    the planner under real trainers: needs PyPI and 5 GB below build/ the first time; not among the first three
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
presets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  presets+=("$1")
  shift
done
selection=("${@:2}")
[ ${#presets[@]} -gt 0 ] || presets=(dev asan tsan)

deploy/install_packages.sh

jobs=$(nproc)
mkdir -p build
# Configures and builds a preset.
build() {
  local started=$SECONDS
  if [ "$1" = torchrec ]; then
    echo "=== $1: PyTorch and TorchRec in build/pytorch"
    bench/pytorch/setup_environment.sh || return 1
  fi
  echo "=== $1: build"
  cmake --preset "$1" >"build/$1.log" 2>&1 || return 1
  cmake --build --preset "$1" --parallel "$jobs" >>"build/$1.log" 2>&1 || return 1
  echo "=== $1: built in $((SECONDS - started)) s"
}
folder() { if [ "$1" = torchrec ]; then echo dev; else echo "$1"; fi; }

passed=0 failed=0 broken=() next_build=
trap '[ -z "$next_build" ] || kill -- "-$next_build" 2>/dev/null || true' EXIT
for i in "${!presets[@]}"; do
  preset=${presets[i]} next=${presets[i + 1]:-}
  is_built=1
  if [ -n "$next_build" ]; then
    wait "$next_build" || is_built=0
  else
    build "$preset" || is_built=0
  fi
  # The next one is built with what these tests leave of the cores, in a folder of its own.
  next_build=
  if [ -n "$next" ] && [ "$(folder "$next")" != "$(folder "$preset")" ]; then
    set -m  # a process group, which ends with this script
    (renice -n 19 "$BASHPID" >/dev/null; build "$next") &
    next_build=$!
    set +m
  fi
  if [ "$is_built" -eq 0 ]; then
    tail -n 60 "build/$preset.log" || true
    echo "=== $preset: not built, see build/$preset.log"
    broken+=("$preset")
    failed=$((failed + 1))
    continue
  fi
  echo "=== $preset: test"
  log="build/$preset.ctest.log"
  ctest --preset "$preset" --parallel "$jobs" "${selection[@]}" 2>&1 | tee "$log" | grep -vE '^ *Start |Passed|^Test project' || true
  grep -hs '^SKIPPED' "build/$preset/Testing/Temporary/LastTest.log" || true
  # ctest's own summary decides; a run without one is a failure.
  summary=$(grep -E 'tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -n 1 || true)
  if [ -z "$summary" ]; then
    broken+=("$preset")
    failed=$((failed + 1))
    continue
  fi
  bad=$(sed -E 's/.*, ([0-9]+) tests failed out of ([0-9]+).*/\1/' <<<"$summary")
  all=$(sed -E 's/.*, ([0-9]+) tests failed out of ([0-9]+).*/\2/' <<<"$summary")
  passed=$((passed + all - bad))
  failed=$((failed + bad))
  [ "$bad" -eq 0 ] || broken+=("$preset")
  [ "$all" -gt 0 ] || { echo "no test ran under $preset"; exit 1; }
done

[ ${#broken[@]} -eq 0 ] || echo "failing presets: ${broken[*]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
