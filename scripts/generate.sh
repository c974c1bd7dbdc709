#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate.sh [--golden]: writes all files anew that are generated from others in the repository, in the order in which one
# depends on another. Names what it skips because a tool is missing, and ends with 77 then. --golden also writes the expected
# outputs of tests that need no root: they are no sources' product but what the output should be, so read their diff.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/install.sh
setup_go
case ${1:-} in '' | --golden) ;; *) sed -n '3,5s/^# //p' "$0" >&2; exit 2 ;; esac

skipped=()
# having TOOL… -- COMMAND…: runs a command, or skips it without its tools.
having() {
  local tool missing=()
  while [ "$1" != -- ]; do
    tool=$1
    shift
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  shift
  if [ ${#missing[@]} -gt 0 ]; then
    skipped+=("$*: no ${missing[*]}")
  else
    echo "$*"
    "$@"
  fi
}
# update PACKAGE RUN: has the tests of a package write the files that they compare. -count=1: the go command does not know
# that another step changed them.
update() { having go -- go test -count=1 "$1" -run "$2" -update; }

# capture.pb.go from capture.proto. Stale: TestGeneratedCodeIsCurrent in tracer/capture.
having protoc -- go generate ./tracer/capture/internal/wire
# The BPF objects and their Go bindings, from bpf/*.c, *.h, gen.sh and the unwinder. Stale: TestObjectsFresh in bpf by
# hashes, scripts/check-generated.sh by bytes.
having "${CLANG:-clang-14}" "${LLVM_STRIP:-llvm-strip-14}" -- go generate ./bpf
# The program of the self-test of return probes, from selftest.S. Stale: TestSelfTestProgramIsCurrent.
[ "$(uname -m)" != x86_64 ] || having gcc strip -- go generate ./tracer/preflight
# packaging/kubernetes from the Helm chart, and the chart's copies of rules and dashboard. Stale:
# TestManifestsAreOfTheirChart in internal/docs by hashes, scripts/test-fleet.sh by bytes; the copies:
# TestChartHasTheRulesAndTheDashboard.
PATH=$PWD/.cache/fleet/bin:$PATH # where test-fleet.sh builds helm
having helm -- scripts/fleet/generate.sh
# docs/schema from the Go types of JSON outputs. Stale: TestSchema.
# The exit codes and commands in docs/usage.md, from flags and help. Stale: TestUsage.
update ./cmd/vramprof 'TestSchema|TestUsage'
# The table in docs/metrics.md, from report/metrics/families.go. Stale: TestDocsListAllMetrics.
update ./report/metrics TestDocsListAllMetrics
# BENCHMARKS.md and docs/benchmarks, from scripts/bench/results and the template. Stale: the test that writes them.
update ./scripts/bench/benchtable .
# docs/functions.md from the probe table, and then packaging/man/*.7 from docs. Stale: the tests that write them.
update ./internal/docs .
# packaging/man/*.1 from help and docs/usage.md. Stale: TestManPages.
update ./cmd/vramprof TestManPages
# Not here: docs/tutorial/*.png and the outputs in docs/tutorial.md, which scripts/tutorial.sh takes on a machine with root,
# and scripts/bench/results, which scripts/bench.sh measures. No test can know that they are stale.

if [ "${1:-}" = --golden ]; then
  # The pages, texts, JSON and profiles that reporttest.Golden compares.
  golden=$(grep -rl --include='*_test.go' 'report/reporttest"' report web | xargs -n 1 dirname | sort -u | sed 's|^|./|')
  for package in $golden; do
    update "$package" .
  done
fi

[ ${#skipped[@]} = 0 ] || { printf 'skipped: %s\n' "${skipped[@]}"; exit 77; }
