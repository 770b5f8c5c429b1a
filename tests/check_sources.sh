#!/usr/bin/env bash
# What the compiler does not check: folders include each other in one direction (folder_dependencies.txt), generated messages and torch stay at
# their edges, targets stay in their folders, nothing grows without a reason (product_size.txt), everything is formatted (where clang-format is installed).
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
faults=0
fault() { echo "$1" >&2; faults=$((faults + 1)); }

sources() { find "$@" \( -name '*.h' -o -name '*.cc' \) -not -path './build/*' | sort; }

# .pb.h only where messages meet values.
while IFS= read -r line; do fault "a generated header outside codec, adapters and stubs: $line"; done \
  < <(sources common kernels worker server client | grep -vE '^(common/(codec|rpc)|server/service|worker/service|worker/process|client)/' |
    xargs -r grep -nHE '#include ".*\.pb\.h"')

# torch only where networks are trained, and never together with .pb.h.
while IFS= read -r line; do fault "torch outside server/pretrain/fit: $line"; done \
  < <(sources common kernels worker server client tests bench | grep -vE '^server/pretrain/fit/' |
    xargs -r grep -nHE '#include [<"](torch|ATen|c10)/')

# The pure core: no clocks, threads, files or logs.
while IFS= read -r line; do fault "a pure part touches the world: $line"; done \
  < <(sources common/domain server/search server/evaluate kernels/api/statistics.{h,cc} |
    grep -v '_test\.cc$' | xargs -r grep -nHE '#include <(thread|mutex|fstream|iostream|spdlog/.*|chrono)>' |
    grep -v 'common/domain/plan_request.h')

# A target is made of its own folder.
while IFS= read -r line; do fault "a target reaches into another folder: $line"; done \
  < <(find common kernels worker server client tests bench -name CMakeLists.txt -print0 | xargs -0 grep -nHE '(^|[ (])\.\./[^ )]*\.(cc|cu|h)')

# A merge that was not finished; ======= alone is a heading in some texts.
while IFS= read -r line; do fault "a conflict that was not solved: $line"; done < <(git grep -nE '^(<{7}|>{7}) ' || true)

# clang 14, which the sanitizers' presets build with, does not compile what makes a subrange or a view of libstdc++ 12.
while IFS= read -r line; do fault "a view that clang 14 does not compile: $line"; done \
  < <(sources common kernels worker server client tests bench |
    xargs -r grep -nHE 'std::(views|ranges::(views|subrange|(stable_)?partition|remove(_if)?|unique|rotate|search|find_end|equal_range))\b')

# What a header includes, the file of its name has from it.
while IFS= read -r line; do fault "an include that the file's own header has: $line"; done \
  < <(sources common kernels worker server client | grep '\.cc$' | while IFS= read -r file; do
    [ -f "${file%.cc}.h" ] && grep -Fxf <(grep '^#include' "${file%.cc}.h") <(grep '^#include' "$file") | sed "s|^|$file: |"
  done)

# clang-format leaves comments as they are.
while IFS= read -r line; do fault "a comment beyond 100 columns: $line"; done \
  < <(sources common kernels worker server client tests | xargs -r grep -nHE '^ *// .{101}' | grep -vE 'https?://')

# Folders use each other in one direction, and nothing grows unseen.
while IFS= read -r line; do fault "$line"; done < <(python3 -B tests/folder_dependencies.py 2>&1; python3 -B tests/product_size.py 2>&1)

# Adding a memory stays cheap: the patch of a fourth one applies, and is small beside its test.
fourth=tests/extension/fourth_memory.patch
git apply --check "$fourth" || fault "$fourth no longer applies: mend it (CONTRIBUTING.md)"
added=$(git apply --numstat "$fourth" | awk '$3 !~ /_test\.cc$|CMakeLists\.txt$|testdata/ { added += $1 } END { print added }')
[ "$added" -lt 100 ] || fault "$fourth adds $added lines to the product, 100 or more: a fourth memory has become dear"

if command -v clang-format >/dev/null; then
  while IFS= read -r line; do fault "not formatted: $line"; done \
    < <(sources common kernels worker server client tests bench | xargs -r clang-format --dry-run 2>&1 | grep -E 'warning: code should be' | cut -d: -f1 | sort -u)
fi

[ "$faults" -eq 0 ] || { echo "$faults faults" >&2; exit 1; }
