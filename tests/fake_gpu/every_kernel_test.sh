#!/usr/bin/env bash
# every_kernel_test.sh FAKE_CUDA_TEST SOURCE: what compute-sanitizer runs launches every kernel of SOURCE (embedding_kernels.cu, as its
# LoadKernels lists them) and the sorts.
set -euo pipefail

launched=$(mktemp)
trap 'rm -f "$launched"*' EXIT
FAKE_GPU_LAUNCHED=$launched "$1" --gtest_filter=CudaDeviceTest.EveryKernelOnce --gtest_brief=1
{ sed -n 's/.*reinterpret_cast<const void\*>(&\(.*\))[,}].*/\1/p' "$2"; printf 'Sort\nKeepDistinct\n'; } | sort >"$launched.all"
[ "$(wc -l <"$launched.all")" -gt 20 ] || { echo "no list of kernels in $2" >&2; exit 1; }
left_out=$(sort "$launched" | comm -13 - "$launched.all")
[ -z "$left_out" ] || { echo "no sanitizer sees: $left_out" >&2; exit 1; }
