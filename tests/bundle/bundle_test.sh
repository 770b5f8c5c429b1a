#!/usr/bin/env bash
# bundle_test.sh BIN: makes a bundle of BIN's programs, unpacks it into a root that has nothing but glibc, and measures there: the worker
# starts on the CPU, a client sweeps two samples into a store, SIGTERM ends the worker cleanly.
set -euo pipefail

bin=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
worker=
finish() {
  [ -z "$worker" ] || kill -9 "$worker" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

inside=(chroot "$work/host")
if [ "$(id -u)" -ne 0 ]; then
  unshare --user --map-root-user true 2>/dev/null || { echo "SKIPPED: changing the root needs root or user namespaces"; exit 77; }
  inside=(unshare --user --map-root-user "${inside[@]}")
fi

"$root/deploy/bundle.sh" --bin "$bin" --out "$work/bundle.tar.gz"
(umask 027 && "$root/deploy/bundle.sh" --bin "$bin" --out "$work/again.tar.gz" >/dev/null)
cmp "$work/bundle.tar.gz" "$work/again.tar.gz" || { echo "the same programs made another bundle"; exit 1; }

# Programs with GPU code have all of it each; packed by xz it is there once. With it twice two programs have 0.82 of what gzip makes of one, so 0.71.
if [ -x "$bin/../tests/kernels_cuda_test" ]; then
  "$root/deploy/bundle.sh" --bin "$bin" --out "$work/two.tar.xz" "$bin/../tests/kernels_cuda_test"
  [ $(($(stat -c %s "$work/two.tar.xz") * 100)) -lt $(($(stat -c %s "$work/bundle.tar.gz") * 77)) ] || { echo "the GPU code is in the bundle twice"; exit 1; }
fi

# What a stock host has: the loader and libc's libraries, nothing else.
mkdir -p "$work/host/tmp" "$work/host/lib/x86_64-linux-gnu" "$work/host/lib64"
cp -L /lib64/ld-linux-x86-64.so.2 "$work/host/lib64/"
for library in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libresolv.so.2; do
  cp -L "/lib/x86_64-linux-gnu/$library" "$work/host/lib/x86_64-linux-gnu/"
done
tar -C "$work/host" -xzf "$work/bundle.tar.gz"
grep -q '^commit: ' "$work/host/neuroshard-worker/BUNDLE.txt"
grep -qE '^needs for GPUs: (a driver 5[28][05]|nothing)' "$work/host/neuroshard-worker/BUNDLE.txt"
# Every library is of a package with a version and a licence; checksums are of what is inside.
python3 - "$work/host/neuroshard-worker" <<'PYTHON'
import hashlib, json, pathlib, sys
bundle = pathlib.Path(sys.argv[1])
listed = json.loads((bundle / "SPDX.json").read_text())
files = {file["fileName"]: file for file in listed["files"]}
inside = {"./" + str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
assert set(files) == inside - {"./SPDX.json"}, set(files) ^ inside
for name, file in files.items():
    assert file["checksums"][1]["checksumValue"] == hashlib.sha256((bundle / name).read_bytes()).hexdigest(), name
packages = {package["SPDXID"]: package for package in listed["packages"]}
origins = {link["spdxElementId"]: packages[link["relatedSpdxElement"]] for link in listed["relationships"] if link["relationshipType"] == "GENERATED_FROM"}
for name, file in files.items():
    if name.startswith("./lib/"):
        origin = origins[file["SPDXID"]]
        assert origin["versionInfo"] and origin["licenseDeclared"] != "NOASSERTION", origin
PYTHON
programs=/neuroshard-worker/bin
# The loader asks /proc/self/exe where a program lives. Mounting the real one takes privileges that a container may lack.
mkdir -p "$work/host/proc/self"
ln -s "$programs/neuroshard-worker" "$work/host/proc/self/exe"

"${inside[@]}" "$programs/neuroshard-worker" --version

echo 'cpu: {memory_per_device_bytes: 268435456}' >"$work/host/tmp/worker.yaml"
: >"$work/worker.out"  # there before it is read, however late the process begins
"${inside[@]}" "$programs/neuroshard-worker" --config /tmp/worker.yaml --backend cpu --listen 127.0.0.1:0 --metrics 127.0.0.1:0 \
  >"$work/worker.out" 2>"$work/worker.err" &
worker=$!
address=
for _ in $(seq 600); do
  address=$(sed -n 's/^listening on //p' "$work/worker.out")
  [ -z "$address" ] || break
  kill -0 "$worker" 2>/dev/null || { cat "$work/worker.err"; echo "the worker ended"; exit 1; }
  sleep 0.1
done
[ -n "$address" ] || { cat "$work/worker.err"; echo "the worker does not listen"; exit 1; }

cat >"$work/host/tmp/sweep.yaml" <<'YAML'
kind: compute
num_samples: 2
tables: /neuroshard-worker/configs/workloads/dlrm_2021_tables856.csv
max_tables: 2
max_weights_bytes: 16777216
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}
YAML
"${inside[@]}" "$programs/neuroshard" sweep compute /tmp/sweep.yaml --workers "$address" --store /tmp/store.db
test -s "$work/host/tmp/store.db"

kill -TERM "$worker"
wait "$worker"
worker=
echo "the bundle works in an empty root"
