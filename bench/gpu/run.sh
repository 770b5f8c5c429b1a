#!/usr/bin/env bash
# Everything that only a GPU host can show, in one go, without network, compiler or Python packages (bench/gpu/README.md):
#   bench/gpu/run.sh [--out DIR] [--minutes 8] [--only PART,...] [--bin DIR] [--backend cuda|cpu] [--sweep FILE]
# Parts: gpu_tests nccl_tests kernels torch collectives ranks sweep fbgemm model memcheck racecheck synccheck. A part that cannot run here says why and is left
# out. Programs come from --bin, else from the bundle that this script lies in, else they are built in build/gpu. --out has at most eight
# files: RESULTS.md and results.json (written anew after every part), kernels.json, peers.json, profile.db (the sweep) and profile.db.gz (the
# same, once a minute), model.tar.gz (trained on it), log.txt. Run again with the same --out, it goes on with what is missing and resumes the sweep; a killed run keeps
# what it measured.
# Exit 0: all that could run went well; 1: a part failed; 2: usage; 3: no GPU, nothing was done.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
all_parts=(gpu_tests nccl_tests kernels torch collectives ranks sweep fbgemm model memcheck racecheck synccheck)
minutes=8 bin='' out='' backend=cuda only='' sweep=$root/configs/sweeps/gpu_compute.yaml
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
    --help | -h) sed -n '2,10s/^# //p' "$0"; exit 0 ;;
    *) usage "unknown argument: $1 (try --help)" ;;
  esac
done
[[ $minutes =~ ^[0-9]+$ ]] && [ "$minutes" -ge 1 ] || usage "--minutes must be a whole number of at least 1, got $minutes"
[[ $backend =~ ^(cuda|cpu)$ ]] || usage "--backend must be cuda or cpu, got $backend"
[ -r "$sweep" ] || usage "--sweep: cannot read $sweep"
for part in $only; do [[ " ${all_parts[*]} " == *" $part "* ]] || usage "--only: unknown part $part; there are: ${all_parts[*]}"; done
ends=$((SECONDS + minutes * 60))
left() { local s=$((ends - SECONDS)); echo $((s > 0 ? s : 0)); }

# Where NVIDIA's tools and libraries are on hosts that do not say so.
PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
known_library() {
  local folder search_path=${LD_LIBRARY_PATH:-}
  ldconfig -p 2>/dev/null | grep -qF "$1" && return
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
  known_library libnccl.so.2 || python_nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null)
  add_library libnccl.so.2 "${python_nccl:-/none}" /usr/local/cuda/lib64
fi

gpu=no
if nvidia-smi -L 2>/dev/null | grep -q '^GPU' || compgen -G '/dev/nvidia[0-9]*' >/dev/null; then gpu=yes; fi
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
  device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  device=${device:-unnamed GPU}
fi
folder=$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -cs 'a-z0-9' - | sed 's/^-//; s/-$//')
out=${out:-$root/bench/results/$folder}
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
log=$out/log.txt
scratch=$(mktemp -d)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
commit=$(sed -n 's/^commit: //p' "$root/BUNDLE.txt" 2>/dev/null)
commit=${commit:-$(git -C "$root" rev-parse HEAD 2>/dev/null)}
{
  echo "== run of $(date -u +%FT%TZ), commit ${commit:-unknown}, $minutes minutes"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,ecc.mode.current,temperature.gpu --format=csv 2>/dev/null
  "$bin/neuroshard-worker" --version
} >>"$log" 2>&1
failed=0

