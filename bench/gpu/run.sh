#!/usr/bin/env bash
# Everything that only a GPU host can show, in one go, without network, compiler or Python packages (bench/gpu/README.md):
#   bench/gpu/run.sh [--out DIR] [--minutes 9] [--only PART,...] [--bin DIR] [--backend cuda|cpu] [--sweeps DIR] [--plans DIR] [--rehearse]
# Parts, in the order of what they are worth: smoke gpu_tests kernels sweep (a minute) fbgemm memcheck sweep (more) large plans host nccl_tests
# ranks collectives torch sweep (the rest) model. One that cannot run here says why and is left out; where no kernel runs at all, nothing else
# is tried. Programs come from --bin, else from the bundle that this script lies in, else they are built in build/gpu.
# --out has at most seven small files, each whole at any moment: RESULTS.md and results.json (written anew with every part), kernels.json,
# peers.json, profile.db.gz (what the sweeps measured, copied every ten seconds), model.tar.gz (trained on it), log.txt. Run again with the same
# --out, it goes on with what is missing and resumes the sweeps; a killed run keeps what it measured. --rehearse: whether all of it runs, on
# shapes so small that no time means anything (tests/fake_gpu).
# Exit 0: all that could run went well; 1: a part failed or was cut (a sweep may be), or --out cannot be written to; 2: usage; 3: no GPU,
# nothing was done.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# The most seconds of each part; of the sweep its first minute, it gets what the others leave. Together at most ten minutes (tests/gpu_run).
limits=(smoke:20 gpu_tests:50 kernels:45 sweep:60 fbgemm:50 memcheck:20 large:45 plans:40 host:50 nccl_tests:30 ranks:30 collectives:30 torch:40 model:50)
all_parts=("${limits[@]%:*}")
declare -A limit
for part in "${limits[@]}"; do limit[${part%:*}]=${part#*:}; done
rehearse=no minutes=9 bin='' out='' backend=cuda only='' sweeps=$root/configs/sweeps plans=$here/plans
usage() { echo "$1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --out | --minutes | --only | --bin | --backend | --sweeps | --plans) [ $# -gt 1 ] || usage "$1 needs a value" ;;&
    --out) out=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --only) only=${2//,/ }; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --backend) backend=$2; shift 2 ;;
    --sweeps) sweeps=$2; shift 2 ;;
    --plans) plans=$2; shift 2 ;;
    --rehearse) rehearse=yes; shift ;;
    --help | -h) sed -n '2,13s/^# //p' "$0"; exit 0 ;;
    *) usage "unknown argument: $1 (try --help)" ;;
  esac
