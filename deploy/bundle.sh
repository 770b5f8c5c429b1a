#!/usr/bin/env bash
# Packs the worker and the client with every library they need, except libc and what NVIDIA's driver brings, into one tar.gz that runs
# on a stock Debian 12 or Ubuntu 24.04 host (x86-64, glibc 2.36 or newer) with nothing installed:
#   deploy/bundle.sh [--bin build/release/bin] [--out build/neuroshard-worker.tar.gz|.tar.xz] [MORE_BINARIES...]
# Unpacked: neuroshard-worker/{bin,lib,configs,bench/gpu,client/python}, BUNDLE.txt with the commit, and SPDX.json, which lists every file and where the
# libraries are from: package, version, licence. The same programs, libraries and commit give the same bytes.
# With --wheel FOLDER, which build_wheel.sh asks for, the folder has bin, lib and share/neuroshard instead, and libstdc++ is the host's.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/build/release/bin
out=$root/build/neuroshard-worker.tar.gz
max_bytes=60000000 max_bytes_with_torch=100000000
wheel=
more=()
while [ $# -gt 0 ]; do
  case "$1" in
    --bin) bin=${2:?--bin needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    --wheel) wheel=${2:?--wheel needs a folder}; shift 2 ;;
    --help | -h) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
    -*) echo "unknown option: $1 (try --help)" >&2; exit 2 ;;
    *) more+=("$1"); shift ;;
  esac
done
pack=(gzip -n)
# Each program with GPU code has all of it, 3 MB for one architecture and 16 MB for five: a window over the whole bundle stores it once.
[[ $out != *.xz ]] || pack=(xz --lzma2=preset=6,dict=256MiB)
binaries=("$bin/neuroshard-worker" "$bin/neuroshard" "${more[@]}")
for tool in patchelf ldd strip python3; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; deploy/install_packages.sh installs it" >&2; exit 1; }
done
for binary in "${binaries[@]}"; do
  [ -x "$binary" ] || { echo "no such program: $binary (cmake --build --preset release makes it)" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/neuroshard-worker
mkdir -p "$bundle/bin" "$bundle/lib"

# glibc's own libraries must match the host's loader; the driver's match the host's kernel module.
host_library='^(ld-linux-x86-64|libc|libm|libpthread|libdl|librt|libresolv|libutil|libanl|libnss_.*|libcuda|libnvidia-.*)\.so'
# Of Debian's libraries libstdc++ alone wants a glibc as new as Debian's; manylinux has it on every host.
[ -z "$wheel" ] || host_library+='|^(libstdc\+\+|libgcc_s)\.so'

libraries=()
for binary in "${binaries[@]}"; do
  missing=$(ldd "$binary" | sed -n 's/^\s*\(\S*\) => not found$/\1/p')
  [ -z "$missing" ] || { echo "$binary needs libraries that this machine lacks: $missing" >&2; exit 1; }
  target=$bundle/bin/$(basename "$binary")
  cp "$binary" "$target"
  strip "$target"
  # RPATH, not RUNPATH: the libraries find each other by it too.
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$target"
  # Debian's libtorch names OpenCV and FFmpeg, of which it uses no symbol; with what they need they are most of what it would bring.
  torch=$(ldd "$binary" | awk '$1 ~ /^libtorch_cpu/ { print $1, $3 }')
  if [ -n "$torch" ] && [ ! -e "$bundle/lib/${torch% *}" ]; then
    cp -L "${torch#* }" "$bundle/lib/${torch% *}"
    libraries+=("${torch#* }")
    max_bytes=$max_bytes_with_torch
    chmod u+w "$bundle/lib/${torch% *}"
    for unused in $(ldd -u "${torch#* }" | sed -n 's/^\s\+//p'); do patchelf --remove-needed "$(basename "$unused")" "$bundle/lib/${torch% *}"; done
  fi
  while read -r name path; do
    if [[ $name =~ $host_library ]] || [ -e "$bundle/lib/$name" ]; then continue; fi
    cp -L "$path" "$bundle/lib/$name"
    libraries+=("$path")
  done < <(LD_LIBRARY_PATH=$bundle/lib:${LD_LIBRARY_PATH:-} ldd "$binary" | awk '$2 == "=>" { print $1, $3 }')
done
for library in "$bundle"/lib/*; do
  chmod u+w "$library"
  strip --strip-unneeded "$library"
  patchelf --remove-rpath "$library"
done

cp "$root/LICENSE" "$bundle/"
share=$bundle
if [ -n "$wheel" ]; then  # as `cmake --install` has it, and the planner looks for it
  share=$bundle/share/neuroshard
  mkdir -p "$share"
  cp -r "$root/configs/models" "$share/"
fi
mkdir -p "$share/configs"
cp -r "$root"/configs/{worker.yaml,sweeps,workloads} "$share/configs/"
if [ -z "$wheel" ] && [ -d "$root/bench/gpu" ]; then
  mkdir -p "$bundle/bench"
  cp -r "$root/bench/gpu" "$bundle/bench/"
  mkdir -p "$bundle/client/python/neuroshard/worker"  # FBGEMM's measurement, for bench/gpu/fbgemm_tbe.py
  find "$root/client/python/neuroshard/worker" -name '*.py' -not -name '*_test.py' -exec cp {} "$bundle/client/python/neuroshard/worker/" \;
fi
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
[ "$commit" = unknown ] || git -C "$root" diff --quiet HEAD || commit+=' with changes'
created_s=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
{
  echo "commit: $commit"
  echo "made on: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)"
  echo "needs: x86-64, $(getconf GNU_LIBC_VERSION) or newer"
  echo "needs for GPUs: $(cat "$bin/../gpu_needs.txt" 2>/dev/null || echo unknown)"
} >"$bundle/BUNDLE.txt"
find "$bundle" -name __pycache__ -prune -exec rm -r {} +
"$root/deploy/spdx.py" "$bundle" "$commit" "$created_s" "${libraries[@]}" >"$work/SPDX.json"
mv "$work/SPDX.json" "$bundle/"
if [ -n "$wheel" ]; then
  chmod -R u=rwX,go=rX "$bundle"
  mv "$bundle" "$wheel"
  exit 0
fi

mkdir -p "$(dirname "$out")"
tar -C "$work" --format=gnu --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$created_s" --sort=name -c neuroshard-worker | "${pack[@]}" >"$out.part"
bytes=$(stat -c %s "$out.part")
if [ "$bytes" -gt "$max_bytes" ]; then
  rm -f "$out.part"
  echo "the bundle would have $bytes bytes, more than $max_bytes. Every program with GPU code has all of it: name a file .tar.xz, which stores it once," \
    "or build for one architecture (-DCMAKE_CUDA_ARCHITECTURES=90-real). Else something large came in, see the folder lib of an unpacked bundle" >&2
  exit 1
fi
mv "$out.part" "$out"
echo "$out: $((bytes / 1000)) kB, $(ls "$bundle/lib" | wc -l) libraries, $(sed -n 's/^needs for GPUs/for GPUs/p' "$bundle/BUNDLE.txt")"
