#!/usr/bin/env bash
# host_memory_sweep_test.sh FAKE_GPU_FOLDER BIN PYTHON: a sweep of tables in host memory, by a worker of a fake GPU and by one of a CPU. The
# same ids go through the same caches, so both have missed the same rows; and host memory that cannot be pinned is out of memory in a record.
set -euo pipefail

fake=$1 bin=$2 python=$3
# shellcheck source=tests/fake_gpu/processes.sh
. "$(dirname "${BASH_SOURCE[0]}")/processes.sh"

{
  echo "index,row,pooling_factor,$(seq -s, -f 'bin_%g' 0 16)"
  for table in 0,900,4 1,2500,6.5 2,400,9; do echo "$table,0.6,0.2,0.15,0.05,0,0,0,0,0,0,0,0,0,0,0,0,0"; done
} >"$work/tables.csv"
cat >"$work/tiered.yaml" <<'YAML'
kind: compute
num_samples: 12
tables: tables.csv
max_tables: 3
dims: [32, 8]
batch_size: 64
optimizers: [rowwise_adagrad, adam]
compute_kernels: [fused, fused_uvm, fused_uvm_caching, fused_uvm_caching]
cache_load_factors: [0.02, 0.2, 1]
settings: {warmup_iterations: 1, min_iterations: 4, max_iterations: 4}
YAML

worker gpu
start cpu "$bin/neuroshard-worker" --backend cpu --cpu-devices 1
# The gate's, then that of the first sample with rows in host memory.
FAKE_GPU_FAIL=cudaHostAlloc:2:2 worker unpinned
for one in gpu cpu unpinned; do
  sweep "$one" compute "$work/tiered.yaml" "$one" || fail "the sweep of $one failed"
  stop "$one"
done

"$python" - "$work" <<'PY' || fail "the records differ"
import json
import sqlite3
import sys


def records(name):
    rows = sqlite3.connect(f"{sys.argv[1]}/{name}.db").execute(
        "SELECT shard_kernels, outcome, detail, environment FROM compute_samples JOIN compute_measurements USING (sample) "
        "JOIN environments USING (environment_id) ORDER BY position").fetchall()
    return [(kernels, outcome, detail, json.loads(environment)["properties"]) for kernels, outcome, detail, environment in rows]


def cache_rows(name):
    return [(kernels, outcome, {key: value for key, value in properties.items() if key.endswith("_rows_per_batch")})
            for kernels, outcome, _, properties in records(name)]


gpu, cpu = cache_rows("gpu"), cache_rows("cpu")
assert gpu == cpu, f"{gpu}\n{cpu}"
assert len(gpu) == 12 and all(outcome == "ok" for _, outcome, _ in gpu), gpu
missed = [float(rows["missed_rows_per_batch"]) for kernels, _, rows in gpu if "fused_uvm_caching" in kernels]
assert len(missed) > 2 and max(missed) > 0, gpu
assert any("fused_uvm" in kernels and not rows for kernels, _, rows in gpu), gpu
short = [detail for _, outcome, detail, _ in records("unpinned") if outcome == "out_of_memory"]
assert len(short) == 1 and "in host memory" in short[0], short
PY
echo "a fake GPU's caches of rows in host memory did what a CPU's did"
