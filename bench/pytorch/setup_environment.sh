#!/usr/bin/env bash
# setup_environment.sh [DIR]: PyTorch, FBGEMM for CPUs and TorchRec from PyPI in a virtual environment (default: build/pytorch), 5 GB. Run again
# it does nothing.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=${1:-$root/build/pytorch}
# fbgemm-gpu-cpu 1.9.0 is built for torch 2.14 and does not load with another (undefined symbols), which its wheel does not say.
torch=2.14.0 fbgemm=1.9.0 torchrec=1.9.2 numpy=2.4.6

if [ ! -f "$dir/complete" ]; then
  python3 -c 'import ensurepip' 2>/dev/null || { echo "there is no python3-venv: apt-get install python3-venv" >&2; exit 1; }
  rm -rf "$dir"
  python3 -m venv "$dir"
  "$dir/bin/pip" install --quiet "torch==$torch" "numpy==$numpy"
  # torchrec asks for fbgemm-gpu, which is the one for CUDA.
  "$dir/bin/pip" install --quiet --no-deps "fbgemm-gpu-cpu==$fbgemm" "torchrec==$torchrec"
  "$dir/bin/pip" install --quiet tensordict torchmetrics==1.0.3 tqdm pyre-extensions
  "$dir/bin/python" -c 'import fbgemm_gpu, torch; print("torch", torch.__version__, "fbgemm", fbgemm_gpu.__version__)'
  touch "$dir/complete"
fi
echo "$dir/bin/python"
