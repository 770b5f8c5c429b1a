#!/usr/bin/env bash
# setup_environment.sh [DIR]: PyTorch, FBGEMM for CPUs and TorchRec from PyPI in a virtual environment (default: build/pytorch), 5 GB. Run again
# it does nothing, unless the versions below are others.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=${1:-$root/build/pytorch}
# fbgemm-gpu-cpu 1.9.0 is built for torch 2.14 and does not load with another (undefined symbols), which its wheel does not say.
torch=(torch==2.14.0 numpy==2.4.6)
# torchrec asks for fbgemm-gpu, which is the one for CUDA.
without_dependencies=(fbgemm-gpu-cpu==1.9.0 torchrec==1.9.2)
rest=(tensordict torchmetrics==1.0.3 tqdm pyre-extensions grpcio protobuf grpcio-health-checking prometheus-client)

versions="${torch[*]} ${without_dependencies[*]} ${rest[*]}"
if [ "$(cat "$dir/complete" 2>/dev/null)" != "$versions" ]; then
  python3 -c 'import ensurepip' 2>/dev/null || { echo "there is no python3-venv: apt-get install python3-venv" >&2; exit 1; }
  rm -rf "$dir"
  python3 -m venv "$dir"
  install() { "$dir/bin/pip" install --quiet "$@" || { echo "PyTorch and TorchRec cannot be installed from PyPI into $dir: see above" >&2; exit 1; }; }
  install "${torch[@]}"
  install --no-deps "${without_dependencies[@]}"
  install "${rest[@]}"
  "$dir/bin/python" -c 'import fbgemm_gpu, torch; print("torch", torch.__version__, "fbgemm", fbgemm_gpu.__version__)'
  echo "$versions" >"$dir/complete"
fi
echo "$dir/bin/python"
