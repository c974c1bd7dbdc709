#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-serve.sh [TEST]: runs the long tests of vramprof serve, or those whose name matches TEST: what
# it does when memory is scarce, and under hundreds of bad clients. Needs root.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
[ "$(id -u)" = 0 ] || { echo "test-serve.sh: tracing needs root" >&2; exit 1; }
. scripts/install.sh
setup test
scripts/real-torch.sh | grep '^skipped' || true
export CGO_CFLAGS=-Wno-deprecated-declarations VRAMPROF_SERVE=1
go test ./cmd/vramprof/test/e2e -run "^Test(Serve|TracingWaits).*${1:-}" -count=1 -v -timeout 30m