done
[[ $minutes =~ ^[1-9][0-9]*$ ]] || usage "--minutes must be a whole number of at least 1, got $minutes"
[[ $backend =~ ^(cuda|cpu)$ ]] || usage "--backend must be cuda or cpu, got $backend"
[ -r "$sweeps/gpu_compute.yaml" ] || usage "--sweeps: cannot read $sweeps/gpu_compute.yaml"
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
    { cmake --preset release -B "$root/build/gpu" -S "$root" -DNEUROSHARD_BUILD_BENCH=ON -DNEUROSHARD_BUILD_TESTS=ON -DNEUROSHARD_CUDA_12=ON -DNEUROSHARD_REQUIRE_CUDA=ON &&
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
# put FILE: what comes in, whole or not at all; nothing once the run was killed, since another may write there.
put() {
  local part=$out/$1.part.$$
  if cat >"$part" && kill -0 $$ 2>/dev/null && mv "$part" "$out/$1"; then return; fi
  rm -f "$part"
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
  for part in gpu_tests nccl_tests memcheck; do
    output "$part" | grep -E '^\[  (PASSED|FAILED) |^\[  SKIPPED .*listed|^=+ .*SUMMARY' | grep -v 'ms)$' | sed "s/^/    $part: /"
    case ${outcomes[$part]:-} in
      cut* | failed* | begun*) output "$part" | grep '^\[ RUN' | tail -n 1 | sed "s/^/    $part, the last that began: /" ;;
    esac
  done
  printf '\n## Sweeps and plans\n\n'
  for part in sweep large host ranks; do output "$part" | grep -E '^[a-z ]+ [0-9]+/[0-9]+' | tail -n 1 | sed "s/^/    $part: /"; done
  output plans | sed -n '/^[A-Za-z0-9]/s/^/    /p'
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
children=() importing=
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
  [ -z "$importing" ] || kill "$importing" 2>/dev/null
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
  [ "$most" -gt 5 ] && return
  [[ $(outcome "$1") =~ ^(cut|failed) ]] || leave_out "$1" "no time left"
  return 1
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
  : >"$scratch/$1.out"  # there before it is read, however late the process begins
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

# The store of all sweeps lies outside of --out: its samples are listed before the first is measured, in tens of megabytes.
store=$scratch/profile.db
# keep_copy: all of it, also of what is not in the file itself yet.
keep_copy() {
  rm -f "$scratch/whole.db"
  [ -s "$store" ] || return 0
  timeout -s KILL 20 "$bin/neuroshard" store backup --store "$store" "$scratch/whole.db" >>"$log" 2>&1 && put profile.db.gz < <(gzip -c "$scratch/whole.db")
}

# with_workers NAME MOST_SECONDS COMMAND... -- WORKER...: runs the command with --workers and their addresses. Workers are started for it and may
# have a variable: "a:NCCL_HOSTID=a". A copy of the store is kept every ten seconds.
with_workers() {
  local name=$1 status=0 began=$SECONDS until worker most command=() keeper
  time_for "$name" "$2" || return 0
  shift 2
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
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
  (while sleep $keep_every && kill -0 $$ 2>/dev/null; do keep_copy; done) &
  keeper=$!
  children+=("$keeper")
  "${tied[@]}" timeout -s INT -k 10 "$((until - SECONDS > 1 ? until - SECONDS : 1))" "${command[@]}" "${workers[@]}" >>"$log" 2>&1 &
  children+=($!)
  wait $! || status=$?
  unset 'children[-1]'
  stop_children
  keep_copy || status=uncopied
  case $status in
    0) end_part "$name" "done in $((SECONDS - began)) s" ;;
    124 | 130) end_part "$name" "cut after $((SECONDS - began)) s; run again, it goes on" ;;
    uncopied) fail_part "$name" "failed after $((SECONDS - began)) s: there is no whole copy of the store" ;;
    *) fail_part "$name" "failed after $((SECONDS - began)) s, exit status $status" ;;
  esac
}
# sweep_part NAME MOST_SECONDS: the samples of its file that are not in the store yet.
sweep_part() {
  wanted "$1" || return 0
  local file=$sweeps/gpu_$1.yaml
  [ "$1" != sweep ] || file=$sweeps/gpu_compute.yaml
  if [ -r "$file" ]; then with_workers "$1" "$2" "$bin/neuroshard" sweep compute "$file" --store "$store" -- w; else leave_out "$1" "there is no $file"; fi
}
# validate_plans WORKERS...: ranks of every plan, one after the other where the worker has fewer devices.
validate_plans() {
  local plan status=0
  for plan in "$plans"/*.json; do
    echo "${plan##*/}"
    "$bin/neuroshard" validate "${plan%.json}.yaml" "$plan" --store "$store" --max-time-ms 200 "$@" || status=$?
  done
  return $status
}