# The log has "== PART: begin", the part's output, "== PART: STATUS in N s"; STATUS is done, failed, cut or why it was left out.
all_outcomes() { awk 'match($0, /^== [a-z_]+: /) && !/: begin$/ { of[substr($0, 4, RLENGTH - 5)] = substr($0, RLENGTH + 1) } END { for (part in of) print part "\t" of[part] }' "$log"; }
outcome() { all_outcomes | sed -n "s/^$1\t//p"; }
output() { awk -v p="== $1: " 'index($0, p "begin") == 1 { text = ""; on = 1; next } index($0, p) == 1 { on = 0 } on { text = text $0 "\n" } END { printf "%s", text }' "$log"; }
json_text() { # what programs and devices call themselves: no control characters
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

report() {
  local part text
  local -A outcomes
  while IFS=$'\t' read -r part text; do outcomes[$part]=$text; done < <(all_outcomes)
  {
    echo "# Measured on $device"
    echo
    echo "Driver ${driver:-none}, commit ${commit:-unknown}, by \`bench/gpu/run.sh\`; what was printed is in log.txt."
    echo
    echo "| part | outcome |"
    echo "|---|---|"
    for part in "${all_parts[@]}"; do echo "| $part | ${outcomes[$part]:-not done} |"; done
    for part in kernels torch collectives fbgemm; do
      [[ ${outcomes[$part]:-} == done* ]] || continue
      printf '\n## %s\n\n' "$part"
      output "$part" | sed -n '/^[A-Zt|]/p; /^$/p'
    done
    printf '\n## Tests\n\n'
    for part in gpu_tests nccl_tests memcheck racecheck synccheck; do
      output "$part" | grep -E '^\[  (PASSED|FAILED) |^\[  SKIPPED .*listed|^=+ .*SUMMARY' | grep -v 'ms)$' | sed "s/^/    $part: /"
    done
    printf '\n## Sweep\n\n'
    output ranks | grep -E '^[a-z ]+ [0-9]+/[0-9]+' | tail -n 1 | sed 's/^/    ranks: /'
    output sweep | grep -E '^[a-z ]+ [0-9]+/[0-9]+' | tail -n 1 | sed 's/^/    sweep: /'
  } >"$out/RESULTS.md.part"
  mv "$out/RESULTS.md.part" "$out/RESULTS.md"
  {
    printf '{\n  "device": %s,\n  "driver": %s,\n  "commit": %s,\n  "command": "bench/gpu/run.sh",\n  "parts": {' \
      "$(json_text "$device")" "$(json_text "$driver")" "$(json_text "$commit")"
    local comma=
    for part in "${all_parts[@]}"; do
      printf '%s\n    "%s": %s' "$comma" "$part" "$(json_text "${outcomes[$part]:-}")"
      comma=,
    done
    printf '\n  }\n}\n'
  } >"$out/results.json.part"
  mv "$out/results.json.part" "$out/results.json"
}

children=()
stop_children() {
  local child
  for child in "${children[@]}"; do kill "$child" 2>/dev/null; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null; done
  children=()
}
finish() { stop_children; report; rm -rf "$scratch"; }
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

wanted() { [ -z "$only" ] || [[ " $only " == *" $1 "* ]]; }
end_part() { echo "== $1: $2" >>"$log"; echo "[$1] $2"; report; }

# Tests that need what is not here pass without having tested anything.
mostly_skipped() { output "$1" | awk '/^\[       OK /{ ok++ } /^\[  SKIPPED .*ms\)$/{ skipped++ } END { exit !(skipped > ok) }'; }

# part NAME MOST_SECONDS COMMAND...: unless it was done before. Status 124 means that its time was over.
part() {
  local name=$1 most=$2 status=0 began=$SECONDS
  shift 2
  wanted "$name" || return 0
  [[ $(outcome "$name") == done* ]] && { echo "[$name] was done before"; return 0; }
  [ -n "${1:-}" ] || { end_part "$name" "left out: its program is not here"; return 0; }
  [ "$most" -le $(($(left) - 10)) ] || most=$(($(left) - 10))
  [ "$most" -gt 5 ] || { end_part "$name" "left out: no time left"; return 0; }
  echo "[$name] at most $most s"
  echo "== $name: begin" >>"$log"
  timeout -k 10 "$most" "$@" >>"$log" 2>&1 &
  children=($!)
  wait $! || status=$?
  children=()
  case $status in
    0)
      if mostly_skipped "$name"; then
        end_part "$name" "left out: $(output "$name" | sed -n 's/^SKIPPED, NOT TESTED: //p' | head -n 1)"
      else
        end_part "$name" "done in $((SECONDS - began)) s"
      fi
      ;;
    124 | 137) end_part "$name" "cut after $((SECONDS - began)) s" ;;
    *) end_part "$name" "failed after $((SECONDS - began)) s, exit status $status"; tail -n 5 "$log"; failed=1 ;;
  esac
}
leave_out() {
  ! wanted "$1" || [[ $(outcome "$1") == done* ]] && return
  echo "== $1: left out: $2" >>"$log"
  echo "[$1] left out: $2"
}

