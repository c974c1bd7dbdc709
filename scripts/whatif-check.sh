#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# whatif-check.sh: runs 12 kinds of jobs on the real PyTorch and the fake CUDA with all settings, and on GPUs
# with 3 and 7 % more and less memory than each needs and at the limit, compares the answers of whatif about one history
# with what the runs do, and writes internal/whatif/testdata/predictions.md and its summary in docs/accuracy.md. 15 minutes on two processors at a load of 10.
# VRAMPROF_WHATIF_TABLE=FILE writes the table there instead.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
table=${VRAMPROF_WHATIF_TABLE:-$(mktemp)}
VRAMPROF_WHATIF_TABLE=$table go test ./internal/whatif -run TestOtherSettingsReserveWhatReplaysSay -count=1 -v -timeout 90m
[ -z "${VRAMPROF_WHATIF_TABLE:-}" ] || exit 0
page=internal/whatif/testdata/predictions.md
sed '/^Own settings: /,$d' "$page" >"$table.page"
cat "$table.page" "$table" >"$page"
awk -v table="$table" '
  /^<!-- end of the summary -->$/ { skip = 0 }
  !skip { print }
  /^<!-- summary of scripts\/whatif-check.sh -->$/ { print ""; while ((getline line < table) > 0 && line !~ /^\|/) print line; skip = 1 }
' docs/accuracy.md >"$table.page"
cat "$table.page" >docs/accuracy.md
rm -f "$table" "$table.page"
