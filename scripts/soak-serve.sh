#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# soak-serve.sh [--short]: drives a million short processes and ten million stacks through what
# "vramprof serve" keeps, in simulated time: some minutes. It prints how much memory is in use along
# the way, and fails if that changes by more than 10 % after the first tenth, or if an event is in no
# figure. --short does a hundredth, as CI does.
#
# books: the ledger. Processes leave it 10 minutes after their end, once a minute.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
case ${1-} in
"") export VRAMPROF_SOAK_SERVE=full ;;
--short) unset VRAMPROF_SOAK_SERVE ;;
*) echo "usage: soak-serve.sh [--short]" >&2; exit 2 ;;
esac
failed=
run() { # run NAME PACKAGE TEST
	echo "== $1"
	go test "$2" -run "^$3\$" -count=1 -v -timeout 60m | grep -v '^=== ' || failed="$failed $1"
}

run books ./tracer/ledger TestBooksStayAsLargeAsTheyAre

[ -z "$failed" ] || { echo "FAIL:$failed" >&2; exit 1; }
