#!/usr/bin/env bash
# fbgemm_test.sh BIN PYTHON: bench/gpu/run.sh on the CPU with a python3 that has FBGEMM (bench/pytorch/setup_environment.sh): FBGEMM runs the
# samples of the sweep, and its times and ranks stand beside ours.
set -euo pipefail

bin=$1 python=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1" >&2; cat "$work/said" "$work/out/log.txt" >&2 2>/dev/null || true; exit 1; }

# Not a link, by which an environment's python3 would not find its packages.
mkdir "$work/path"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/path/python3"
chmod +x "$work/path/python3"
mkdir "$work/sweeps"
cat >"$work/sweeps/gpu_compute.yaml" <<YAML
kind: compute
num_samples: 6
tables: $root/configs/workloads/dlrm_2021_tables856.csv
max_tables: 3
max_weights_bytes: 16777216
dims: [64, 16, 4]
batch_size: 256
weighted: 0.25
optimizers: [sgd, rowwise_adagrad]
settings: {warmup_iterations: 1, min_iterations: 3, max_iterations: 5}
YAML
PATH=$work/path:$PATH "$root/bench/gpu/run.sh" --bin "$bin" --out "$work/out" --backend cpu --minutes 5 --only sweep,fbgemm --sweeps "$work/sweeps" \
  >"$work/said" 2>&1 || fail "the run failed"
grep -q '^| fbgemm | done' "$work/out/RESULTS.md" || fail "FBGEMM did not run"
grep -qE '^\| backward and update \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| -?[0-9.]+ \|' "$work/out/RESULTS.md" || fail "no table of FBGEMM's times"

gunzip "$work/out/profile.db.gz"
PYTHONPATH=$root/bench/gpu "$python" - "$work/out" <<'PYTHON' || fail "what was kept is wrong"
import json, pathlib, random, sqlite3, sys
import fbgemm_tbe

out = pathlib.Path(sys.argv[1])
kept = json.loads((out / "peers.json").read_text())["fbgemm"]
of_sweep = dict(sqlite3.connect(out / "profile.db").execute("SELECT sample_id, forward_ms FROM compute_samples JOIN compute_measurements USING (sample)"))
assert {s["sample_id"]: s["ours_ms"]["forward"] for s in kept["samples"]} == of_sweep and len(of_sweep) == 6, kept
assert all(0 < s["fbgemm_ms"][part] < 1e4 for s in kept["samples"] for part in ("forward", "backward")), kept

# Kendall's tau-b, by its definition: concordant and discordant pairs, without those that are equal on a side.
for trial in range(200):
    rng = random.Random(trial)
    n = rng.randint(2, 8)
    xs, ys = ([rng.randint(0, 5) for _ in range(n)] for _ in range(2))
    pairs = [((xs[i] > xs[j]) - (xs[i] < xs[j]), (ys[i] > ys[j]) - (ys[i] < ys[j])) for i in range(n) for j in range(i)]
    of_x, of_y = (sum(p[side] != 0 for p in pairs) for side in range(2))
    tau = fbgemm_tbe.kendall_tau(xs, ys)
    assert tau != tau if of_x * of_y == 0 else abs(tau - sum(a * b for a, b in pairs) / (of_x * of_y) ** 0.5) < 1e-12, (xs, ys, tau)
PYTHON
echo "FBGEMM runs the samples of a sweep"
