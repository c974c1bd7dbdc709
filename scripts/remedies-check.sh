#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# remedies-check.sh [FILE]: compares what vramprof whatif predicts of changed programs with the programs really changed: all jobs of
# testdata/remedies on the real PyTorch, and one change of each on GPUs with what it needs, and 3 and 7 % more and less. It writes the table to FILE
# (default: standard output). 33 minutes at a load of 25, as root.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
scripts/real-torch.sh >&2
file=$(realpath -m "${1:-$(mktemp)}")
VRAMPROF_REMEDIES_TABLE=$file go test -buildvcs=false ./internal/whatif -run '^TestRemediesSayWhatTheChangedJobReallyTakes$' -count 1 -timeout 2h -v >&2 || failed=1
[ -n "${1:-}" ] || { cat "$file"; rm "$file"; }
exit ${failed:-0}
