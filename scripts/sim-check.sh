#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sim-check.sh [--torch | --tests [TEST…]] [DRIVER/MODEL…]: runs gpu-check.sh on NVIDIA's own libraries over a simulated
# kernel driver (real-driver.sh), for each driver and model, and prints one table: what agrees, what
# differs, and what cannot be asked there. By default all drivers (550, 535) and models (t4, a100,
# h100), two GPUs each, in 25 s; 555 and 470 by name. --torch also asks with PyTorch, cuBLAS and NCCL, in a few minutes.
# --tests instead runs tests of package tracer (testdata/simdriver/tracer.txt, or those TESTs) and other
# tests (tests.txt) with NVIDIA's libraries in place of the fake CUDA (VRAMPROF_CUDA=sim; VRAMPROF_DRIVER=550 or
# 535), in ten minutes. Those of PyTorch skip themselves without real-driver.sh --math.
#
# Exit status 1: something differs, or a run did not end. Needs root, python3 and gcc, and the built
# binary (or VRAMPROF=FILE).
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
torch=
# tracer_tests TEST…: runs each in a process of its own, which begins with the simulated driver: a test of
# package tracer opens NVML itself. A test that skips itself with "needs SIMDRIVER_…" runs again.
tracer_tests() {
  local binary sim output gpus memory name passed status=0
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  binary=$work/tracer.test
  go test -c -vet=off -ldflags=-w -o "$binary" ./tracer 2>"$work/log" || { cat "$work/log"; return 1; }
  sim=$(scripts/real-driver.sh --offline "${VRAMPROF_DRIVER:-535}")
  case $sim in skipped:*) echo "$sim"; return ;; esac
  for name in "$@"; do
    gpus=1 memory=$((17 << 10))
    for _ in 1 2; do
      output=$(cd tracer && LD_PRELOAD=$sim/libsimdriver.so SIMDRIVER_BOOK=$work/$name-$gpus SIMDRIVER_GPUS=$gpus SIMDRIVER_MEMORY_MIB=$memory \
        timeout -k 5 120 "$binary" -test.run "^$name\$" -test.v 2>&1) && passed=1 || passed=
      [[ $output =~ needs\ SIMDRIVER_GPUS=([0-9]+)\ SIMDRIVER_MEMORY_MIB=([0-9]+) ]] || break
      gpus=${BASH_REMATCH[1]} memory=${BASH_REMATCH[2]}
    done
    grep -E -- "^--- (PASS|SKIP|FAIL): $name" <<<"$output" || echo "no result: $name"
    grep -E "_test.go:[0-9]+: needs" <<<"$output" || true
    [ -n "$passed" ] || { echo "$output"; status=1; }
  done
  return $status
}

if [ "${1:-}" = --tests ]; then
  shift
  export VRAMPROF_CUDA=sim
  if [ $# != 0 ]; then
    tracer_tests "$@"
    exit
  fi
  # shellcheck disable=SC2046 # names of tests have no spaces
  tracer_tests $(sed '/^#/d' testdata/simdriver/tracer.txt)
  exec go test -p 1 -count=1 -v ./cmd/vramprof/test/{e2e,accuracy} ./tracer/{allocator,holders} ./report/export -run "$(sed '/^#/d' testdata/simdriver/tests.txt | paste -sd '|')"
fi
if [ "${1:-}" = --torch ]; then
  torch=1
  shift
fi
[ $# != 0 ] || set -- {550,535}/{t4,a100,h100}
[ "$(id -u)" = 0 ] || { echo "sim-check.sh: run it as root (tracing needs it)" >&2; exit 4; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check DRIVER MODEL: leaves the bundle DRIVER-MODEL.tar.gz. It prints why it cannot.
check() {
  local driver=$1 model=$2 sim path python=python3 options=(--no-kernels) prepared root cuda
  sim=$(scripts/real-driver.sh ${torch:+--math} "$driver")
  case $sim in skipped:*) echo "$sim"; return ;; esac
  path=$sim
  if [ -n "$torch" ]; then
    prepared=$(scripts/real-torch.sh)
    case $prepared in skipped:*) echo "$prepared"; return ;; esac
    { read -r root; read -r cuda; } <<<"$prepared"
    python=$root/python3 path=$sim:$cuda # of the stubs only cuDNN, MPI and Redis are used
  else
    options+=(--without-torch)
  fi
  SIMDRIVER_MODEL=$model SIMDRIVER_GPUS=2 SIMDRIVER_BOOK=$work/$driver-$model.book SIMDRIVER_UNKNOWN=$work/unknown LD_PRELOAD=$sim/libsimdriver.so \
    LD_LIBRARY_PATH=$path PYTHON=$python OUT=$work/$driver-$model.tar.gz scripts/gpu-check.sh "${options[@]}" >"$work/log" 2>&1 || true
  [ -e "$work/$driver-$model.tar.gz" ] || { echo "$driver on $model did not end:"; tail -n 20 "$work/log"; touch "$work/failed"; }
}

for pair in "$@"; do
  check "${pair%/*}" "${pair#*/}"
done
python3 scripts/sim_table.py "$work" || touch "$work/failed"
# What the simulated driver has no answer to is listed. A new line needs an answer, or a look.
new=$(sort -u "$work/unknown" 2>/dev/null | grep -vxFf testdata/simdriver/unknown.txt) || true
[ -z "$new" ] || { printf 'the simulated driver has no answer to:\n%s\n' "$new"; touch "$work/failed"; }
[ ! -e "$work/failed" ]
