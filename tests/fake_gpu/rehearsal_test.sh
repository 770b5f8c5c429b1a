#!/usr/bin/env bash
# rehearsal_test.sh FAKE_GPU_FOLDER BIN: bench/gpu/run.sh from a bundle on fake GPUs, every part of it that needs no Python, killed in the midst
# of its sweep and run again, up to a model that a planner loads and plans with. compute-sanitizer is a script that runs the program and finds
# nothing: the real one needs a GPU.
set -euo pipefail

fake=$1 bin=$2
# shellcheck source=tests/fake_gpu/processes.sh
. "$(dirname "${BASH_SOURCE[0]}")/processes.sh"

mkdir -p "$work/path" "$work/programs"
printf '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: %s" || echo "%s"\n' "$name" "$name" >"$work/path/nvidia-smi"
# compute-sanitizer --tool NAME --error-exitcode 99 PROGRAM...
printf '#!/bin/sh\nshift 4\n"$@" && echo "========= ERROR SUMMARY: 0 errors"\n' >"$work/path/compute-sanitizer"
chmod +x "$work"/path/*
ln -s "$fake"/bin/* "$bin/neuroshard" "$bin/neuroshard-pretrain" "$work/programs/"

phase 'the bundle'
"$root/deploy/bundle.sh" --bin "$work/programs" --out "$work/bundle.tar.gz" \
  "$work"/programs/{neuroshard-pretrain,gpu_kernels_bench,gpu_collectives_bench,kernels_cuda_test,kernels_nccl_test} >"$work/bundle.said" 2>&1 || fail 'no bundle'
tar -xzf "$work/bundle.tar.gz" -C "$work"
rm -r "$work/programs" "$work/bundle.tar.gz"

phase 'a run that is killed in the midst of its sweep'
unpacked=$work/neuroshard-worker
# So many samples that the sweep still runs when it is killed.
mkdir "$work/sweeps"
sed 's/^num_samples: .*/num_samples: 1600/' "$work/compute.yaml" >"$work/sweeps/gpu_compute.yaml"
sed 's/^num_samples: .*/num_samples: 3/; $aseed: 3' "$work/compute.yaml" >"$work/sweeps/gpu_large.yaml"
sed 's/^num_samples: .*/num_samples: 3/; $acompute_kernels: [fused_uvm]' "$work/compute.yaml" >"$work/sweeps/gpu_host.yaml"
run=(env FAKE_GPUS=2 "PATH=$work/path:$PATH" "$unpacked/bench/gpu/run.sh" --rehearse --out "$work/out" --minutes 6 --sweeps "$work/sweeps")
"${run[@]}" >"$work/run.said" 2>&1 &
killed=$!
until grep -q '^\[sweep\] at most' "$work/run.said" && [ -s "$work/out/profile.db.gz" ]; do
  kill -0 "$killed" 2>/dev/null || fail 'the run ended before its sweep'
  sleep 0.05
done
{ kill -9 "$killed" && wait "$killed"; } 2>/dev/null || [ $? -eq 137 ] || fail 'the run was not killed'
expect "$work/out/RESULTS.md" '^| sweep | begun, not ended |'
expect "$work/out/RESULTS.md" '^| model | not .* |'
for _ in $(seq 600); do pgrep -f "$unpacked/" >/dev/null || break; sleep 0.1; done
if pgrep -f "$unpacked/"; then fail 'what a killed run had started goes on'; fi

phase 'the run again, which goes on'
mv "$work/run.said" "$work/killed.said"
"${run[@]}" >"$work/run.said" 2>&1 || fail 'the run failed'
before=(smoke gpu_tests kernels)
for part in "${before[@]}"; do expect "$work/run.said" "^.$part. was done before"; done
for part in "${before[@]}" memcheck sweep large host nccl_tests ranks collectives model; do expect "$work/out/RESULTS.md" "^| $part | done in"; done
for part in torch fbgemm; do expect "$work/out/RESULTS.md" "^| $part | left out: python3 has no"; done
expect "$work/out/RESULTS.md" "^# Measured on $name"
expect "$work/out/RESULTS.md" 'A rehearsal: its times mean nothing'
expect "$work/out/RESULTS.md" '^| dim128_uniform_bf16 |'
expect "$work/out/RESULTS.md" '^| all_reduce | 1 | [0-9]'
expect "$work/out/RESULTS.md" 'memcheck: =* ERROR SUMMARY: 0 errors'
expect "$work/out/RESULTS.md" 'ranks: comm 10/10'
expect "$work/out/RESULTS.md" 'sweep: compute 1600/1600'
# Every target has a figure and a verdict.
sed -n '/^| target /,/^$/p' "$work/out/RESULTS.md" | tail -n +3 | sed '/^$/d' >"$work/targets"
[ "$(grep -cE '\| [0-9.]+ \| [0-9.]+ \| (met|MISSED) \|$' "$work/targets")" -eq "$(wc -l <"$work/targets")" ] && [ "$(wc -l <"$work/targets")" -ge 13 ] ||
  fail "targets without a verdict: $(cat "$work/targets")"
gunzip -c "$work/out/profile.db.gz" >"$work/copy.db"
"$bin/neuroshard" store info --store "$work/copy.db" >"$work/copy.said" && expect "$work/copy.said" '1600'
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "too many files: $(ls "$work/out")"
sed -n 's/^| \([a-z_]*\) | \(done in .*\) |$/  \1: \2/p' "$work/out/RESULTS.md"

phase 'a table of bandwidths that is cut'
for _ in 1 2 3 4 5; do  # all of it takes half a second: it may be done before it is told to stop
  : >"$work/cut.err"
  "$unpacked/bin/gpu_kernels_bench" --tiny >"$work/cut.said" 2>"$work/cut.err" &
  until [ -s "$work/cut.err" ]; do sleep 0.02; done
  kill $! 2>/dev/null || true
  status=0
  wait $! || status=$?
  if grep -q 'NOT MEASURED' "$work/cut.said"; then break; fi
done
[ $status -ne 0 ] || fail 'the table was not cut'
expect "$work/cut.said" '^| dim32_uniform |'
expect "$work/cut.said" '^| forward, dim 128, bf16: of copying | .* NOT MEASURED |$'

phase 'a planner with its model'
mkdir "$work/models"
tar -xzf "$work/out/model.tar.gz" -C "$work/models"
expect "$work"/models/*/1/REPORT.md '^| compute |'
start planner "$bin/neuroshard-planner" --models "$work/models" --accept-unusable-models
cat >"$work/request.yaml" <<YAML
tables:
  - {name: a, num_embeddings: 10000, embedding_dim: 16, pooling_factor: 3}
  - {name: b, num_embeddings: 20000, embedding_dim: 8, pooling_factor: 9}
topology: {hosts: [{num_devices: 1, memory_bytes: 268435456}]}
global_batch_size: 64
YAML
"$bin/neuroshard" plan "$work/request.yaml" --planner "${address_of[planner]}" --format json >"$work/plan.json" 2>"$work/plan.said" || fail 'no plan'
expect "$work/plan.json" "$name"
stop planner
if grep -rlq "$name" "$root/configs" "$root/bench/results" 2>/dev/null; then fail 'figures of fake GPUs are in the repository'; fi
phase 'the rehearsal ends in a model and a plan'
