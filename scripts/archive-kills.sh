#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# archive-kills.sh [KILLS]: starts "vramprof serve" KILLS times (200 by default) while a program
# allocates, and kills it with SIGKILL at a random moment. Each time, the archive must open without an
# error and reach the last second before the kill, and the next serve must find the program. It
# prints how much a kill cost. Before, it does the same with a bare writer that begins a new capture
# every few milliseconds. Needs root. VRAMPROF=PROGRAM uses an existing binary. The test is
# TestArchiveSurvivesKills in cmd/vramprof/test/e2e; without this script it kills once.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
kills=${1:-200}
case $kills in *[!0-9]* | "" | 0) echo "usage: archive-kills.sh [KILLS]" >&2; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "archive-kills.sh: tracing needs root" >&2; exit 1; }
. scripts/install.sh
setup test
export CGO_CFLAGS=-Wno-deprecated-declarations VRAMPROF_KILLS=$kills
go test ./tracer/archive -run '^TestKillAtAnyMoment$' -count=1 -v
go test ./cmd/vramprof/test/e2e -run '^TestArchiveSurvivesKills$' -count=1 -v -timeout $((kills / 6 + 10))m
