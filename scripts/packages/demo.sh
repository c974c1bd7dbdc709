#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh VRAMPROF FAKE [VERSION]: what scripts/demo.sh shows, with an installed vramprof and a fake
# CUDA that is built already. Fails unless version, check, ps, record, report and leaks give the
# right answers of a program that runs already.
set -euo pipefail
vramprof=$1 fake=$2 version=${3:-}
work=$(mktemp -d)
export LD_LIBRARY_PATH=$fake FAKECUDA_SHM=$work/gpu PYTHONDONTWRITEBYTECODE=1
fail() { echo "failed: $*" >&2; exit 1; }
end() {
  [ -z "${training:-}" ] || { kill "$training" 2>/dev/null; wait "$training" 2>/dev/null; }
  rm -rf "$work"
}
trap end EXIT

# says TEXT COMMAND…: fails unless the command succeeds and its output has the text.
says() {
  local text=$1
  shift
  "$@" >"$work/out" 2>"$work/errors" || { cat "$work/out" "$work/errors" >&2; fail "$* ends with an error"; }
  grep -qE -- "$text" "$work/out" || { cat "$work/out" "$work/errors" >&2; fail "$*: no \"$text\""; }
}

says "^vramprof ${version:-.}" "$vramprof" version
says . "$vramprof" check
python3 "$fake/train.py" >"$work/log" 2>&1 &
training=$!
for _ in $(seq 300); do
  ! grep -q ready "$work/log" || break
  sleep 0.1
done
line='train\.py:[0-9]+ (Trainer\.)?train_step' # Python before 3.11 names no class
says "$training .* python3 " "$vramprof" ps # cuts off long paths
says "$line" "$vramprof" record -p "$training" -d 4 -o "$work/demo.vram"
says "$line" "$vramprof" report "$work/demo.vram"
says 'kept by local "trainer"\.metrics' "$vramprof" report "$work/demo.vram"
says "leaking +.*$line" "$vramprof" leaks -p "$training" -d 8
