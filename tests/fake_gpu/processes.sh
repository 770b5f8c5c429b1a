# Sourced by the tests of this folder, which set $fake and $bin: servers on ports that the system chose, in a folder $work that is removed with
# them, and what is expected of what they say. Nothing here measures a GPU, and everything measured says so.
# shellcheck shell=bash disable=SC2034,SC2154
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
name='Fake GPU that runs on the CPU'
export LD_LIBRARY_PATH=$fake/lib FAKE_NCCL_DIR=$work
declare -A pid_of address_of
trap 'kill "${pid_of[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

fail() { echo "$1" >&2; tail -n 200 "$work"/*.said "$work"/*.err "$work/out/log.txt" >&2 2>/dev/null || true; exit 1; }
expect() { grep -q -e "$2" "$1" || fail "no '$2' in $1"; }
phase() { echo "[$SECONDS s] $1"; }

# start NAME COMMAND...: its address is ${address_of[NAME]}.
start() {
  local as=$1 tries=0
  shift
  : >"$work/$as.out"  # there before it is read, however late the process begins
  "$@" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 >"$work/$as.out" 2>"$work/$as.err" &
  pid_of[$as]=$!
  address_of[$as]=''
  while [ -z "${address_of[$as]}" ]; do
    if ! kill -0 "${pid_of[$as]}" 2>/dev/null || [ $((tries += 1)) -gt 600 ]; then fail "$as did not start"; fi
    sleep 0.05
    address_of[$as]=$(sed -n 's/^listening on //p' "$work/$as.out")
  done
}
worker() { start "$1" "$fake/bin/neuroshard-worker" --backend cuda; }
stop() {
  local as
  for as in "$@"; do
    kill "${pid_of[$as]}" || fail "$as had ended"
    wait "${pid_of[$as]}" || fail "$as ended badly"
    unset "pid_of[$as]"
  done
}

# sweep AS KIND FILE WORKER...: into AS.db; what it says is in AS.said.
sweep() {
  local as=$1 kind=$2 file=$3 one addresses=()
  shift 3
  for one in "$@"; do addresses+=(--workers "${address_of[$one]}"); done
  "$bin/neuroshard" sweep "$kind" "$file" "${addresses[@]}" --store "$work/$as.db" >"$work/$as.said" 2>&1
}

# Small enough for the fakes.
cat >"$work/compute.yaml" <<YAML
kind: compute
num_samples: 40
tables: $root/configs/workloads/dlrm_2021_tables856.csv
max_tables: 3
max_weights_bytes: 16777216
dims: [16, 8, 4]
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}
YAML
