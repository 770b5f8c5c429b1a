#!/usr/bin/env bash
# Everything that only a GPU host can show, in one go, without network, compiler or Python packages (bench/gpu/README.md):
#   bench/gpu/run.sh [--out DIR] [--minutes 9] [--only PART,...] [--bin DIR] [--backend cuda|cpu] [--sweep FILE] [--rehearse]
# Parts, in this order: gpu_tests nccl_tests memcheck racecheck synccheck kernels torch collectives ranks sweep model fbgemm. One that cannot
# run here says why and is left out. Programs come from --bin, else from the bundle that this script lies in, else they are built in build/gpu.
# --out has at most eight files: RESULTS.md and results.json (written anew with every part), kernels.json, peers.json, profile.db (the sweep)
# and profile.db.gz (the same, once a minute), model.tar.gz (trained on it), log.txt. Run again with the same --out, it goes on with what is
# missing and resumes the sweep; a killed run keeps what it measured. --rehearse: whether all of it runs, on shapes so small that no time means
# anything (tests/fake_gpu).
# Exit 0: all that could run went well; 1: a part failed or was cut (the sweep may be), or --out cannot be written to; 2: usage; 3: no GPU,
# nothing was done.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# The most seconds of each part; of the sweep the least, it gets what the others leave. Together at most ten minutes (tests/gpu_run).
limits=(gpu_tests:60 nccl_tests:40 memcheck:30 racecheck:30 synccheck:30 kernels:90 torch:50 collectives:40 ranks:30 sweep:60 model:50 fbgemm:60)
all_parts=("${limits[@]%:*}")
declare -A limit
for part in "${limits[@]}"; do limit[${part%:*}]=${part#*:}; done
rehearse=no minutes=9 bin='' out='' backend=cuda only='' sweep=$root/configs/sweeps/gpu_compute.yaml
usage() { echo "$1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --out | --minutes | --only | --bin | --backend | --sweep) [ $# -gt 1 ] || usage "$1 needs a value" ;;&
    --out) out=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --only) only=${2//,/ }; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --backend) backend=$2; shift 2 ;;
    --sweep) sweep=$2; shift 2 ;;
    --rehearse) rehearse=yes; shift ;;
    --help | -h) sed -n '2,12s/^# //p' "$0"; exit 0 ;;
    *) usage "unknown argument: $1 (try --help)" ;;
  esac
done
[[ $minutes =~ ^[1-9][0-9]*$ ]] || usage "--minutes must be a whole number of at least 1, got $minutes"
[[ $backend =~ ^(cuda|cpu)$ ]] || usage "--backend must be cuda or cpu, got $backend"
[ -r "$sweep" ] || usage "--sweep: cannot read $sweep"
for part in $only; do [[ " ${all_parts[*]} " == *" $part "* ]] || usage "--only: unknown part $part; there are: ${all_parts[*]}"; done
ends=$((SECONDS + minutes * 60))
left() { local s=$((ends - SECONDS)); echo $((s > 0 ? s : 0)); }

# Where NVIDIA's tools and libraries are on hosts that do not say so.
PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
known_library() {
  local folder search_path=${LD_LIBRARY_PATH:-}
  grep -qF "$1" <<<"$(ldconfig -p 2>/dev/null)" && return  # not a pipe, which grep would break off
  while read -r folder; do if [ -e "$folder/$1" ]; then return; fi; done <<<"${search_path//:/$'\n'}"
  return 1
}
add_library() { # NAME FOLDER...: the first folder that has it, where the loader finds none by itself
  local name=$1 folder
  shift
  known_library "$name" && return
  for folder in "$@"; do
    if [ -e "$folder/$name" ]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; return; fi
  done
}
if [ "$backend" = cuda ]; then
  add_library libcuda.so.1 /usr/local/nvidia/lib64 /usr/local/nvidia/lib
  known_library libnccl.so.2 || python_nccl=$(timeout -s KILL 20 python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null)
  add_library libnccl.so.2 "${python_nccl:-/none}" /usr/local/cuda/lib64
fi

smi() { timeout -s KILL 20 nvidia-smi "$@" 2>/dev/null; }
gpu=no
if compgen -G '/dev/nvidia[0-9]*' >/dev/null || grep -q '^GPU' <<<"$(smi -L)"; then gpu=yes; fi
if [ "$backend" = cuda ] && [ "$gpu" = no ]; then
  echo "no NVIDIA GPU on this host (nvidia-smi lists none, there is no /dev/nvidia0): nothing was measured." >&2
  echo "--backend cpu runs what needs none: the sweep, and collectives between two workers" >&2
  exit 3
