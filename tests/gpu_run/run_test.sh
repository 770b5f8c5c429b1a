#!/usr/bin/env bash
# run_test.sh BIN: bench/gpu/run.sh on a host without a GPU: it says so; with --backend cpu it measures; with programs that only pretend to
# have a GPU it keeps what was done before a kill, goes on afterwards, tells failures and leaves at most eight files.
set -euo pipefail

bin=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
run=$root/bench/gpu/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1" >&2; cat "$work/said" "$work"/out*/log.txt >&2 2>/dev/null || true; exit 1; }
expect() { grep -q "$2" "$1" || fail "no '$2' in $1"; }

cat >"$work/sweep.yaml" <<YAML
kind: compute
num_samples: 2
tables: $root/configs/workloads/dlrm_2021_tables856.csv
max_tables: 2
max_weights_bytes: 16777216
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}
YAML

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  status=0
  "$run" --bin "$bin" --out "$work/none" >"$work/said" 2>&1 || status=$?
  [ $status -eq 3 ] || fail "without a GPU the status was $status"
  expect "$work/said" 'no NVIDIA GPU'
  [ ! -e "$work/none" ] || fail "a folder was made for nothing"
fi

"$run" --bin "$bin" --out "$work/out1" --backend cpu --minutes 1 --only ranks,sweep --sweep "$work/sweep.yaml" >"$work/said" 2>&1 ||
  fail "the run on the CPU failed"
expect "$work/out1/RESULTS.md" 'sweep: compute 2/2'
expect "$work/out1/RESULTS.md" 'ranks: comm 10/10'
gunzip -t "$work/out1/profile.db.gz"

# Pretends: a GPU, tests that pass, tests that skip themselves, a benchmark that is killed the first time and fails the second.
mkdir -p "$work/fake/bin" "$work/path"
printf '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: Fake" || echo "Fake 9000"\n' >"$work/path/nvidia-smi"
printf '#!/bin/sh\necho "[  PASSED  ] 3 tests."\n' >"$work/fake/bin/kernels_cuda_test"
printf '#!/bin/sh\nprintf "SKIPPED, NOT TESTED: no such thing\\n[  SKIPPED ] A.B (0 ms)\\n"\n' >"$work/fake/bin/kernels_nccl_test"
printf '#!/bin/sh\necho $$ >"%s"; echo half; [ -e "%s" ] && exit 1; touch "%s"; exec sleep 60\n' "$work/pid" "$work/twice" "$work/twice" \
  >"$work/fake/bin/gpu_kernels_bench"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$bin/neuroshard-worker" >"$work/fake/bin/neuroshard-worker"
chmod +x "$work"/path/* "$work"/fake/bin/*
pretend=("$run" --bin "$work/fake/bin" --out "$work/out2" --minutes 2 --only "gpu_tests,nccl_tests,kernels")
export PATH=$work/path:$PATH
"${pretend[@]}" >"$work/said" 2>&1 &
running=$!
for _ in $(seq 100); do [ ! -s "$work/pid" ] || break; sleep 0.05; done
{ kill -9 "$running" "$(cat "$work/pid")" && wait "$running"; } 2>/dev/null || [ $? -gt 128 ] || fail "the benchmark never ran"
expect "$work/out2/RESULTS.md" '| gpu_tests | done'
status=0
"${pretend[@]}" >"$work/said" 2>&1 || status=$?
[ $status -eq 1 ] || fail "after a failed part the status was $status"
expect "$work/said" 'gpu_tests\] was done before'
expect "$work/out2/RESULTS.md" '| kernels | failed after .* exit status 1 |'
expect "$work/out2/RESULTS.md" '| nccl_tests | left out: no such thing |'
expect "$work/out2/RESULTS.md" 'gpu_tests: .*3 tests'
expect "$work/out2/results.json" '"device": "Fake 9000"'
[ "$(find "$work/out1" "$work/out2" -type f | wc -l)" -le 8 ] || fail "too many files: $(ls "$work"/out*)"
echo "bench/gpu/run.sh keeps its word"
