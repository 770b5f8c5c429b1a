#!/usr/bin/env bash
# run_test.sh BIN: bench/gpu/run.sh on a host without a GPU: it says so; with --backend cpu it measures; with programs that only pretend to
# have a GPU it keeps what was done before a kill, goes on afterwards and after failures, which it tells, and leaves at most seven files; where no
# kernel runs it stops, where
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
[ ${#limits[@]} -eq 14 ] && [ $total -le 600 ] || fail "${#limits[@]} parts may take $total s"
[ "$(sed -n 's/.* minutes=\([0-9]*\) .*/\1/p' "$run")" -le 9 ] || fail "a run may take ten minutes"

mkdir "$work/sweeps"
cat >"$work/sweeps/gpu_compute.yaml" <<YAML
kind: compute
num_samples: 2
tables: $root/configs/workloads/dlrm_2021_tables856.csv
max_tables: 2
max_weights_bytes: 16777216
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}
YAML

{ cat "$work/sweeps/gpu_compute.yaml" && echo 'seed: 2'; } >"$work/sweeps/gpu_large.yaml"
# A plan of two ranks, which one worker runs one after the other.
mkdir "$work/plans"
cat >"$work/plans/two.yaml" <<YAML
global_batch_size: 64
topology: {hosts: [{num_devices: 2, memory_bytes: 268435456}]}
tables:
  - {name: a, num_embeddings: 1000, embedding_dim: 16, pooling_factor: 3}
  - {name: b, num_embeddings: 2000, embedding_dim: 8, pooling_factor: 9}
YAML
"$bin/neuroshard-planner" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --models "$work" >"$work/planner.out" 2>/dev/null &
planner=$!
for _ in $(seq 600); do [ ! -s "$work/planner.out" ] || break; sleep 0.05; done
"$bin/neuroshard" plan "$work/plans/two.yaml" --planner "$(sed -n 's/^listening on //p' "$work/planner.out")" --format json --out "$work/plans/two.json" >"$work/said" 2>&1 ||
  fail "no plan"
kill "$planner" && wait "$planner" || fail "the planner ended badly"

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  status=0
  "$run" --bin "$bin" --out "$work/none" >"$work/said" 2>&1 || status=$?
  [ $status -eq 3 ] || fail "without a GPU the status was $status"
  expect "$work/said" 'no NVIDIA GPU'
  [ ! -e "$work/none" ] || fail "a folder was made for nothing"
fi

"$run" --bin "$bin" --out "$work/out1" --backend cpu --minutes 3 --only ranks,sweep,large,host,plans --sweeps "$work/sweeps" --plans "$work/plans" >"$work/said" 2>&1 ||
  fail "the run on the CPU failed"
expect "$work/out1/RESULTS.md" 'sweep: compute 2/2'
expect "$work/out1/RESULTS.md" 'large: compute 2/2'
expect "$work/out1/RESULTS.md" 'ranks: comm 10/10'
expect "$work/out1/RESULTS.md" '| host | left out: there is no .*gpu_host.yaml |'
expect "$work/out1/RESULTS.md" '| plans | done'
expect "$work/out1/log.txt" '^two.json'
gunzip -c "$work/out1/profile.db.gz" >"$work/copy.db"
"$bin/neuroshard" store info --store "$work/copy.db" >"$work/said" && expect "$work/said" validation

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
expect "$work/out2/RESULTS.md" '| memcheck | failed after [0-9]* s, exit status 137 |'
expect "$work/out2/RESULTS.md" '| collectives | done in'
expect "$work/out2/RESULTS.md" '^| all_gather | 1 |'
expect "$work/out2/RESULTS.md" '| model | left out: there is no sweep to learn from |'
expect "$work/out2/RESULTS.md" 'gpu_tests: .*3 tests'
expect "$work/out2/results.json" '"device": "Fake 9000"'
[ "$(find "$work/out1" "$work/out2" -type f | wc -l)" -le 14 ] || fail "too many files: $(ls "$work"/out*)"

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
hang out3 --only gpu_tests,kernels,sweep &
hanging=($!)
hang out4 --only ranks,sweep &
hanging+=($!)
hang out5 &
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
  mkdir "$work/full" "$work/many"
  sed 's/^num_samples: .*/num_samples: 600/' "$work/sweeps/gpu_compute.yaml" >"$work/many/gpu_compute.yaml"
  for case in "200k --bin $work/fake/bin --only gpu_tests,kernels" "60k --bin $bin --backend cpu --minutes 1 --only sweep,model --sweeps $work/many"; do
    status=0 says='it is full or read-only: stopped'
    [[ $case != *sweep* ]] || says='there is no whole copy of the store'
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
for out in out3 out4 out5; do
  read -r status seconds <"$work/$out.ended"
  [ "$status" -eq 1 ] && [ "$seconds" -le 120 ] || fail "where everything hangs a run of a minute took $seconds s, status $status"
done
expect "$work/out4/RESULTS.md" '| sweep | failed: a worker did not start |'
expect "$work/out3/RESULTS.md" '| gpu_tests | cut after'
expect "$work/out3/RESULTS.md" 'gpu_tests, the last that began: .*Some.Test'
expect "$work/out3/RESULTS.md" '| kernels | left out: no time left |'
expect "$work/out3/RESULTS.md" '| sweep | '
expect "$work/out5/RESULTS.md" '| smoke | cut after'
expect "$work/out5/RESULTS.md" '| gpu_tests | not done |'
expect "$work/out5.said" 'no kernel runs here, so nothing else was tried'
echo "bench/gpu/run.sh keeps its word"
