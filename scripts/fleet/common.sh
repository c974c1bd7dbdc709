# SPDX-License-Identifier: Apache-2.0
# common.sh: what the sections of test-fleet.sh share. They source it in the repository's folder.
# Each has a folder of its own, $work, that is removed at the end.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../.."
. scripts/install.sh
setup_go >&2
bin=$PWD/.cache/fleet/bin
cuda=$PWD/.cache/fleet/cuda # the fake CUDA
mkdir -p "$bin"
export PATH=$bin:$PATH
work=$(mktemp -d /tmp/vramprof-fleet.XXXXXX)
children=()

# at_end FUNCTION: runs it when the section ends; the latest first.
ends=()
at_end() { ends=("$1" "${ends[@]}"); }
finish() {
  local status=$? one
  set +e
  for one in "${ends[@]}"; do "$one"; done
  for one in "${children[@]}"; do kill "$one" 2>/dev/null; done
  wait
  rm -rf "$work"
  exit $status
}
trap finish EXIT

# background COMMAND…: starts it; its process is $! and ends with the section.
background() {
  "$@" &
  children+=($!)
}

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*" >&2; exit 1; }

# until_true SECONDS COMMAND…: waits until the command succeeds.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.2
  done
}

# contains FILE TEXT…: fails unless the file has each text.
contains() {
  local file=$1 text
  shift
  for text in "$@"; do
    grep -qF -- "$text" "$file" || { cat "$file" >&2; fail "no \"$text\" in $file"; }
  done
}

# build: builds vramprof and the fake CUDA.
build() {
  go build -o "$bin/" ./cmd/vramprof
  testdata/fakecuda/build.sh "$cuda"
}

# go_tool PROGRAM MODULE: installs a program of a Go module, of the release that this names.
go_tool() {
  command -v "$1" >/dev/null || GOBIN=$bin GOFLAGS=-mod=mod go install "$2" || skip "$1 cannot be built from $2"
}
