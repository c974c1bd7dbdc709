#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-long.sh [TEST]: runs the tests that scripts/test.sh leaves out because they take long, or those whose name
# matches TEST: thousands of processes and threads, millions of
# tensors, all trainings whose purposes are compared, all programs after reports, all leaks of a service, and Linux 6.12. Needs root; some 6 minutes, and those of a kernel in QEMU.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
[ "$(id -u)" = 0 ] || { echo "test-long.sh: tracing needs root" >&2; exit 1; }
. scripts/install.sh
setup test
scripts/real-torch.sh | grep '^skipped' || true
export CGO_CFLAGS=-Wno-deprecated-declarations VRAMPROF_LONG=1
go test ./report/verdict -run "^Test(ALeakIsSeen).*${1:-}" -count=1 -v
go test ./cmd/vramprof/test/e2e ./tracer -p 1 -run "^Test(Scale|ShortThreads|Explain|Reported|.*Tensors).*${1:-}" -count=1 -v -timeout 30m
# What only 6.12 forbids: --ci boots older and newer ones.
[ -n "${1:-}" ] || scripts/test-kernels.sh 6.12 || [ $? = 77 ]
