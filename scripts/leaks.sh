#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# leaks.sh [--record|--holders]: runs all programs of testdata/leaks with the real PyTorch under the
# tracer for 60 s, and prints the verdict on each after 10 s and after 60 s, with precision and
# recall. That takes 15 minutes and needs root. --record stores what was observed in testdata/leaks/seen.json.zst.
# --holders runs the Python programs of testdata/leaks/threads for 10 s while holders are looked for,
# and compares verdicts with and without them, in 6 minutes.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
mode=-all
test=TestVerdictsOnTheCorpus
case ${1:-} in
  "") ;;
  --record) mode=-update ;;
  --holders) mode=-holders test=TestVerdictsWithHolders ;;
  *) echo "usage: leaks.sh [--record|--holders]" >&2; exit 2 ;;
esac
scripts/real-torch.sh
go test ./cmd/vramprof/test/leaks -run "^$test\$" -count=1 -v -timeout 60m $mode
