#!/usr/bin/env bash
# run_test.sh BIN: bench/gpu/run.sh on a host without a GPU: it says so; with --backend cpu it measures; with programs that only pretend to
# have a GPU it keeps what was done before a kill, goes on afterwards and after failures, which it tells, and leaves at most eight files; where
# everything hangs it keeps to its time, and to a folder that is full or read-only it does not pretend to write.
set -euo pipefail

bin=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
run=$root/bench/gpu/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1" >&2; tail -n 200 "$work"/*said "$work"/out*/log.txt >&2 2>/dev/null || true; exit 1; }
expect() { grep -q "$2" "$1" || fail "no '$2' in $1"; }

# Ten minutes are enough for all parts at their limits, with half a minute for what is around them; the README says the same limits.
total=30
read -ra limits < <(sed -n 's/^limits=(\(.*\))$/\1/p' "$run")
for part in "${limits[@]}"; do
  total=$((total + ${part#*:}))
  [ "${part%:*}" = sweep ] || grep -qE "^\| .*\`${part%:*}\`.* \| ${part#*:}( each)? \|" "$root/bench/gpu/README.md" || fail "bench/gpu/README.md has another limit than $part"
done
[ ${#limits[@]} -eq 12 ] && [ $total -le 600 ] || fail "${#limits[@]} parts may take $total s"
[ "$(sed -n 's/.* minutes=\([0-9]*\) .*/\1/p' "$run")" -le 9 ] || fail "a run may take ten minutes"

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

"$run" --bin "$bin" --out "$work/out1" --backend cpu --minutes 3 --only ranks,sweep --sweep "$work/sweep.yaml" >"$work/said" 2>&1 ||
  fail "the run on the CPU failed"
expect "$work/out1/RESULTS.md" 'sweep: compute 2/2'
expect "$work/out1/RESULTS.md" 'ranks: comm 10/10'
gunzip -t "$work/out1/profile.db.gz"

# Pretends: a GPU, tests that pass, tests that skip themselves, a sanitizer that something kills, a benchmark that is killed the first time and
# fails the second, one that works.
mkdir -p "$work/fake/bin" "$work/path" "$work/lib"
touch "$work/lib/libnccl.so.2"
pretend() { printf '#!/bin/sh\n%s\n' "$2" >"$work/$1"; chmod +x "$work/$1"; }
pretend path/nvidia-smi '[ "$1" = -L ] && echo "GPU 0: Fake" || echo "Fake 9000"'
pretend path/compute-sanitizer 'kill -9 $$'
pretend fake/bin/kernels_cuda_test 'echo "[  PASSED  ] 3 tests."'
pretend fake/bin/kernels_nccl_test 'printf "SKIPPED, NOT TESTED: no such thing\n[  SKIPPED ] A.B (0 ms)\n"'
pretend fake/bin/gpu_kernels_bench "echo '| half |'; [ -e '$work/twice' ] && exit 1; touch '$work/twice'; echo \$\$ >'$work/pid'; exec sleep 60"
pretend fake/bin/gpu_collectives_bench 'echo "| all_gather | 1 |"'
ln -s "$bin/neuroshard-worker" "$work/fake/bin/neuroshard-worker"
export PATH=$work/path:$PATH LD_LIBRARY_PATH=$work/lib
fakes=("$run" --bin "$work/fake/bin" --out "$work/out2" --minutes 2 --only "gpu_tests,nccl_tests,memcheck,kernels,collectives,model")
"${fakes[@]}" >"$work/said" 2>&1 &
running=$!
for _ in $(seq 600); do [ ! -s "$work/pid" ] || break; sleep 0.05; done
{ kill -9 "$running" && wait "$running"; } 2>/dev/null || [ $? -eq 137 ] || fail "the benchmark never ran"
for _ in $(seq 600); do kill -0 "$(cat "$work/pid")" 2>/dev/null || break; sleep 0.05; done
if kill -0 "$(cat "$work/pid")" 2>/dev/null; then fail "a part outlives its run"; fi
expect "$work/out2/RESULTS.md" '| gpu_tests | done'
expect "$work/out2/RESULTS.md" '| memcheck | failed after [0-9]* s, exit status 137 |'
expect "$work/out2/RESULTS.md" '| kernels | begun, not ended |'
expect "$work/out2/RESULTS.md" '| collectives | not done |'
status=0
"${fakes[@]}" >"$work/said" 2>&1 || status=$?
[ $status -eq 1 ] || fail "after a failed part the status was $status"
expect "$work/said" 'gpu_tests\] was done before'
expect "$work/out2/RESULTS.md" '| kernels | failed after .* exit status 1 |'
expect "$work/out2/RESULTS.md" '^## kernels, which failed after .* exit status 1$'
expect "$work/out2/RESULTS.md" '^| half |'
expect "$work/out2/RESULTS.md" '| nccl_tests | left out: no such thing |'
expect "$work/out2/RESULTS.md" '| collectives | done in'
expect "$work/out2/RESULTS.md" '^| all_gather | 1 |'
expect "$work/out2/RESULTS.md" '| model | left out: there is no sweep to learn from |'
expect "$work/out2/RESULTS.md" 'gpu_tests: .*3 tests'
expect "$work/out2/results.json" '"device": "Fake 9000"'
[ "$(find "$work/out1" "$work/out2" -type f | wc -l)" -le 8 ] || fail "too many files: $(ls "$work"/out*)"

# Nothing answers, and nothing heeds a signal to end. In the background, as it takes its time.
mkdir -p "$work/hanging"
for program in kernels_cuda_test kernels_nccl_test gpu_kernels_bench gpu_collectives_bench neuroshard-worker neuroshard neuroshard-pretrain; do
  pretend "hanging/$program" 'trap "" TERM INT; echo "[ RUN      ] Some.Test"; while :; do sleep 1; done'
done
hang() { # FOLDER OPTION...
  local out=$1 status=0
  shift
  SECONDS=0
  "$run" --bin "$work/hanging" --out "$work/$out" --minutes 1 "$@" >"$work/$out.said" 2>&1 || status=$?
  echo "$status $SECONDS" >"$work/$out.ended"
}
hang out3 &
hanging=($!)
hang out4 --only ranks,sweep &
hanging+=($!)

# A folder that nobody writes to: nothing is run. /proc/sys is such, also to root.
pretend fake/bin/kernels_cuda_test "touch '$work/was_run'; head -c 300000 /dev/zero | tr '\\0' x"
status=0
"$run" --bin "$work/fake/bin" --out /proc/sys --only gpu_tests >"$work/said" 2>&1 || status=$?
[ $status -eq 1 ] || fail "with a folder that cannot be written to the status was $status"
expect "$work/said" '^/proc/sys cannot be written to, it is full or read-only: stopped'
[ ! -e "$work/was_run" ] || fail "a part was run whose results cannot be kept"
# One that becomes full: by what a part prints, and by the sweep.
as_root=(unshare --mount)
[ "$(id -u)" -eq 0 ] || as_root+=(--user --map-root-user)
if "${as_root[@]}" mount -t tmpfs none "$work/lib" 2>/dev/null; then
  mkdir "$work/full"
  for case in "200k --bin $work/fake/bin --only gpu_tests,kernels" "100k --bin $bin --backend cpu --only sweep,model --sweep $work/sweep.yaml"; do
    status=0 says='it is full or read-only: stopped'
    [[ $case != *sweep* ]] || says='disk is full'
    # shellcheck disable=SC2016,SC2086
    "${as_root[@]}" bash -c 'mount -t tmpfs -o "size=$2" none "$1" && "$0" --out "$1" "${@:3}"; status=$?; cp "$1/RESULTS.md" "$1.md"; exit $status' \
      "$run" "$work/full" $case >"$work/said" 2>&1 || status=$?
    [ $status -eq 1 ] || fail "with a full folder the status was $status"
    expect "$work/said" "$says"
    expect "$work/full.md" '^| [a-z_]* | \(begun, not ended\|failed after\)'
  done
else
  echo "SKIPPED: full disks, which need root or user namespaces"
fi

wait "${hanging[@]}"
for out in out3 out4; do
  read -r status seconds <"$work/$out.ended"
  [ "$status" -eq 1 ] && [ "$seconds" -le 120 ] || fail "where everything hangs a run of a minute took $seconds s, status $status"
done
expect "$work/out4/RESULTS.md" '| ranks | failed: a worker did not start |'
expect "$work/out3/RESULTS.md" '| gpu_tests | cut after'
expect "$work/out3/RESULTS.md" 'gpu_tests, the last that began: .*Some.Test'
expect "$work/out3/RESULTS.md" '| kernels | left out: no time left |'
expect "$work/out3/RESULTS.md" '| sweep | '
echo "bench/gpu/run.sh keeps its word"