fi

if [ -z "$bin" ]; then
  if [ -x "$root/bin/neuroshard-worker" ]; then
    bin=$root/bin
  else
    bin=$root/build/gpu/bin
    echo "building in $root/build/gpu"
    mkdir -p "$root/build"
    { cmake --preset release -B "$root/build/gpu" -S "$root" -DNEUROSHARD_BUILD_BENCH=ON -DNEUROSHARD_BUILD_TESTS=ON -DNEUROSHARD_CUDA_12=ON &&
      cmake --build "$root/build/gpu" --parallel "$(nproc)" --target neuroshard_worker neuroshard_client neuroshard_pretrain bench_gpu_kernels \
        bench_gpu_collectives kernels_cuda_test kernels_nccl_test; } >"$root/build/gpu.log" 2>&1 || { tail -n 30 "$root/build/gpu.log"; exit 1; }
  fi
fi
# program NAME: where it is, in a bundle or a build folder; nothing if it is nowhere.
program() { for place in "$bin/$1" "$bin/../tests/$1"; do if [ -x "$place" ]; then echo "$place"; return; fi; done; }

device=cpu
if [ "$backend" = cuda ]; then
  device=$(smi --query-gpu=name --format=csv,noheader | head -n 1)
  device=${device:-unnamed GPU}
