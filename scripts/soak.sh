#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# soak.sh [MINUTES]: one "vramprof record" for so long (default 30) under targets of all sorts that come and go: C, C++,
# Python, the toy PyTorch and, where it can be had, the real one; storms of forks and threads, replaced libraries,
# out-of-memory errors, ends within calls. Prints samples, a table, what was lost, and says FAIL with the reasons if a
# target did not end as it should, a file cannot be read, or vramprof holds more at the end than after the first minute.
# Needs root. VRAMPROF=PROGRAM takes a vramprof that is built already. The test is TestSoak in cmd/vramprof/test/e2e.
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
