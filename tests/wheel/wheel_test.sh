#!/usr/bin/env bash
# wheel_test.sh BIN CACHE: builds the Python package (deploy/build_wheel.sh), installs it into a fresh virtual environment beside the newest
# releases it is known to work with, plans there against BIN's planner, and runs the clients' tests. Then the wheel with BIN's programs in it: the same
# bytes twice, a tag that auditwheel agrees with, plans and commands without a server. What comes from PyPI is kept in CACHE;
# where it is not and PyPI cannot be reached, the test is skipped. The oldest releases are Debian's, with which the tests of client/python run.
set -euo pipefail

bin=$1 cache=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# googleapis-common-protos brings another version of google.rpc into the process.
newest=(protobuf==7.36.2 grpcio==1.85.1 googleapis-common-protos==1.75.0 pyarrow==26.0.1)
auditwheel=auditwheel==6.8.2
python=/usr/bin/python3
[ -x "$python" ] || python=python3

work=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# start NAME COMMAND...: starts a server and sets `server` (its process) and `address`.
start() {
  local name=$1
  shift
  : >"$work/$name.out"  # there before it is read, however late the process begins
  "$@" --listen 127.0.0.1:0 >"$work/$name.out" 2>"$work/$name.err" &
  server=$!
  address=
  for _ in $(seq 600); do
    address=$(sed -n 's/^listening on //p' "$work/$name.out")
    [ -z "$address" ] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/$name.err"
  echo "the $name does not listen"
  exit 1
}

"$python" -m venv "$work/venv"
pip=("$work/venv/bin/pip" --quiet --disable-pip-version-check)
mapfile -t needed < <("$python" -c '
import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], sep="\n")' "$root/client/python/pyproject.toml")
packages=$cache/$(sha256sum <<<"${newest[*]} ${needed[*]} $auditwheel" | cut -c1-16)
if [ ! -d "$packages" ]; then
  # Two calls: a build may need older ones.
  download=("${pip[@]}" download --retries 1 --dest "$work/packages")
  { "${download[@]}" "${needed[@]}" wheel && "${download[@]}" "${newest[@]}" "$auditwheel"; } \
    || { echo "SKIPPED: what the package needs cannot be fetched from PyPI, and $packages does not have it"; exit 77; }
  mkdir -p "$cache"
  rm -rf "$packages.part"
  cp -r "$work/packages" "$packages.part"
  mv "$packages.part" "$packages"
fi
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$packages

"$root/deploy/build_wheel.sh" --out "$work/wheel"
"${pip[@]}" install "${newest[@]}" "$work"/wheel/neuroshard-*-py3-none-any.whl
"${pip[@]}" check

start planner "$bin/neuroshard-planner" --models "$root/configs/models" --metrics 127.0.0.1:0

cd "$work"
NEUROSHARD_PLANNER=$address "$work/venv/bin/python" -I -W error - <<'PYTHON'
import asyncio
import importlib.resources

import neuroshard
from google.rpc import error_details_pb2, status_pb2  # another version of the files that errors are made of

request = {
    "tables": [{"name": "users", "num_embeddings": 400000, "embedding_dim": 64, "pooling_factor": 3}],
    "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 33}]},
}


async def planned():
    async with neuroshard.aio.PlannerClient() as planner:
        return await planner.plan(request)


with neuroshard.PlannerClient() as planner:
    response = planner.plan(request)
    assert response.plan == asyncio.run(planned()).plan
    assert planner.evaluate(request, response).legal
    try:
        planner.plan({**request, "tables": []})
        raise SystemExit("a request without tables was planned")
    except neuroshard.InvalidRequest as error:
        assert [fault.field for fault in error.violations] == ["tables"], error
assert importlib.resources.files("neuroshard").joinpath("py.typed").is_file()
print(f"planned: {response.cost.embedding_cost_ms:.3f} ms with {response.cost_model.name}")
PYTHON

PYTHONSAFEPATH=1 PYTHONPATH=$root/client/python/testing "$work/venv/bin/python" -B "$root/client/python/neuroshard/client_test.py" "$bin/neuroshard-planner" \
  2>"$work/log" || { cat "$work/log"; exit 1; }

"$work/venv/bin/neuroshard-convert-checkpoints" --models "$root/client/python/testdata" --out "$work/models/converted/1"
test -s "$work/models/converted/1/model.yaml"
# This environment has no NumPy.
if "$work/venv/bin/neuroshard-dataset-statistics" --help 2>"$work/numpy"; then exit 1; fi
grep -q 'neuroshard\[dataset\]' "$work/numpy"

