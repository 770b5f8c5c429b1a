#!/usr/bin/env bash
# workers_test.sh FAKE_GPU_FOLDER BIN: sweeps over workers with two and eight fake GPUs, in one worker and over two; and workers of which one GPU
# is bad from the start, breaks, hangs, leaves its group or has no memory: the others go on, and what is said names it.
set -euo pipefail

fake=$1 bin=$2
# shellcheck source=tests/fake_gpu/processes.sh
. "$(dirname "${BASH_SOURCE[0]}")/processes.sh"

samples() { sed "s/^num_samples: .*/num_samples: $1/" "$work/compute.yaml" >"$work/compute_$1.yaml"; }
for count in 1 4 10 16; do samples $count; done
# of_ranks COUNTS: all collectives, one sample each.
of_ranks() {
  sed "s/^num_samples: .*/num_samples: 1/; s/^num_ranks: .*/num_ranks: [$1]/; s/^min_iterations: .*/min_iterations: 1/" "$root/configs/sweeps/gpu_ranks.yaml" \
    >"$work/ranks_$1.yaml"
}
for count in 2 4 2,8; do of_ranks $count; done

phase 'an exchange over two workers that never ends, until its timeout; meanwhile'
FAKE_GPUS=2 NCCL_HOSTID=a FAKE_GPU_FAIL=NcclKernel:12:hang@1 worker hung_a
FAKE_GPUS=2 NCCL_HOSTID=b worker hung_b
sweep hung comm "$work/ranks_4.yaml" hung_a hung_b &
hung=$!

phase 'groups of two and eight GPUs of one worker, whose buffers grow between exchanges, and a sample on each'
# Freeing waits for all streams of a process, and so for a peer that waits for this one, unless each has a process of its own.
FAKE_GPUS=8 FAKE_GPU_SEED=5 worker eight
expect "$work/eight.err" 'serving .*devices=8'
sweep in_one comm "$work/ranks_2,8.yaml" eight || fail 'no groups in one worker'
expect "$work/in_one.said" '10 measured now'
sweep on_eight compute "$work/compute_16.yaml" eight || fail 'no samples on eight GPUs'
expect "$work/on_eight.said" '16 measured now'
stop eight
phase 'and over two, where NCCL takes memory with the first exchange of each kind'
export FAKE_NCCL_MEMORY=500000000 FAKE_GPU_MEMORY=4500000000
FAKE_GPUS=4 NCCL_HOSTID=a worker four
FAKE_GPUS=4 FAKE_GPU_SEED=7 NCCL_HOSTID=b worker four_more
unset FAKE_NCCL_MEMORY FAKE_GPU_MEMORY
sweep over_two comm "$work/ranks_2,8.yaml" four four_more || fail 'no groups over two workers'
expect "$work/over_two.said" '10 measured now (0 out of memory)'
sweep on_both compute "$work/compute_16.yaml" four four_more || fail 'no samples on two workers'
expect "$work/on_both.said" '16 measured now'
stop four four_more

phase 'a device that leaves its group over two workers, again and again'
FAKE_GPUS=2 NCCL_HOSTID=a FAKE_GPU_FAIL=NcclKernel:40:lost@1 worker lost_a
FAKE_GPUS=2 NCCL_HOSTID=b worker lost_b
sweep lost comm "$work/ranks_4.yaml" lost_a lost_b || fail 'no group after one that lost a device'
expect "$work/lost.said" "group of 4 ranks: .*${address_of[lost_a]}: device 1: .* in a group of 4: .*trying again"
expect "$work/lost.said" '5 measured now'
expect "$work/lost_a.err" 'device_process_died.*device=1'
if grep -q 'device_process_died' "$work/lost_b.err"; then fail 'the other worker lost a device too'; fi
sweep after_lost compute "$work/compute_4.yaml" lost_a lost_b || fail 'no samples after a lost device'
expect "$work/after_lost.said" '4 measured now'
stop lost_a lost_b

phase 'one bad GPU of eight'
FAKE_GPUS=8 FAKE_GPU_FAIL=cudaSetDevice:1:lost@3 worker bad
expect "$work/bad.err" 'device_left_out.*cuda device 3'
expect "$work/bad.err" 'serving .*devices=7'
stop bad

phase 'an exchange that never ends: who asked goes away, and the devices are there again'
FAKE_GPUS=2 FAKE_GPU_FAIL=NcclKernel:12:hang@1 worker left
timeout -s INT -k 20 15 "$bin/neuroshard" sweep comm "$work/ranks_2.yaml" --workers "${address_of[left]}" --store "$work/left.db" >"$work/left.said" 2>&1 || true
if grep -q '5 measured now' "$work/left.said"; then fail 'no exchange hung'; fi
sweep after_left comm "$work/ranks_2.yaml" left || fail 'no group after a hung exchange'
expect "$work/after_left.said" '5 measured now'
stop left

phase 'a device that breaks in the midst of a sample'
FAKE_GPU_FAIL=PoolKernel:5:lost worker broken
sweep broken compute "$work/compute_4.yaml" broken || true
expect "$work/broken.said" 'device 0: .*unspecified launch failure'
stop broken

phase 'a kernel that never ends'
FAKE_GPU_FAIL=PoolKernel:5:hang worker kernel
timeout -s INT -k 20 15 "$bin/neuroshard" sweep compute "$work/compute_4.yaml" --workers "${address_of[kernel]}" --store "$work/kernel.db" >"$work/kernel.said" 2>&1 || true
sweep after_kernel compute "$work/compute_1.yaml" kernel || fail 'no device after a hung kernel'
expect "$work/after_kernel.said" '1 measured now'
expect "$work/kernel.err" 'did not answer in time and was ended'
stop kernel

phase 'a device without memory'
FAKE_GPU_MEMORY=2400000000 worker small
sed -i 's/max_weights_bytes.*/max_weights_bytes: 1073741824/' "$work/compute_10.yaml"
sweep small compute "$work/compute_10.yaml" small || fail 'the sweep of a small device failed'
expect "$work/small.said" '10 measured now ([1-9][0-9]* out of memory)'
stop small

phase 'the exchange that never ended'
wait $hung || fail 'no group after an exchange that timed out'
expect "$work/hung.said" 'group of 4 ranks: worker at .*: device [01]: .* in a group of 4: no answer from the other ranks within 30000 ms'
expect "$work/hung.said" '5 measured now'
for one in a b; do
  if grep -q 'device_process_died' "$work/hung_$one.err"; then fail 'a hung exchange took a device'; fi
done
stop hung_a hung_b
phase 'workers go on without what breaks'
