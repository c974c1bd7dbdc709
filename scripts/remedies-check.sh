#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# remedies-check.sh [FILE]: compares what vramprof whatif predicts of changed programs with the programs really changed: all jobs of
# testdata/remedies on the real PyTorch, and a third of them on GPUs 3 % above and below what they need. It writes the table to FILE
# (default: standard output). About 12 minutes on an idle machine, as root.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
scripts/real-torch.sh >&2
file=$(realpath -m "${1:-$(mktemp)}")
VRAMPROF_REMEDIES_TABLE=$file go test -buildvcs=false ./internal/whatif -run '^TestRemediesSayWhatTheChangedJobReallyTakes$' -count 1 -timeout 2h -v >&2 || failed=1
[ -n "${1:-}" ] || { cat "$file"; rm "$file"; }
exit ${failed:-0}