driver=$(smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
commit=$(sed -n 's/^commit: //p' "$root/BUNDLE.txt" 2>/dev/null)
commit=${commit:-$(git -C "$root" rev-parse HEAD 2>/dev/null)}
note "== run of $(date -u +%FT%TZ), commit ${commit:-unknown}, $minutes minutes"
{
  smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,ecc.mode.current,temperature.gpu --format=csv
  timeout -s KILL 10 "$bin/neuroshard-worker" --version
  uname -r; getconf GNU_LIBC_VERSION; nproc; grep MemTotal /proc/meminfo; df -h "$scratch" | tail -n 1
  for tool in python3 compute-sanitizer ncu nvcc; do command -v $tool; done
} >>"$log" 2>&1
report || unwritable
if [ -e "$out/profile.db.gz" ] && ! gunzip -c "$out/profile.db.gz" >"$store"; then unwritable; fi
small=() tiny=() few=() keep_every=10
if [ "$rehearse" = yes ]; then keep_every=1 small=(--small) tiny=(--tiny) few=(--gtest_filter=CudaDeviceTest.*-*Times*:*LargeTables*); fi

# From a cold disk torch's first import may take minutes: it begins at once, and the parts that need torch wait for it.
sees=
if [ "$backend" = cuda ]; then sees='; assert torch.cuda.is_available()'; fi
(
  "${tied[@]}" timeout -k 1 240 python3 -c "import torch$sees; print('torch'); import numpy, fbgemm_gpu; print('fbgemm')" >"$scratch/torch.part" 2>/dev/null
  mv "$scratch/torch.part" "$scratch/torch.said"
) &
importing=$!
# python_has torch|fbgemm
python_has() {
  local until=$((SECONDS + 60))
  while [ ! -e "$scratch/torch.said" ] && [ $SECONDS -lt $until ] && [ "$(left)" -gt 30 ]; do sleep 0.2; done
  grep -qs "^$1" "$scratch/torch.said"
}
# for_parts NAME...: the seconds that those of them need which are still to run.
for_parts() {
  local part seconds=10
  for part in "$@"; do if wanted "$part" && [[ $(outcome "$part") != done* ]]; then seconds=$((seconds + limit[$part])); fi; done
  echo $seconds
}

on_gpu=no
if [ "$gpu" = yes ] && [ "$backend" = cuda ]; then on_gpu=yes; fi
# gpu_part NAME COMMAND...
gpu_part() { if [ $on_gpu = yes ]; then part "$@"; else leave_out "$1" "no GPU"; fi; }
# nccl_part NAME COMMAND...
nccl_part() { if [ $on_gpu = no ] || known_library libnccl.so.2; then gpu_part "$@"; else leave_out "$1" "there is no libnccl.so.2"; fi; }

tests=$(program kernels_cuda_test) bench=$(program gpu_kernels_bench) trainer=$(program neuroshard-pretrain)
gpu_part smoke "$bench" --tiny
if [ $on_gpu = yes ] && [[ $(outcome smoke) =~ ^(failed|cut) ]]; then
  echo "no kernel runs here, so nothing else was tried: $log says why" >&2
  exit 1
fi
gpu_part gpu_tests "$tests" "${few[@]}"
gpu_part kernels "$bench" "${tiny[@]:---quick}" --json "$out/kernels.json"
# FBGEMM and the model run samples of the sweep, so some of it comes first.
sweep_part sweep "${limit[sweep]}"
if ! wanted fbgemm || [[ $(outcome fbgemm) == done* ]]; then :
elif [ ! -s "$store" ]; then
  leave_out fbgemm "there is no sweep to compare with"
elif python_has fbgemm; then
  part fbgemm python3 "$here/fbgemm_tbe.py" --store "$store" --json "$out/peers.json" --device "$backend" --seconds 35
else
  leave_out fbgemm "python3 has no FBGEMM and torch for this device"
fi
# The sanitizer sees every kernel once (tests/fake_gpu/every_kernel_test.sh).
sanitizer=$(command -v compute-sanitizer || ls /opt/nvidia/nsight-compute/*/host/*/sanitizer/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1)
if [ -n "$sanitizer" ] || [ $on_gpu = no ]; then
  gpu_part memcheck "${tests:+$sanitizer}" --tool memcheck --error-exitcode 99 "$tests" --gtest_filter=CudaDeviceTest.EveryKernelOnce --gtest_brief=1
else
  leave_out memcheck "there is no compute-sanitizer on the PATH"
fi
more=$(($(left) - $(for_parts large plans host nccl_tests ranks collectives torch model)))
sweep_part sweep $((more < 120 ? more : 120))
sweep_part large "${limit[large]}"
if compgen -G "$plans/*.json" >/dev/null; then
  export -f validate_plans
  export plans bin store
  with_workers plans "${limit[plans]}" bash -c 'validate_plans "$@"' validate -- w
else
  leave_out plans "there are none in $plans"
fi
sweep_part host "${limit[host]}"
nccl_part nccl_tests "$(program kernels_nccl_test)"
# NCCL refuses two ranks on one device, unless they say that they are on different hosts: all collectives between two processes then, through
# the loopback interface. It shows that they work, not how fast.
if [ "$backend" = cuda ] && ! known_library libnccl.so.2; then
  leave_out ranks "there is no libnccl.so.2"
else
  export NCCL_SOCKET_IFNAME=lo
  with_workers ranks "${limit[ranks]}" "$bin/neuroshard" sweep comm "$root/configs/sweeps/gpu_ranks.yaml" --store "$scratch/ranks.db" -- a:NCCL_HOSTID=a b:NCCL_HOSTID=b
  unset NCCL_SOCKET_IFNAME
fi
nccl_part collectives "$(program gpu_collectives_bench)" "${small[@]}"
if wanted torch && [ $on_gpu = yes ] && python_has torch; then
  part torch python3 "$here/torch_embedding_bag.py" --kernels "$out/kernels.json" --json "$out/peers.json" --seconds 30
else
  leave_out torch "python3 has no torch that sees a GPU"
fi
sweep_part sweep $(($(left) - $(for_parts model)))

[[ $(outcome sweep) == done* ]] || note "== model: not of all of the sweep"
# train_model: a model of the sweep, DEVICE/1 in model.tar.gz.
train_model() {
  "$trainer" train --store "$store" --out "$scratch/models/$folder/1" && put model.tar.gz < <(tar -cz -C "$scratch/models" "$folder")
}
if [ -s "$store" ]; then
  export -f put train_model
  export trainer out scratch folder store
  part model ${trainer:+bash -c train_model}
else
  leave_out model "there is no sweep to learn from"
fi

echo "$out/RESULTS.md"
exit $failed
