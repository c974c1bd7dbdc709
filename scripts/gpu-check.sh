#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu-check.sh [--fake]: trains a small transformer on a real GPU (AMP, activation checkpointing,
# DDP with one rank, with and without expandable segments) under vramprof, and compares its figures
# with PyTorch's and NVML's at fixed points. It prints a table of differences and the time per step
# with and without vramprof, and stores it in testdata/gpu/gpu-check.txt. Exit status 1: PyTorch's
# figures differ. Needs root, a python3 with torch (or PYTHON=FILE) and the built binary (or
# VRAMPROF=FILE); takes at most 8 minutes. --fake: on the fake GPU, with the PyTorch of
# real-torch.sh; stores nothing.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
python=${PYTHON:-python3}
fake=
case ${1:-} in
  "") ;;
  --fake) fake=1 ;;
  *) echo "usage: gpu-check.sh [--fake]" >&2; exit 2 ;;
esac

skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" = 0 ] || { echo "gpu-check.sh: run it as root (tracing needs it)" >&2; exit 4; }
for vramprof in "${VRAMPROF:-}" ./vramprof .cache/bin/vramprof; do
  [ -x "$vramprof" ] && break
done
[ -x "$vramprof" ] || { echo "gpu-check.sh: vramprof is not built (run go build ./cmd/vramprof, or set VRAMPROF=FILE)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$fake" ]; then
  prepared=$(scripts/real-torch.sh)
  case $prepared in skipped:*) skip "${prepared#skipped: }" ;; esac
  { read -r root; read -r cuda; } <<<"$prepared"
  testdata/fakecuda/build.sh "$work/fake"
  python=$root/python3
  export LD_LIBRARY_PATH=$cuda:$work/fake FAKECUDA_SHM=$work/gpu FAKECUDA_MEMORY=16G PYTHONDONTWRITEBYTECODE=1
elif ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  skip "$python has no PyTorch that finds a GPU (use --fake without a GPU)"
fi

timeout --foreground -k 10 470 "$python" scripts/gpu_check.py ${fake:+--fake} "$(realpath "$vramprof")" "$work" >"$work/table" && status=0 || status=$?
cat "$work/table"
if [ -z "$fake" ] && [ -s "$work/table" ]; then
  mkdir -p testdata/gpu
  cp "$work/table" testdata/gpu/gpu-check.txt
fi
exit "$status"