# A store of both kinds, and what is in its Parquet files against its CSV.
"$work/venv/bin/python" -B - "$root/tests/faults" <<'PYTHON'
import pathlib
import sys

sys.path.append(sys.argv[1])
from setting import write_cost_data

write_cost_data(pathlib.Path("costs"), 1)
PYTHON
"$bin/neuroshard-pretrain" import-cost-data --compute costs/compute --comm costs/comm --store profile.db >/dev/null
for kind in compute comm; do
  PATH=$bin:$PATH "$work/venv/bin/neuroshard-parquet" --store profile.db --kind $kind --out $kind.parquet >/dev/null
  "$bin/neuroshard" store export --store profile.db --kind $kind --out $kind.csv
  "$work/venv/bin/python" -I - $kind <<'PYTHON'
import csv
import sys

import pyarrow.parquet

rows = list(csv.DictReader(open(f"{sys.argv[1]}.csv", newline="")))
found = pyarrow.parquet.read_table(f"{sys.argv[1]}.parquet")
assert found.num_rows == len(rows) > 0 and found.column_names == list(rows[0])
read = {"string": str, "int64": int, "uint64": int, "double": float, "bool": lambda text: text == "1"}
for name in found.column_names:
    kind = read[str(found.schema.field(name).type)]
    assert found[name].to_pylist() == [kind(row[name]) if row[name] else None for row in rows], name
PYTHON
done
if PATH=$bin:$PATH "$work/venv/bin/neuroshard-parquet" --store none.db --out none.parquet 2>/dev/null; then exit 1; fi
[ ! -e none.parquet ]

# The programs in a wheel.
kill "$server"
server=
"$root/deploy/build_wheel.sh" --out "$work/with_programs" --programs "$bin" >/dev/null
(umask 027 && "$root/deploy/build_wheel.sh" --out "$work/again" --programs "$bin" >/dev/null)
wheel=$(echo "$work"/with_programs/neuroshard-*-manylinux*.whl)
cmp "$wheel" "$work/again/$(basename "$wheel")" || { echo "the same programs made another wheel"; exit 1; }
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" --quiet --disable-pip-version-check install "$auditwheel"
tag=$(basename "$wheel" .whl | sed 's/.*-//')
"$work/tools/bin/auditwheel" show "$wheel" | tr '\n' ' ' | grep -q "following platform tag: \"$tag\"" || { echo "auditwheel does not find $tag"; exit 1; }
"${pip[@]}" install --force-reinstall --no-deps "$wheel"

# No server, and no program of this machine: the environment is empty.
mkdir "$work/tmp"
clean=(env -i "TMPDIR=$work/tmp" "PATH=$work/venv/bin")
"${clean[@]}" python -I -W error - <<'PYTHON'
import neuroshard

model = [{"name": "users", "num_embeddings": 400000, "embedding_dim": 64, "pooling_factor": 3}]
answer = neuroshard.PlannerClient().plan({"tables": model, "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 33}]}, "cost_model": {"name": "cpu-amd-epyc"}})
print(f"planned without a server: {answer.cost.embedding_cost_ms:.3f} ms")
PYTHON
"${clean[@]}" neuroshard plan "$root/configs/workloads/quickstart_2x2gib.yaml" >"$work/plan" 2>"$work/plan.err"
grep -q '^cost [0-9.]* ms' "$work/plan"
grep -q 'asking the embedded planner unix:' "$work/plan.err"
"${clean[@]}" neuroshard plan "$root/configs/workloads/quickstart_2x2gib.yaml" --format json --out "$work/plan.json" 2>/dev/null
"${clean[@]}" neuroshard report "$work/plan.json" --out "$work/report.html"
grep -q '<html' "$work/report.html"
"${clean[@]}" neuroshard-planner --version
start worker "${clean[@]}" python -m neuroshard.worker --metrics "" --cpu-devices 1
cat >"$work/sweep.yaml" <<YAML
kind: compute
num_samples: 2
tables: $root/configs/workloads/dlrm_2021_tables856.csv
max_tables: 2
max_weights_bytes: 16777216
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}
YAML
"${clean[@]}" neuroshard sweep compute "$work/sweep.yaml" --workers "$address" --store "$work/swept.db"
test -s "$work/swept.db"
# The last planner ends with the last command.
for _ in $(seq 600); do
  [ -z "$(find "$work/tmp" -type s)" ] && break
  sleep 0.1
done
[ -z "$(find "$work/tmp" -type s)" ] || { echo "a planner is left"; exit 1; }

echo "the wheel works in a fresh environment"
