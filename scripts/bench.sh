#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh: measures the cost of vramprof against its budget and beside other tools. It prints
# tables and asserts nothing. Needs root; takes about 70 minutes on an idle machine with the fake
# CUDA.
#
#   --quick       fewer and shorter rounds, 12 minutes
#   --only ROWS   comma-separated: calls, contention, rate, live, attach, forks, torch, budget, tensors, exits,
#                 capture, report, holders, explain, top, serve, idle, memory, peers (peers: 20 minutes, with --quick 4)
#   --markdown    also replace the results of these rows in scripts/bench/results, from which
#                 BENCHMARKS.md and its pictures are written; not with --quick
#   --profile     only print the cost of each BPF program (sets and restores kernel.bpf_stats_enabled)
#
# BENCH_LONG=1: run the 100,000 events/s for 60 s. VRAMPROF=FILE: use that binary instead of a new
# one. ROUNDS, PAIRS: rounds of each variant (at least 5 for figures to quote), call pairs of a
# program.
set -euo pipefail
repository=$(dirname "$(dirname "$(realpath "$0")")")
cd "$repository"
. scripts/bench/processes.sh
. scripts/bench/variants.sh
. scripts/bench/rows.sh
. scripts/bench/contention.sh
. scripts/bench/torch.sh
. scripts/bench/budget.sh
. scripts/bench/capture.sh
. scripts/bench/holders.sh
. scripts/bench/explain.sh
. scripts/bench/top.sh
. scripts/bench/serve.sh
. scripts/bench/peers.sh
. scripts/bench/many.sh
. scripts/bench/table.sh

rounds=5 torch_rounds=5 torch_warm=4 torch_seconds=4 pairs=20000 seconds=20 idle_seconds=10 attach_rounds=3 walks=5 explains=3 walk_rounds=7 walk_seconds=6 top_warm=10 top_seconds=30 serve_seconds=60 contend_seconds=1 serve_torch_seconds=15 only="" profile="" markdown="" measured=""
peer_seconds=2 peer_torch_seconds=2 budget_alone=4 budget_warm=6 budget_seconds=15 rows="calls contention rate live attach forks torch budget tensors exits capture report holders explain top serve peers idle memory"
[ -z "${BENCH_LONG:-}" ] || seconds=60
while [ $# -gt 0 ]; do
  case $1 in
    --quick) rounds=2 torch_rounds=1 torch_seconds=2 pairs=10000 seconds=5 idle_seconds=4 attach_rounds=1 walks=2 explains=2 walk_rounds=2 walk_seconds=3 serve_seconds=20 contend_seconds=0.3 top_warm=5 top_seconds=5 serve_torch_seconds=6
      peer_seconds=1 peer_torch_seconds=1 quick=yes ;;
    --only) only=${2:?--only ROWS}; shift ;;
    --markdown) markdown=yes ;;
    --profile) profile=yes ;;
    *) sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
for row in ${only//,/ }; do
  [[ " $rows " = *" $row "* ]] || { echo "bench.sh: unknown row $row, expected one of: $rows" >&2; exit 2; }
done
[ -z "$markdown" ] || [ -z "${quick:-}" ] || { echo "bench.sh: --markdown needs all rounds: not with --quick" >&2; exit 2; }
rounds=${ROUNDS:-$rounds} torch_rounds=${ROUNDS:-$torch_rounds} pairs=${PAIRS:-$pairs}
[ "$(id -u)" = 0 ] || { echo "bench.sh: run it as root" >&2; exit 4; }

prepare() {
  . scripts/install.sh
  setup bench || setup demo || exit 1
  cache=$repository/.cache/bench
  fake=$cache/fakecuda results=$cache/results
  mkdir -p "$results"
  testdata/fakecuda/build.sh "$fake"
  # The frame pointer reference needs a program compiled with frame pointers.
  gcc -std=gnu11 -O2 -g -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-optimize-sibling-calls \
    -o "$fake/bench_fp" testdata/programs/bench_c.c "$fake/libcudart.so.12" -ldl -lpthread
  go build -o "$cache/floor" ./scripts/bench/floor
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

# measure ROW COMMAND…: runs the command if the row is selected. Its results replace those of an
# earlier run.
measure() {
  local begin=$SECONDS load
  kind=$1
  shift
  [ -z "$only" ] || [[ ",$only," = *",$kind,"* ]] || return 0
  load=$(cut -d' ' -f1-3 /proc/loadavg)
  rm -f "$results/$kind".*
  local command
  for command in "$@"; do $command; done
  about $((SECONDS - begin)) > "$results/$kind.about"
  measured+=" $kind"
}

# commit_results copies what this run measured into the repository; the samples of peers become
# medians with the lowest and the highest round.
commit_results() {
  local row kept=$repository/scripts/bench/results
  for row in $measured; do
    rm -f "$kept/$row".*
    [ ! -e "$results/$row.rows" ] || cp "$results/$row.rows" "$kept"
    cp "$results/$row.about" "$kept"
    [ ! -e "$results/$row.samples" ] || go run ./scripts/bench/benchtable figures "$results/$row.samples" > "$kept/$row.figures"
  done
}

prepare
describe
if [ -n "$profile" ]; then
  profile_programs
  exit
fi
table_budget_head
measure calls measure_calls table_calls table_call_budget
measure contention measure_contention
measure rate measure_rate
measure live measure_live
measure attach measure_attach
measure forks measure_forks
measure torch measure_torch
measure budget measure_budget
measure tensors measure_tensor_rate measure_tensor_live
measure exits measure_exits
measure capture measure_capture
measure report measure_report
measure holders measure_holders
measure explain measure_explain measure_replay
measure top measure_top
measure serve measure_serve
measure idle measure_idle
measure memory measure_memory
table_foot
measure peers measure_peers
if [ -n "$markdown" ]; then
  commit_results
  go run ./scripts/bench/benchtable page .
  echo "wrote scripts/bench/results, BENCHMARKS.md and docs/benchmarks"
fi
