#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-page.sh: the live page of a real vramprof serve in Chromium, as root: a program that leaks and ends, a restart
# of vramprof, a moment of the archive (1 minute). With VRAMPROF_SCREENSHOTS=DIR it writes screenshots there.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
[ "$(id -u)" = 0 ] || { echo "test-page.sh: tracing needs root" >&2; exit 4; }
. scripts/install.sh
setup test

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
go build -o "$temporary/vramprof" ./cmd/vramprof
testdata/fakecuda/build.sh "$temporary/cuda" >/dev/null
LD_LIBRARY_PATH=$temporary/cuda VRAMPROF_SERVE_PAGE=$temporary/vramprof go test ./report/html -run 'PageOfServe|LivePage$' -v -count 1
