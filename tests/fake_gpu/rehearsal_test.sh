#!/usr/bin/env bash
# rehearsal_test.sh FAKE_GPU_FOLDER BIN: bench/gpu/run.sh on fake GPUs up to a model that a planner loads and plans with; and a worker
# of which one GPU of eight is bad, or breaks or hangs later. Nothing here measures a GPU, and everything measured says so.
set -euo pipefail

fake=$1 bin=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "$1" >&2; cat "$work/said" "$work"/*.err "$work/out/log.txt" >&2 2>/dev/null || true; exit 1; }
expect() { grep -q "$2" "$1" || fail "no '$2' in $1"; }
export LD_LIBRARY_PATH=$fake/lib FAKE_NCCL_DIR=$work
name='Fake GPU that runs on the CPU'

# start NAME COMMAND...: sets $address.
start() {
  local as=$1 tries=0
  shift
  "$@" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 >"$work/$as.out" 2>"$work/$as.err" &
  started+=($!)
  address=''
  while [ -z "$address" ]; do
    kill -0 "${started[-1]}" 2>/dev/null && [ $((tries += 1)) -lt 600 ] || fail "$as did not start"
    sleep 0.05
    address=$(sed -n 's/^listening on //p' "$work/$as.out")
  done
}
stop() { kill "${started[-1]}"; wait "${started[-1]}" || true; unset 'started[-1]'; }

mkdir -p "$work/path" "$work/bin"
printf '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: %s" || echo "%s"\n' "$name" "$name" >"$work/path/nvidia-smi"
chmod +x "$work/path/nvidia-smi"
ln -s "$fake"/bin/* "$bin/neuroshard" "$bin/neuroshard-pretrain" "$work/bin/"
cat >"$work/sweep.yaml" <<YAML
kind: compute
num_samples: 40
tables: $root/configs/workloads/dlrm_2021_tables856.csv
max_tables: 3
max_weights_bytes: 16777216
dims: [16, 8, 4]
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}
YAML
run() {
  FAKE_GPUS=2 PATH=$work/path:$PATH "$root/bench/gpu/run.sh" --bin "$work/bin" --out "$work/out" --minutes 2 --only ranks,sweep,model \
    --sweep "$work/sweep.yaml" >"$work/said" 2>&1
}
# Killed in the midst of its sweep, with all that it started.
set -m
run &
killed=$!
set +m
until grep -q '^\[sweep\] at most' "$work/said" 2>/dev/null && [ -s "$work/out/profile.db" ]; do
  kill -0 "$killed" 2>/dev/null || fail "the rehearsal ended before its sweep"
  sleep 0.1
done
kill -9 -- "-$killed"
wait "$killed" || true
[ ! -e "$work/out/model.tar.gz" ] || fail "the rehearsal was not killed in the midst of its sweep"
# Run again, it goes on.
run || fail "the rehearsal failed"
expect "$work/said" 'ranks. was done before'
expect "$work/out/RESULTS.md" "Measured on $name"
expect "$work/out/RESULTS.md" 'ranks: comm 10/10'
expect "$work/out/RESULTS.md" 'sweep: compute 40/40'
expect "$work/out/RESULTS.md" '| model | done'
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "too many files: $(ls "$work/out")"

mkdir "$work/models"
tar -xzf "$work/out/model.tar.gz" -C "$work/models"
start planner "$bin/neuroshard-planner" --models "$work/models" --accept-unusable-models
cat >"$work/request.yaml" <<YAML
tables:
  - {name: a, num_embeddings: 10000, embedding_dim: 16, pooling_factor: 3}
  - {name: b, num_embeddings: 20000, embedding_dim: 8, pooling_factor: 9}
topology: {hosts: [{num_devices: 1, memory_bytes: 268435456}]}
global_batch_size: 64
YAML
"$bin/neuroshard" plan "$work/request.yaml" --planner "$address" --format json >"$work/plan.json" 2>"$work/plan.err" || fail "no plan"
expect "$work/plan.json" "$name"
stop
if grep -rlq "$name" "$root/configs" "$root/bench/results" 2>/dev/null; then fail "figures of fake GPUs are in the repository"; fi

# One bad GPU of eight.
FAKE_GPUS=8 FAKE_GPU_FAIL=cudaSetDevice:1:lost@3 start eight "$fake/bin/neuroshard-worker" --backend cuda
expect "$work/eight.err" 'device_left_out.*cuda device 3'
expect "$work/eight.err" 'serving .*devices=7'
stop

# Groups of two GPUs of one worker, whose buffers grow between exchanges: freeing waits for all streams of a process, and so for a peer
# that waits for this one, unless each has a process of its own.
FAKE_GPUS=2 start pair "$fake/bin/neuroshard-worker" --backend cuda
"$bin/neuroshard" sweep comm "$root/configs/sweeps/gpu_ranks.yaml" --workers "$address" --store "$work/pair.db" >"$work/pair.said" 2>&1 ||
  fail "the sweep of two GPUs of one worker failed"
expect "$work/pair.said" '10 measured now'
stop

# A device that breaks in the midst of a sample, and one without memory: the worker goes on, and says what it was.
sweep() { "$bin/neuroshard" sweep compute "$work/sweep.yaml" --workers "$address" --store "$work/$1.db" >"$work/$1.said" 2>&1; }
FAKE_GPU_FAIL=PoolKernel:5:lost start broken "$fake/bin/neuroshard-worker" --backend cuda
sweep broken || true
expect "$work/broken.said" 'unspecified launch failure'
kill -0 "${started[-1]}" || fail "the worker ended with its device"
stop
# A kernel that never ends: who asked goes away, and the device is there again.
FAKE_GPU_FAIL=PoolKernel:5:hang start hung "$fake/bin/neuroshard-worker" --backend cuda
timeout -s INT -k 20 4 "$bin/neuroshard" sweep compute "$work/sweep.yaml" --workers "$address" --store "$work/hung.db" >"$work/hung.said" 2>&1 || true
sed 's/num_samples: 40/num_samples: 1/' "$work/sweep.yaml" >"$work/one.yaml"
"$bin/neuroshard" sweep compute "$work/one.yaml" --workers "$address" --store "$work/after.db" >"$work/after.said" 2>&1 || fail "no device after a hung kernel"
expect "$work/after.said" '1 measured now'
expect "$work/hung.err" 'did not answer in time and was ended'
stop
FAKE_GPU_MEMORY=2400000000 start small "$fake/bin/neuroshard-worker" --backend cuda
sed -i 's/max_weights_bytes.*/max_weights_bytes: 1073741824/' "$work/sweep.yaml"
sweep small || fail "the sweep of a small device failed"
expect "$work/small.said" '40 measured now ([1-9][0-9]* out of memory)'
stop
echo "the rehearsal ends in a model and a plan"
