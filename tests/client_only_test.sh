#!/usr/bin/env bash
# client_only_test.sh FOLDER: configures the client alone in FOLDER, from nothing, and looks at every command that would build it: none may know
# libtorch, libpqxx, BLAS or CUDA.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cmake --fresh -S "$root" -B "$1" -G Ninja -DNEUROSHARD_CLIENT_ONLY=ON >"$1.log" 2>&1 || { cat "$1.log"; exit 1; }
commands=$(ninja -C "$1" -t commands all)
grep -q -- '-o bin/neuroshard ' <<<"$commands" || { echo "no command links bin/neuroshard"; exit 1; }
if known=$(grep -oiE '[^ ]*(libtorch|include/torch|pqxx|libpq|blas|cuda|nccl|libhwy)[^ ]*' <<<"$commands" | grep -vF "$root" | sort -u); then
  echo "a client alone would be built with:"
  echo "$known"
  exit 1
fi
