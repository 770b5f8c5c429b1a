#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test, plain and under the sanitizers.
#   tests/run.sh             all of dev, asan, tsan
#   tests/run.sh dev asan    only these presets
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
presets=("$@")
[ ${#presets[@]} -gt 0 ] || presets=(dev asan tsan)

deploy/install_packages.sh

jobs=$(nproc)
mkdir -p build
passed=0 failed=0 broken=()
for preset in "${presets[@]}"; do
  echo "=== $preset: build"
  started=$SECONDS
  cmake --preset "$preset" >"build/$preset.log" 2>&1 || { cat "build/$preset.log"; exit 1; }
  cmake --build --preset "$preset" --parallel "$jobs" >>"build/$preset.log" 2>&1 || { tail -n 60 "build/$preset.log"; exit 1; }
  echo "=== $preset: built in $((SECONDS - started)) s; test"
  log="build/$preset/ctest.log"
  ctest --preset "$preset" --parallel "$jobs" 2>&1 | tee "$log" | grep -vE '^ *Start |Passed|^Test project' || true
  grep -hs '^SKIPPED' "build/$preset/Testing/Temporary/LastTest.log" || true
  # ctest's own summary decides; a run without one is a failure.
  summary=$(grep -E 'tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -n 1)
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
