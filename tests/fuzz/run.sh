#!/usr/bin/env bash
# libFuzzer over every target, or over those named: builds the preset fuzz, fuzzes each for so many seconds, two at a time, and says
# executions, coverage and findings. What it learned stays in build/fuzz/corpus, so that the next run goes on.
#   tests/fuzz/run.sh [--seconds N] [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=600
if [ "${1:-}" = --seconds ]; then
  seconds=$2
  shift 2
fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --parallel "$(nproc)"
fuzz=$PWD/build/fuzz/bin/neuroshard-fuzz
read -ra targets <<<"${*:-$("$fuzz" --list | tr '\n' ' ')}"

fuzz_one() {
  local target=$1 corpus=build/fuzz/corpus/$1 found=build/fuzz/found/$1
  mkdir -p "$corpus" "$found"
  "$fuzz" --target="$target" --write-seeds="$corpus" || { echo "$target: its seeds cannot be written" | tee "$found/no-seeds"; return; }
  local findings=tests/fuzz/findings/$target
  [ -d "$findings" ] || findings=
  "$fuzz" --target="$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=20000 -print_final_stats=1 \
    -artifact_prefix="$found/" "$corpus" $findings >"$found.log" 2>&1 || true
  printf '%-14s %10s inputs, coverage %6s edges, corpus %5s, findings %s\n' "$target" \
    "$(sed -n 's/^stat::number_of_executed_units: //p' "$found.log")" \
    "$(grep -o 'cov: [0-9]*' "$found.log" | tail -n 1 | cut -d' ' -f2)" "$(find "$corpus" -type f | wc -l)" "$(find "$found" -type f | wc -l)"
}
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
  fuzz_one "$target" &
done
wait
if find build/fuzz/found -type f -path 'build/fuzz/found/*/*' | grep .; then
  echo "found: mend, and keep each input in tests/fuzz/findings/TARGET/"
  exit 1
fi