# start_worker NAME: adds its address to $workers.
start_worker() {
  local options=()
  [ "$backend" = cuda ] || options=(--cpu-devices 1)
  "$bin/neuroshard-worker" --backend "$backend" "${options[@]}" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 \
    >"$scratch/$1.out" 2>>"$log" &
  children+=($!)
  local address='' tries=0
  while [ -z "$address" ] && [ $tries -lt 300 ] && kill -0 "${children[-1]}" 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
    address=$(sed -n 's/^listening on //p' "$scratch/$1.out")
  done
  [ -n "$address" ] || return 1
  workers+=(--workers "$address")
}

# sweep_part NAME KIND FILE STORE MOST_SECONDS WORKER...: starts the workers, which may set variables: "a:NCCL_HOSTID=a".
sweep_part() {
  local name=$1 kind=$2 file=$3 store=$4 most=$5 status=0 began=$SECONDS worker
  shift 5
  wanted "$name" || return 0
  [[ $(outcome "$name") == done* ]] && { echo "[$name] was done before"; return 0; }
  [ "$most" -le $(($(left) - 15)) ] || most=$(($(left) - 15))
  [ "$most" -gt 5 ] || { end_part "$name" "left out: no time left"; return 0; }
  echo "[$name] at most $most s"
  echo "== $name: begin" >>"$log"
  workers=()
  for worker in "$@"; do
    if [[ $worker == *:* ]]; then export "${worker#*:}"; fi
    if ! start_worker "${worker%%:*}"; then
      stop_children
      end_part "$name" "failed: a worker did not start"
      tail -n 5 "$log"
      failed=1
      return 0
    fi
    if [[ $worker == *:* ]]; then worker=${worker#*:}; unset "${worker%%=*}"; fi
  done
  # In slices, so that there is a small copy of the store whenever this is killed.
  local until=$((SECONDS + most)) slice
  status=124
  while [[ $status =~ ^(124|130)$ ]] && [ $((until - SECONDS)) -gt 5 ]; do
    slice=$((until - SECONDS < 75 ? until - SECONDS : 60))
    status=0
    timeout -s INT -k 15 "$slice" "$bin/neuroshard" sweep "$kind" "$file" "${workers[@]}" --store "$store" >>"$log" 2>&1 &
    children+=($!)
    wait $! || status=$?
    unset 'children[-1]'
    [ ! -s "$store" ] || { gzip -c "$store" >"$store.gz.part" && mv "$store.gz.part" "$store.gz"; }
  done
  stop_children
  case $status in
    0) end_part "$name" "done in $((SECONDS - began)) s" ;;
    124 | 130 | 137) end_part "$name" "cut after $((SECONDS - began)) s; run again, it goes on" ;;
    *) end_part "$name" "failed after $((SECONDS - began)) s, exit status $status"; tail -n 5 "$log"; failed=1 ;;
  esac
}

report
if [ "$gpu" = yes ] && [ "$backend" = cuda ]; then
  part gpu_tests 120 "$(program kernels_cuda_test)"
  part nccl_tests 60 "$(program kernels_nccl_test)"
  part kernels 110 "$(program gpu_kernels_bench)" --json "$out/kernels.json"
  if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    part torch 70 python3 "$here/torch_embedding_bag.py" --kernels "$out/kernels.json" --json "$out/peers.json" --seconds 50
  else
    leave_out torch "python3 has no torch that sees a GPU"
  fi
  if known_library libnccl.so.2; then
    part collectives 60 "$(program gpu_collectives_bench)"
  else
    leave_out collectives "there is no libnccl.so.2"
  fi
