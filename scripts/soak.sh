#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# soak.sh [MINUTES]: runs one "vramprof record" for MINUTES (30 by default) while targets of all
# kinds start and exit: C, C++, Python, the fake PyTorch and, if available, the real one; many forks
# and threads, replaced libraries, out-of-memory errors, exits during calls. It prints samples, a
# table and what was lost. It prints FAIL with the reasons if a target did not end as expected, a
# file cannot be read, or vramprof uses more at the end than after the first minute. Needs root.
# VRAMPROF=PROGRAM uses an existing binary. The test is TestSoak in cmd/vramprof/test/e2e.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
minutes=${1:-30}
case $minutes in *[!0-9]* | "" | 0) echo "usage: soak.sh [MINUTES]" >&2; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "soak.sh: tracing needs root" >&2; exit 1; }
. scripts/install.sh
setup test
scripts/real-torch.sh | grep '^skipped' || true
export CGO_CFLAGS=-Wno-deprecated-declarations VRAMPROF_SOAK=${minutes}m
go test ./cmd/vramprof/test/e2e -run '^TestSoak$' -count=1 -v -timeout $((minutes * 2 + 15))m | grep --line-buffered -v ' vramprof: probing '
