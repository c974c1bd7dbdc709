#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu-check.sh [--fake | --no-kernels] [--without-torch]: asks a real GPU and its driver what vramprof assumes of
# them, in at most 10 minutes. It prints a table of what agrees and what differs, and writes a bundle
# that can be attached to an issue: vramprof-gpu-check.tar.gz in this folder (or OUT=FILE), whose
# contents.txt lists what is in it.
#
#   - how vramprof would probe the libraries, and what cuGetProcAddress returns
#   - with gpucheck/program/driver.c, if there is a C compiler: which calls NVML's figures follow and by how
#     much, whether vramprof's books agree, and what a traced call costs
#   - with PyTorch, if python3 (or PYTHON=FILE) has one that finds a GPU: a small transformer (AMP,
#     activation checkpointing, DDP with one rank, with and without expandable segments), compared
#     with PyTorch's and NVML's figures at fixed points; the time per step with and without vramprof
#
# Exit status 1: something differs. Needs root, python3, and the built binary (or VRAMPROF=FILE).
# --fake: on the fake GPU, with the PyTorch of real-torch.sh. --without-torch: leaves PyTorch out.
# --no-kernels: the driver's kernels compute nothing (sim-check.sh).
set -euo pipefail
here=$PWD
cd "$(dirname "$(realpath "$0")")/.."
python=${PYTHON:-python3}
fake= no_kernels= torch=1
export PYTHONDONTWRITEBYTECODE=1
for argument in "$@"; do
  case $argument in
    --fake) fake=1 ;;
    --no-kernels) no_kernels=1 ;;
    --without-torch) torch= ;;
    *) echo "usage: gpu-check.sh [--fake | --no-kernels] [--without-torch]" >&2; exit 2 ;;
  esac
done

skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" = 0 ] || { echo "gpu-check.sh: run it as root (tracing needs it)" >&2; exit 4; }
command -v "$python" >/dev/null || skip "no $python"
for vramprof in "${VRAMPROF:-}" ./vramprof .cache/bin/vramprof "$(command -v vramprof || true)"; do
  [ -x "$vramprof" ] && break
done
[ -x "$vramprof" ] || { echo "gpu-check.sh: vramprof is not built (run go build ./cmd/vramprof, or set VRAMPROF=FILE)" >&2; exit 1; }
bundle=${OUT:-$here/vramprof-gpu-check.tar.gz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$fake" ]; then
  testdata/fakecuda/build.sh "$work/fake"
  export LD_LIBRARY_PATH=$work/fake FAKECUDA_SHM=$work/gpu FAKECUDA_MEMORY=16G
  bundle=${OUT:-$work/bundle.tar.gz}
  if [ -n "$torch" ]; then
    prepared=$(scripts/real-torch.sh)
    case $prepared in
      skipped:*) torch= ;;
      *) { read -r root; read -r cuda; } <<<"$prepared"; python=$root/python3; export LD_LIBRARY_PATH=$cuda:$work/fake ;;
    esac
  fi
elif ! "$python" -c 'import ctypes; ctypes.CDLL("libcuda.so.1"); ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null; then
  skip "no NVIDIA driver (use --fake without a GPU)"
elif [ -n "$torch" ] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  torch=
fi

driver=
for cc in "${CC:-cc}" gcc clang; do
  if command -v "$cc" >/dev/null && "$cc" -O2 -g -o "$work/driver" scripts/gpucheck/program/driver.c -ldl; then
    driver=$work/driver
    break
  fi
done

timeout --foreground -k 10 570 "$python" scripts/gpu_check.py ${fake:+--fake} ${no_kernels:+--no-kernels} ${torch:+--torch} ${driver:+"--driver=$driver"} "--bundle=$bundle" \
  "$(realpath "$vramprof")" "$work" && status=0 || status=$?
[ -n "$fake" ] || echo "bundle to attach to an issue: $bundle"
exit "$status"
