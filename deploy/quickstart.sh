#!/usr/bin/env bash
# From a fresh Debian 12 machine to a validated sharding plan, in one go: install, build, start a planner and two CPU workers, measure,
# pre-train, plan real workloads, run a plan for real, stop everything. Everything it makes is below build/ and .quickstart/ of
# this checkout; running it again continues where it stopped (a sweep that was cut resumes). --clean removes .quickstart/ first.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
work=.quickstart
case "${1:-}" in
  --clean) rm -rf "$work" ;;
  --help | -h) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
  "") ;;
  *) echo "unknown argument: $1 (try --help)" >&2; exit 2 ;;
esac
mkdir -p "$work/logs"
: >"$work/pids"

started=$SECONDS
step() { printf '\n\033[1m[%4d s] %s\033[0m\n' $((SECONDS - started)) "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

stop_all() {
  local pid
  while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$work/pids"
  while read -r pid; do wait "$pid" 2>/dev/null || true; done <"$work/pids"
  : >"$work/pids"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

# start NAME COMMAND...: runs a server in the background, waits until it serves and sets $address.
start() {
  local name=$1 log="$work/logs/$1"
  shift
  : >"$log.out"  # there before it is read, however late the process begins
  "$@" >"$log.out" 2>"$log.err" &
  local pid=$!
  echo "$pid" >>"$work/pids"
  for _ in $(seq 300); do
    address=$(sed -n 's/^listening on //p' "$log.out")
    if [ -n "$address" ]; then
      echo "$name is listening on $address (log: $log.err)"
      return
    fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "$name did not start; its log:" >&2
  tail -n 20 "$log.err" >&2
  exit 1
}

step "Debian packages"
deploy/install_packages.sh

step "Build (release, without tests; log: build/release.log)"
mkdir -p build
export CCACHE_DIR="$root/build/ccache"
cmake --preset release >build/release.log 2>&1 || { tail -n 30 build/release.log; exit 1; }
cmake --build --preset release --parallel "$(nproc)" >>build/release.log 2>&1 || { tail -n 30 build/release.log; exit 1; }
bin=build/release/bin
ls "$bin"

step "A planner that serves the model shipped with the project, and two CPU workers with four devices each"
mkdir -p "$work/models"
cp -r configs/models/. "$work/models/"
start planner "$bin/neuroshard-planner" --models "$work/models" --listen 127.0.0.1:0 --metrics 127.0.0.1:0
planner=$address
start worker-1 "$bin/neuroshard-worker" --cpu-devices 4 --listen 127.0.0.1:0 --metrics 127.0.0.1:0
worker_1=$address
start worker-2 "$bin/neuroshard-worker" --cpu-devices 4 --listen 127.0.0.1:0 --metrics 127.0.0.1:0
workers=$worker_1,$address

step "Measure this machine: embedding lookups, then all-to-alls between the two worker processes"
store=$work/profile.db
show "$bin/neuroshard" sweep compute configs/sweeps/quickstart_compute.yaml --workers "$workers" --devices-per-worker 1 --store "$store"
show "$bin/neuroshard" sweep comm configs/sweeps/quickstart_comm.yaml --workers "$workers" --store "$store"

step "Pre-train the cost models on these measurements; the running planner picks them up by itself"
if [ ! -e "$work/models/quickstart-cpu/1/model.yaml" ]; then
  show "$bin/neuroshard-pretrain" train --store "$store" --config configs/pretrain.yaml --out "$work/models/quickstart-cpu/1"
fi
for _ in $(seq 100); do
  "$bin/neuroshard" models list --planner "$planner" | grep -q quickstart-cpu && break
  sleep 0.2
done
show "$bin/neuroshard" models list --planner "$planner"

step "Plans for public workloads: MLPerf DLRM-DCNv2, distributed-embeddings Tiny and Small, each on 8 H100 of 80 GB, priced by the CPU's model"
workloads=(mlperf_dlrm_dcnv2_8x80gb distributed_embeddings_tiny_8 distributed_embeddings_small_8)
strategies=(neuroshard random size_greedy dim_greedy lookup_greedy size_lookup_greedy)
for workload in "${workloads[@]}"; do
  show "$bin/neuroshard" plan "configs/workloads/$workload.yaml" --model quickstart-cpu --planner "$planner"
done

step "The same workloads with every strategy: predicted cost"
# cost WORKLOAD STRATEGY: the predicted cost of the plan, "-" when the strategy finds none.
cost() {
  local text
  text=$("$bin/neuroshard" plan "configs/workloads/$1.yaml" --strategy "$2" --model quickstart-cpu --planner "$planner" 2>/dev/null) || true
  text=$(sed -n 's/^cost \([0-9.]* ms\),.*/\1/p' <<<"$text")
  echo "${text:--}"
}
printf '%-20s' strategy && printf '%34s' "${workloads[@]}" && echo
for strategy in "${strategies[@]}"; do
  printf '%-20s' "$strategy"
  for workload in "${workloads[@]}"; do printf '%34s' "$(cost "$workload" "$strategy")"; done
  echo
done

step "The first benchmark tasks of NeuroShard with every strategy: predicted cost (ms)"
show "$bin/neuroshard" eval-tasks --tables configs/workloads/dlrm_2021_tables856.csv --tasks configs/workloads/tasks_4gpu_maxdim128.txt \
  --devices 4 --memory-gib 4 --model quickstart-cpu --limit 10 --planner "$planner" \
  --strategy "$(IFS=,; echo "${strategies[*]}")"

step "One plan for real: predicted beside measured"
request=configs/workloads/quickstart_2x2gib.yaml
"$bin/neuroshard" plan "$request" --model quickstart-cpu --planner "$planner" --format json --out "$work/validated.plan.json"
show "$bin/neuroshard" validate "$request" "$work/validated.plan.json" --workers "$workers"

step "Stop everything"
stop_all
cat <<EOF
Done in $((SECONDS - started)) s. What is left: $work/ (measurements, models, plans, logs) and build/.
Next: README.md, "A first plan".
EOF
