#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check-generated.sh: rebuilds the BPF objects in a copy and compares them with the committed ones.
# Exit status 0: same, 1: different, 77: cannot compare.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/install.sh
setup_go

clang=${CLANG:-clang-14}
skip() { echo "skipped: $*"; exit 77; }
command -v "$clang" >/dev/null || skip "no $clang"
command -v "${LLVM_STRIP:-llvm-strip-14}" >/dev/null || skip "llvm-strip-14 is not installed"
built=$(sed -n 's/^clang //p' bpf/objects.sum)
here=$("$clang" --version | sed -n 's/.*clang version \([0-9.]*\).*/\1/p')
# Another release may select other instructions.
[ "$built" = "$here" ] || skip "the objects were built with clang $built, this is $here"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r go.mod go.sum bpf "$copy"
rm -f "$copy"/bpf/*_bpfel.* "$copy/bpf/objects.sum"
(cd "$copy/bpf" && sh gen.sh >"$copy/log" 2>&1) || { cat "$copy/log"; exit 1; }
if ! diff -rq bpf "$copy/bpf"; then
  echo "the generated files in bpf/ are stale: run go generate ./bpf"
  exit 1
fi