fi
folder=$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -cs 'a-z0-9' - | sed 's/^-//; s/-$//')
out=${out:-$root/bench/results/$folder}
mkdir -p "$out" && out=$(cd "$out" && pwd) || { echo "cannot make the folder $out" >&2; exit 1; }
log=$out/log.txt
scratch=$(mktemp -d) || exit 1
rm -f "$out"/*.part "$out"/*.part.*  # of a run that was killed
failed=0

# The log is what a run knows of itself: without it what follows would be lost.
unwritable() {
  echo "$out cannot be written to, it is full or read-only: stopped. What is in it is kept; run again, it goes on" >&2
  report() { :; }
  exit 1
}
note() { echo "$1" >>"$log" || unwritable; }
# put FILE: what comes in, whole or not at all.
put() {
  if cat >"$out/$1.part" && mv "$out/$1.part" "$out/$1"; then return; fi
  rm -f "$out/$1.part"
  return 1
}

# The log has "== PART: begin", the part's output, "== PART: STATUS in N s"; STATUS is done, failed, cut or why it was left out. Without one the
# part is under way, or was when the run was killed.
all_outcomes() {
  awk 'match($0, /^== [a-z_]+: /) { text = substr($0, RLENGTH + 1); of[substr($0, 4, RLENGTH - 5)] = text == "begin" ? "begun, not ended" : text }
    END { for (part in of) print part "\t" of[part] }' "$log"
}
outcome() { all_outcomes | sed -n "s/^$1\t//p"; }
output() { awk -v p="== $1: " 'index($0, p "begin") == 1 { text = ""; on = 1; next } index($0, p) == 1 { on = 0 } on { text = text $0 "\n" } END { printf "%s", text }' "$log"; }
json_text() { # what programs and devices call themselves: no control characters
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

results_md() {
  local part
  echo "# Measured on $device"
  echo
  [ "$rehearse" = no ] || printf 'A rehearsal: its times mean nothing.\n\n'
  echo "Driver ${driver:-none}, commit ${commit:-unknown}, by \`bench/gpu/run.sh\`; what was printed is in log.txt."
  echo
  echo "| part | outcome |"
  echo "|---|---|"
  for part in "${all_parts[@]}"; do echo "| $part | ${outcomes[$part]:-not done} |"; done
  for part in kernels torch collectives fbgemm; do
    case ${outcomes[$part]:-} in
      done*) printf '\n## %s\n\n' "$part" ;;
      cut* | failed*) printf '\n## %s, which %s\n\n' "$part" "${outcomes[$part]/cut/was cut}" ;;
      *) continue ;;
    esac
    output "$part" | sed -n '/^[A-Zt|]/p; /^$/p'
  done
  printf '\n## Tests\n\n'
  for part in gpu_tests nccl_tests memcheck racecheck synccheck; do
    output "$part" | grep -E '^\[  (PASSED|FAILED) |^\[  SKIPPED .*listed|^=+ .*SUMMARY' | grep -v 'ms)$' | sed "s/^/    $part: /"
    case ${outcomes[$part]:-} in
      cut* | failed* | begun*) output "$part" | grep '^\[ RUN' | tail -n 1 | sed "s/^/    $part, the last that began: /" ;;
    esac
  done
  printf '\n## Sweep\n\n'
  for part in ranks sweep; do output "$part" | grep -E '^[a-z ]+ [0-9]+/[0-9]+' | tail -n 1 | sed "s/^/    $part: /"; done
}
results_json() {
  local part comma=
  printf '{\n  "device": %s,\n  "driver": %s,\n  "commit": %s,\n  "command": "bench/gpu/run.sh",\n  "parts": {' \
    "$(json_text "$device")" "$(json_text "${driver:-}")" "$(json_text "${commit:-}")"
  for part in "${all_parts[@]}"; do
    printf '%s\n    "%s": %s' "$comma" "$part" "$(json_text "${outcomes[$part]:-}")"
    comma=,
  done
  printf '\n  }\n}\n'
}
report() {
  local part text
  local -A outcomes
  while IFS=$'\t' read -r part text; do outcomes[$part]=$text; done < <(all_outcomes)
  put RESULTS.md < <(results_md) && put results.json < <(results_json)
}

# What is started ends with this script, even if that is killed; the sweep's client and workers would go on otherwise.
tied=()
if setpriv --pdeathsig TERM true 2>/dev/null; then tied=(setpriv --pdeathsig TERM); fi
children=()
stop_children() {
  local child tries=120  # timeout kills after 100
  for child in "${children[@]}"; do kill "$child" 2>/dev/null; done
  for child in "${children[@]}"; do
    while kill -0 "$child" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
    kill -9 "$child" 2>/dev/null
    wait "$child" 2>/dev/null
  done
  children=()
}
finish() {
  local status=$?
  stop_children
  if ! report && [ "$status" -eq 0 ]; then
    echo "$out cannot be written to" >&2
    status=1
  fi
  rm -rf "$scratch"
  exit "$status"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

wanted() { [ -z "$only" ] || [[ " $only " == *" $1 "* ]]; }
leave_out() {
  ! wanted "$1" || [[ $(outcome "$1") == done* ]] && return
  note "== $1: left out: $2"
  echo "[$1] left out: $2"
}
begin_part() {
  echo "[$1] at most $2 s"
  note "== $1: begin"
  report || unwritable
}
end_part() {
  note "== $1: $2"
  echo "[$1] $2"
  report || unwritable
}
# fail_part NAME HOW: what follows runs all the same.
fail_part() {
  failed=1
  end_part "$1" "$2"
  tail -n 6 "$log" | head -n 5
}

# Tests that need what is not here pass without having tested anything.
mostly_skipped() { output "$1" | awk '/^\[       OK /{ ok++ } /^\[  SKIPPED .*ms\)$/{ skipped++ } END { exit !(skipped > ok) }'; }

keep=10  # seconds that a part leaves to those after it
# time_for NAME MOST_SECONDS: sets $most to what there is of it. False: the part is not to run.
time_for() {
  wanted "$1" || return 1
  if [[ $(outcome "$1") == done* ]]; then
    echo "[$1] was done before"
    return 1
  fi
  most=$(($2 < $(left) - keep ? $2 : $(left) - keep))
  [ "$most" -gt 5 ] || { leave_out "$1" "no time left"; return 1; }
}

# part NAME COMMAND...: unless it was done before.
part() {
  local name=$1 status=0 began=$SECONDS took most
  shift
  if wanted "$name" && [ -z "${1:-}" ]; then leave_out "$name" "its program is not here"; return 0; fi
  time_for "$name" "${limit[$name]}" || return 0
  begin_part "$name" "$most"
  "${tied[@]}" timeout -k 10 "$most" "$@" >>"$log" 2>&1 &
  children=($!)
  wait $! || status=$?
  children=()
  took=$((SECONDS - began))
  if [ $status -eq 0 ] && mostly_skipped "$name"; then
    end_part "$name" "left out: $(output "$name" | sed -n 's/^SKIPPED, NOT TESTED: //p' | head -n 1)"
  elif [ $status -eq 0 ]; then
    end_part "$name" "done in $took s"
  elif [[ $status =~ ^(124|137)$ ]] && [ $took -ge "$most" ]; then
    fail_part "$name" "cut after $took s"
  else  # 137 too: whoever is short of memory ends a program by it
    fail_part "$name" "failed after $took s, exit status $status"
  fi
}

# start_worker NAME UNTIL [VARIABLE=VALUE]: adds its address to $workers.
start_worker() {
  local options=() variables=() address=''
  [ "$backend" = cuda ] || options=(--cpu-devices 1)
  [ $# -lt 3 ] || variables=("$3")
  "${tied[@]}" env "${variables[@]}" "$bin/neuroshard-worker" --backend "$backend" "${options[@]}" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 \
    >"$scratch/$1.out" 2>>"$log" &
  children+=($!)
  while [ -z "$address" ]; do
    kill -0 "${children[-1]}" 2>/dev/null && [ $SECONDS -lt "$2" ] || return 1
    sleep 0.1
    address=$(sed -n 's/^listening on //p' "$scratch/$1.out")
  done
  workers+=(--workers "$address")
}

# keep_copy: all of profile.db in profile.db.gz, also of what is not in the file itself yet.
keep_copy() {
  local whole=$scratch/whole.db
  rm -f "$whole"
  [ -s "$out/profile.db" ] || return 0
  timeout -s KILL 20 "$bin/neuroshard" store backup --store "$out/profile.db" "$whole" >>"$log" 2>&1 && put profile.db.gz < <(gzip -c "$whole")
}

# sweep_part NAME KIND FILE STORE MOST_SECONDS WORKER...: starts the workers, which may have a variable: "a:NCCL_HOSTID=a".
sweep_part() {
  local name=$1 kind=$2 file=$3 store=$4 status=124 began=$SECONDS until slice worker most
  time_for "$name" "$5" || return 0
  shift 5
  until=$((SECONDS + most))
  begin_part "$name" "$most"
  workers=()
  for worker in "$@"; do
    if [[ $worker == *:* ]]; then worker="${worker%%:*} $until ${worker#*:}"; else worker+=" $until"; fi
    # shellcheck disable=SC2086  # its words
    if ! start_worker $worker; then
      stop_children
      fail_part "$name" "failed: a worker did not start"
      return 0
    fi
  done
  # In slices, so that there is a small copy of the store whenever this is killed.
  while [[ $status =~ ^(124|130)$ ]] && [ $((until - SECONDS)) -gt 5 ]; do
    slice=$((until - SECONDS < 75 ? until - SECONDS : 60))
    status=0
    "${tied[@]}" timeout -s INT -k 10 "$slice" "$bin/neuroshard" sweep "$kind" "$file" "${workers[@]}" --store "$store" >>"$log" 2>&1 &
    children+=($!)
    wait $! || status=$?
    unset 'children[-1]'
    if [ "$store" = "$out/profile.db" ] && ! keep_copy; then
      failed=1
      echo "[$name] there is no whole copy of profile.db, log.txt says why" >&2
    fi
  done
  stop_children
  rm -f "$store-shm"
  [ -s "$store-wal" ] || rm -f "$store-wal"  # who only reads leaves it, empty
  case $status in
    0) end_part "$name" "done in $((SECONDS - began)) s" ;;
    124 | 130) end_part "$name" "cut after $((SECONDS - began)) s; run again, it goes on" ;;
    *) fail_part "$name" "failed after $((SECONDS - began)) s, exit status $status" ;;
  esac
}

driver=$(smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
commit=$(sed -n 's/^commit: //p' "$root/BUNDLE.txt" 2>/dev/null)
commit=${commit:-$(git -C "$root" rev-parse HEAD 2>/dev/null)}
note "== run of $(date -u +%FT%TZ), commit ${commit:-unknown}, $minutes minutes"
{
  smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,ecc.mode.current,temperature.gpu --format=csv
  timeout -s KILL 10 "$bin/neuroshard-worker" --version
} >>"$log" 2>&1
report || unwritable
small=() tiny=() few=()
if [ "$rehearse" = yes ]; then small=(--small) tiny=(--tiny) few=(--gtest_filter=CudaDeviceTest.*-*Times*:*LargeTables*); fi
# A third of the time is the sweep's and that of what is made of it.
if wanted sweep && [[ $(outcome sweep) != done* ]]; then keep=$((minutes * 20)); fi
if [ "$gpu" = yes ] && [ "$backend" = cuda ]; then
  tests=$(program kernels_cuda_test)
  part gpu_tests "$tests" "${few[@]}"
  part nccl_tests "$(program kernels_nccl_test)"
  # The sanitizers see every kernel once (tests/fake_gpu/every_kernel_test.sh).
  sanitizer=$(command -v compute-sanitizer || ls /opt/nvidia/nsight-compute/*/host/*/sanitizer/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1)
  for name in memcheck racecheck synccheck; do
    if [ -n "$sanitizer" ]; then
      part $name "${tests:+$sanitizer}" --tool $name --error-exitcode 99 "$tests" --gtest_filter=CudaDeviceTest.EveryKernelOnce --gtest_brief=1
    else
      leave_out $name "there is no compute-sanitizer on the PATH"
    fi
  done
  part kernels "$(program gpu_kernels_bench)" "${tiny[@]}" --json "$out/kernels.json"
  if wanted torch && timeout -s KILL 30 python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    part torch python3 "$here/torch_embedding_bag.py" --kernels "$out/kernels.json" --json "$out/peers.json" --seconds 35
  else
    leave_out torch "python3 has no torch that sees a GPU"
  fi
  if known_library libnccl.so.2; then
    part collectives "$(program gpu_collectives_bench)" "${small[@]}"
  else
    leave_out collectives "there is no libnccl.so.2"
  fi
else
  for name in gpu_tests nccl_tests memcheck racecheck synccheck kernels torch collectives; do leave_out $name "no GPU"; done
fi

# NCCL refuses two ranks on one device, unless they say that they are on different hosts: all collectives between two processes then, through
# the loopback interface. It shows that they work, not how fast.
if [ "$backend" = cuda ] && ! known_library libnccl.so.2; then
  leave_out ranks "there is no libnccl.so.2"
else
  export NCCL_SOCKET_IFNAME=lo
  sweep_part ranks comm "$root/configs/sweeps/gpu_ranks.yaml" "$scratch/ranks.db" "${limit[ranks]}" a:NCCL_HOSTID=a b:NCCL_HOSTID=b
  unset NCCL_SOCKET_IFNAME
fi

keep=10  # and what follows the sweep
peer=
if [ "$backend" = cuda ]; then needs='; assert torch.cuda.is_available()'; else needs=; fi
if wanted fbgemm && [[ $(outcome fbgemm) != done* ]] && timeout -s KILL 30 python3 -c "import fbgemm_gpu, numpy, torch$needs" 2>/dev/null; then
  peer=python3
  keep=$((keep + limit[fbgemm]))
fi
trainer=$(program neuroshard-pretrain)
if [ -n "$trainer" ] && wanted model; then keep=$((keep + limit[model])); fi
[[ $(outcome sweep) == done* ]] || note "== model: not of all of the sweep"
if [ ! -e "$out/profile.db" ] && [ -e "$out/profile.db.gz" ]; then gunzip -k "$out/profile.db.gz" || unwritable; fi
sweep_part sweep compute "$sweep" "$out/profile.db" "$(left)" w
keep=10

# Who reads the store leaves files beside it.
[ ! -s "$out/profile.db.gz" ] || gunzip -c "$out/profile.db.gz" >"$scratch/profile.db"
# train_model: a model of the sweep, DEVICE/1 in model.tar.gz.
train_model() {
  "$trainer" train --store "$scratch/profile.db" --out "$scratch/models/$folder/1" && put model.tar.gz < <(tar -cz -C "$scratch/models" "$folder")
}
if [ -s "$scratch/profile.db" ]; then
  export -f put train_model
  export trainer out scratch folder
  part model ${trainer:+bash -c train_model}
else
  leave_out model "there is no sweep to learn from"
fi

if [ -z "$peer" ]; then
  leave_out fbgemm "python3 has no FBGEMM and torch for this device"
elif [ -s "$scratch/profile.db" ]; then
  part fbgemm "$peer" "$here/fbgemm_tbe.py" --store "$scratch/profile.db" --json "$out/peers.json" --device "$backend" --seconds 40
else
  leave_out fbgemm "there is no sweep to compare with"
fi

echo "$out/RESULTS.md"
exit $failed
