#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh: what vramprof costs, against its budget. Prints a table; nothing is
# asserted. Root, on the fake CUDA, about ten minutes on an otherwise idle machine.
#
#   --quick     fewer and shorter rounds, 1.5 minutes
#   --only ROW  one of calls, rate, live, attach, idle, torch, tensors, capture, report, accuracy
#   --profile   only print what each BPF program costs (kernel.bpf_stats_enabled, restored afterwards)
#
# BENCH_LONG=1: the 100,000 events/s for 60 s. VRAMPROF=FILE: that binary instead of a fresh one.
# ROUNDS, PAIRS: rounds of each variant (at least 5 for a figure to quote), call pairs of a program.
set -euo pipefail
repository=$(dirname "$(dirname "$(realpath "$0")")")
cd "$repository"
. scripts/bench/processes.sh
. scripts/bench/variants.sh
. scripts/bench/rows.sh
. scripts/bench/torch.sh
. scripts/bench/capture.sh
. scripts/bench/accuracy.sh
. scripts/bench/table.sh

rounds=5 torch_rounds=5 torch_warm=4 torch_seconds=4 pairs=20000 seconds=20 idle_seconds=10 attach_rounds=3 only="" profile=""
[ -z "${BENCH_LONG:-}" ] || seconds=60
while [ $# -gt 0 ]; do
  case $1 in
    --quick) rounds=2 torch_rounds=1 torch_seconds=2 pairs=10000 seconds=5 idle_seconds=4 attach_rounds=1 ;;
    --only) only=${2:?--only ROW}; shift ;;
    --profile) profile=yes ;;
    *) sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
rounds=${ROUNDS:-$rounds} torch_rounds=${ROUNDS:-$torch_rounds} pairs=${PAIRS:-$pairs}
[ "$(id -u)" = 0 ] || { echo "bench.sh: run it as root" >&2; exit 4; }

prepare() {
  . scripts/install.sh
  setup bench || setup demo || exit 1
  cache=$repository/.cache/bench
  fake=$cache/fakecuda
  mkdir -p "$cache"
  testdata/fakecuda/build.sh "$fake"
  # The reference for frame pointers needs a program that has them.
  gcc -std=gnu11 -O2 -g -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-optimize-sibling-calls \
    -o "$fake/bench_fp" testdata/programs/bench_c.c "$fake/libcudart.so.12" -ldl -lpthread
  go build -o "$cache/floor" ./internal/floor
  vramprof=${VRAMPROF:-$cache/vramprof}
  [ -n "${VRAMPROF:-}" ] || go build -o "$vramprof" ./cmd/vramprof
  # Debian's interpreter, not one that a version manager put first in PATH.
  python=${PYTHON:-/usr/bin/python3}
  work=$(mktemp -d)
  trap cleanup EXIT
  trap 'exit 130' INT TERM
  export LD_LIBRARY_PATH=$fake PYTHONDONTWRITEBYTECODE=1
  export FAKECUDA_SHM=$work/shm FAKECUDA_GPUS=1 FAKECUDA_MEMORY=16G
  samples=$work/samples
  : > "$samples"
}

cleanup() {
  local status=$?
  trap - EXIT INT TERM
  kill_all
  [ -z "${stats_before:-}" ] || echo "$stats_before" > /proc/sys/kernel/bpf_stats_enabled
  rm -rf "$work"
  exit "$status"
}

wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

prepare
table_head
if [ -n "$profile" ]; then
  profile_programs
  exit
fi
if wanted calls; then measure_calls; table_calls; fi
table_budget_head
if wanted calls; then table_call_budget; fi
if wanted rate; then measure_rate; fi
if wanted live; then measure_live; fi
if wanted attach; then measure_attach; fi
if wanted torch; then measure_torch; fi
if wanted tensors; then measure_tensor_rate; measure_tensor_live; fi
if wanted capture; then measure_capture; fi
if wanted report; then measure_report; fi
if wanted accuracy; then measure_accuracy; fi
if wanted idle; then measure_idle; fi
table_foot
