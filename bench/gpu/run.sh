#!/usr/bin/env bash
# Everything that only a GPU host can show, in one go and without network: the gpu tests, the kernels against the copy bandwidth of the
# same run, and a compute sweep until the time is spent.
#   bench/gpu/run.sh [--out DIR] [--minutes 9] [--bin DIR] [--backend cuda]
# Programs come from --bin, else from the bundle that this script lies in (deploy/bundle.sh), else they are built in build/gpu. Each part
# leaves NAME.txt (and NAME.json) in --out as soon as it is done, and RESULTS.md says what there is. Run again, it goes on with the parts
# that are missing and resumes the sweep; a killed run keeps what it measured. Exit 1 when a part failed.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
minutes=9 bin= out= backend=cuda
while [ $# -gt 0 ]; do
  case "$1" in
    --out | --minutes | --bin | --backend) [ $# -gt 1 ] || { echo "$1 needs a value" >&2; exit 2; } ;;&
    --out) out=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --backend) backend=$2; shift 2 ;;
    --help | -h) sed -n '2,8s/^# //p' "$0"; exit 0 ;;
    *) echo "unknown argument: $1 (try --help)" >&2; exit 2 ;;
  esac
done
[[ $minutes =~ ^[0-9]+$ ]] && [ "$minutes" -ge 1 ] || { echo "--minutes must be a whole number of at least 1, got $minutes" >&2; exit 2; }
ends=$((SECONDS + minutes * 60))
left() { local s=$((ends - SECONDS)); echo $((s > 0 ? s : 0)); }

if [ -z "$bin" ]; then
  if [ -x "$root/bin/neuroshard-worker" ]; then
    bin=$root/bin
  else
    bin=$root/build/gpu/bin
    echo "building in $root/build/gpu"
    mkdir -p "$root/build"
    { cmake --preset release -B "$root/build/gpu" -S "$root" -DNEUROSHARD_BUILD_BENCH=ON -DNEUROSHARD_BUILD_TESTS=ON &&
      cmake --build "$root/build/gpu" --parallel "$(nproc)" --target neuroshard_worker neuroshard_client bench_gpu_kernels \
        kernels_cuda_test kernels_nccl_test; } >"$root/build/gpu.log" 2>&1 || { tail -n 30 "$root/build/gpu.log"; exit 1; }
  fi
fi
# program NAME: where it is, in a bundle or a build folder; nothing if it is nowhere.
program() { for place in "$bin/$1" "$bin/../tests/$1"; do if [ -x "$place" ]; then echo "$place"; return; fi; done; }

device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$device" ] || device="no GPU"
folder=$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -cs 'a-z0-9' - | sed 's/^-//; s/-$//')
out=${out:-$root/bench/results/$folder}
mkdir -p "$out" || exit 1
{
  echo "device: $device"
  nvidia-smi --query-gpu=driver_version,memory.total,clocks.max.sm,clocks.max.mem,ecc.mode.current --format=csv 2>/dev/null
  echo "commit: $(sed -n 's/^commit: //p' "$root/BUNDLE.txt" 2>/dev/null || true)$(git -C "$root" rev-parse HEAD 2>/dev/null || true)"
  "$bin/neuroshard-worker" --version
} >"$out/environment.txt" 2>&1
failed=0

# part NAME COMMAND...: skipped if it was done before; its standard output goes to NAME.txt.
part() {
  local name=$1
  shift
  if [ -e "$out/$name.txt" ]; then echo "[$name] was done before"; return; fi
  if [ -z "$1" ]; then echo "[$name] its program is not here"; failed=1; return; fi
  [ "$(left)" -gt 10 ] || { echo "[$name] no time left"; failed=1; return; }
  echo "[$name] at most $(left) s: $*"
  local status=0
  timeout -k 10 "$(left)" "$@" >"$out/$name.part" 2>"$out/$name.err" || status=$?
  if [ "$status" -eq 0 ]; then
    mv "$out/$name.part" "$out/$name.txt"
  else
    echo "[$name] exit status $status; the last lines:"
    tail -n 5 "$out/$name.part" "$out/$name.err"
    mv "$out/$name.part" "$out/$name.failed"
    failed=1
  fi
}

part gpu_tests "$(program kernels_cuda_test)" --gtest_brief=0
part nccl_tests "$(program kernels_nccl_test)" --gtest_brief=0
part kernels "$(program gpu_kernels_bench)"

# The sweep has what time is left; every record is kept, and the next run goes on.
worker=
stop_worker() { [ -z "$worker" ] || { kill "$worker" 2>/dev/null; wait "$worker"; }; }
trap stop_worker EXIT
if [ "$(left)" -gt 20 ]; then
  "$bin/neuroshard-worker" --backend "$backend" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 >"$out/worker.out" 2>"$out/worker.err" &
  worker=$!
  address=
  for _ in $(seq 300); do
    address=$(sed -n 's/^listening on //p' "$out/worker.out")
    [ -z "$address" ] && kill -0 "$worker" 2>/dev/null || break
    sleep 0.1
  done
  if [ -n "$address" ]; then
    echo "[sweep] at most $(($(left) - 10)) s"
    timeout -s INT -k 20 $(($(left) - 10)) "$bin/neuroshard" sweep compute "$root/configs/sweeps/gpu_compute.yaml" --workers "$address" \
      --store "$out/profile.db" >"$out/sweep.txt" 2>"$out/sweep.err"
    case $? in
      0) echo "[sweep] complete" ;;
      124 | 130) echo "[sweep] cut by its time; run this again to go on" ;;
      *) tail -n 5 "$out/sweep.err"; failed=1 ;;
    esac
    tail -n 1 "$out/sweep.err" >>"$out/sweep.txt"
  else
    echo "[sweep] the worker did not start:"
    tail -n 5 "$out/worker.err"
    failed=1
  fi
fi

{
  echo "# Measured on $device"
  echo
  sed 's/^/    /' "$out/environment.txt"
  for name in gpu_tests nccl_tests kernels sweep; do
    echo
    echo "## $name"
    echo
    if [ -e "$out/$name.txt" ]; then tail -n 60 "$out/$name.txt" | sed 's/^/    /'; else echo "not done"; fi
  done
} >"$out/RESULTS.md"
echo "$out/RESULTS.md"
exit $failed
