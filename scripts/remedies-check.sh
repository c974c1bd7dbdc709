#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# remedies-check.sh [--unseen] [FILE]: compares what vramprof whatif predicts of changed programs with the programs really changed: all jobs of
# testdata/remedies on the real PyTorch, and one change of each on GPUs with what it needs, and 3 and 7 % more and less. It writes the table to FILE
# (default: standard output). 12 minutes on an idle machine, as root. With --unseen: only jobs that are marked so, with which no rule was chosen yet. At present there are none.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
[ "${1:-}" != --unseen ] || { export VRAMPROF_REMEDIES_UNSEEN=all; shift; }
scripts/real-torch.sh >&2
file=$(realpath -m "${1:-$(mktemp)}")
VRAMPROF_REMEDIES_TABLE=$file go test -buildvcs=false ./internal/whatif -run '^TestRemediesSayWhatTheChangedJobReallyTakes$' -count 1 -timeout 2h -v >&2 || failed=1
[ -n "${1:-}" ] || { cat "$file"; rm "$file"; }
exit ${failed:-0}
