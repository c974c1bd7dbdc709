#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# soak-serve.sh [--short|MINUTES]: drives a million short processes and ten million stacks through
# what "vramprof serve" keeps, in simulated time: some minutes. It prints how much memory is in use
# along the way, and fails if that changes by more than 10 % after the first tenth, or if an event is
# in no figure. Then it runs serve itself for MINUTES (10 by default) while processes of the fake CUDA
# start and end as fast as they can. --short does a hundredth, as CI does, and 2 minutes. The last part
# needs root.
#
# books: the ledger. Processes leave it 10 minutes after their end, once a minute.
# stacks: frames and their names. Nobody uses those of a process after it has left the books.
# tables: the mappings and files of processes, with a tree of the kernel.
# serve: the command, its maps and descriptors. Half a minute after their end, processes leave.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
minutes=10
case ${1-} in
"") export VRAMPROF_SOAK_SERVE=full ;;
--short) unset VRAMPROF_SOAK_SERVE; minutes=2 ;;
*[!0-9]* | 0) echo "usage: soak-serve.sh [--short|MINUTES]" >&2; exit 2 ;;
*) export VRAMPROF_SOAK_SERVE=full; minutes=$1 ;;
esac
export VRAMPROF_SERVE_SOAK=${minutes}m CGO_CFLAGS=-Wno-deprecated-declarations
failed=
run() { # run NAME PACKAGE TEST
	echo "== $1"
	go test "$2" -run "^$3\$" -count=1 -v -timeout $((minutes + 60))m | grep -v '^=== ' || failed="$failed $1"
}

run books ./tracer/ledger TestBooksStayAsLargeAsTheyAre
run stacks ./tracer/stacks TestTheMemoryOfStacksIsFlatWithTenMillionOfThem
run tables ./tracer/unwind TestTheMemoryOfLayoutsIsFlat
run serve ./cmd/vramprof/test/e2e TestServeStaysAsLargeAsItIs

[ -z "$failed" ] || { echo "FAIL:$failed" >&2; exit 1; }