else
  for name in gpu_tests nccl_tests kernels torch collectives memcheck racecheck synccheck; do leave_out $name "no GPU"; done
fi

# NCCL refuses two ranks on one device, unless they say that they are on different hosts: all collectives between two processes then, through
# the loopback interface. It shows that they work, not how fast.
if [ "$backend" = cuda ] && ! known_library libnccl.so.2; then
  leave_out ranks "there is no libnccl.so.2"
else
  export NCCL_SOCKET_IFNAME=lo
  sweep_part ranks comm "$root/configs/sweeps/gpu_ranks.yaml" "$scratch/ranks.db" 45 a:NCCL_HOSTID=a b:NCCL_HOSTID=b
  unset NCCL_SOCKET_IFNAME
fi

# The sanitizers come last and need not finish; the sweep leaves them some time.
sanitizer=
if [ "$gpu" = yes ] && [ "$backend" = cuda ]; then
  sanitizer=$(command -v compute-sanitizer || ls /opt/nvidia/nsight-compute/*/host/*/sanitizer/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1)
fi
reserve=0
for name in memcheck racecheck synccheck; do
  if [ -n "$sanitizer" ] && wanted $name && [[ $(outcome $name) != done* ]]; then reserve=$((reserve + 40)); fi
done
peer=
if [ "$backend" = cuda ]; then needs='; assert torch.cuda.is_available()'; else needs=; fi
if wanted fbgemm && python3 -c "import fbgemm_gpu, numpy, torch$needs" 2>/dev/null; then peer=python3; fi
if [ -n "$peer" ] && [[ $(outcome fbgemm) != done* ]]; then reserve=$((reserve + 70)); fi
trainer=$(program neuroshard-pretrain)
if [ -n "$trainer" ] && wanted model; then reserve=$((reserve + 60)); fi
[[ $(outcome sweep) == done* ]] || echo "== model: not of all of the sweep" >>"$log"
if [ ! -e "$out/profile.db" ] && [ -e "$out/profile.db.gz" ]; then gunzip -k "$out/profile.db.gz"; fi
sweep_part sweep compute "$sweep" "$out/profile.db" $(($(left) - 15 - reserve)) w

if [ -z "$peer" ]; then
  leave_out fbgemm "python3 has no FBGEMM and torch for this device"
elif [ -s "$out/profile.db" ]; then
  part fbgemm 75 "$peer" "$here/fbgemm_tbe.py" --store "$out/profile.db" --json "$out/peers.json" --device "$backend" --seconds 50
else
  leave_out fbgemm "there is no sweep to compare with"
fi

# train_model: a model of the sweep, DEVICE/1 in model.tar.gz.
train_model() {
  "$trainer" train --store "$out/profile.db" --out "$scratch/models/$folder/1" &&
    tar -czf "$out/model.tar.gz.part" -C "$scratch/models" "$folder" && mv "$out/model.tar.gz.part" "$out/model.tar.gz"
}
if [ -s "$out/profile.db" ]; then
  export -f train_model
  export trainer out scratch folder
  part model 60 ${trainer:+bash -c train_model}
else
  leave_out model "there is no sweep to learn from"
fi

if [ -n "$sanitizer" ]; then
  # Without what is slow even without a sanitizer, asks for more memory than there is, or does what is wrong.
  filter='--gtest_filter=-*OneRowHitVeryOften*:*LargeTables*:*Times*:*HundredThousand*:*OutOfMemory*:*TooLarge*:*CannotBeUndone*:*AGate*'
  for name in memcheck racecheck synccheck; do
    part $name 60 "$sanitizer" --tool $name --error-exitcode 99 "$(program kernels_cuda_test)" "$filter" --gtest_brief=1
  done
elif [ "$gpu" = yes ]; then
  for name in memcheck racecheck synccheck; do leave_out $name "there is no compute-sanitizer on the PATH"; done
fi
echo "$out/RESULTS.md"
exit $failed
