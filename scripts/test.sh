#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test.sh: runs formatting, vet, staticcheck, generated files and all tests. Tests that trace
# need root and are skipped without it. Ends with "N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
if [ "$(id -u)" = 0 ]; then
  . scripts/install.sh
  setup test || exit 1
fi
results=$(mktemp)
fuzzed=$(mktemp)
booted=$(mktemp)
checked=$(mktemp)
fetched=$(mktemp)
trap 'rm -f "$results" "$fuzzed" "$booted" "$checked" "$fetched"; [ -z "${fuzz:-}${kernels:-}${checks:-}${fetch:-}" ] || kill ${fuzz:-} ${kernels:-} ${checks:-} ${fetch:-} 2>/dev/null' EXIT

# step NAME COMMAND…: runs a check, and notes the outcome.
step() {
  local name=$1 output status begin=$SECONDS
  shift
  output=$("$@" 2>&1)
  status=$?
  case $status in
    0) printf 'ok    %s\t%ds\n' "$name" $((SECONDS - begin)); echo pass >>"$results" ;;
    77) echo "skip  $name: $output"; echo skip >>"$results" ;;
    *) printf 'FAIL  %s\n%s\n' "$name" "$output"; echo fail >>"$results" ;;
  esac
}

formatted() {
  local files
  files=$(gofmt -l $(go list -f '{{.Dir}}' ./...)) && [ -z "$files" ] || { echo "run gofmt -w on: $files"; return 1; }
}

# tests [FLAG…] PACKAGE…: runs go test and shows only failures and skips.
tests() {
  go test -json "$@" | python3 scripts/gotest.py "$results" || grep -q '^fail' "$results" || echo fail >>"$results"
}

# Fetches the real PyTorch for the tests that trace it. Skipped where its packages are not available.
pytorch() {
  local answer
  answer=$(scripts/real-torch.sh) || return 1
  case $answer in skipped:*) echo "$answer"; return 77 ;; esac
}

# Fetches the JavaScript of PyTorch's memory viewer, which loads our snapshots. Skipped likewise.
viewer() {
  local answer
  answer=$(report/export/testdata/memory-viz.sh) || return 1
  case $answer in skipped:*) echo "$answer"; return 77 ;; esac
}

# What comes over the network is fetched while the first checks need the processors.
(
  step "real PyTorch" pytorch
  step "PyTorch's viewer" viewer
) >"$fetched" 2>&1 &
fetch=$!
step gofmt formatted
step "go vet" go vet ./...
wait "$fetch"
fetch=''
cat "$fetched"
# What only needs processor time runs while the tests mostly wait.
(
  chrt -i -p 0 "$BASHPID"
  step staticcheck go tool staticcheck ./...
  step "generated files" scripts/check-generated.sh
  step "arm64" scripts/test-arm64.sh --ci
) >"$checked" 2>&1 &
checks=$!
# Runs some fuzz targets, other ones each time, while the tests mostly wait.
chrt -i 0 scripts/fuzz.sh "${FUZZ_TIME:-4s}" . 12 >"$fuzzed" 2>&1 &
fuzz=$!
# Boots the oldest and the newest kernel meanwhile: their clocks count instructions, so load does not matter.
chrt -i 0 scripts/test-kernels.sh --ci >"$booted" 2>&1 &
kernels=$!
# go test cannot cache these results, because it does not know the traced programs as inputs.
# Packages run one by one: some tests fail when others slow them down.
pure='/tracer/(booking|capture|clock|defects|fileid|functions|ledger|oom|patience|procfs|shares|stacks|tensors)(/|$)'
# shellcheck disable=SC2046 # folders of Go packages have no spaces
tests -count=1 -p 1 $(go list ./tracer/... ./cmd/... | grep -vE "$pure|/test/leaks$")
# shellcheck disable=SC2046
tests $(go list ./... | grep -E "$pure") $(go list ./... | grep -vE '/(tracer|cmd)(/|$)')

fuzzing() {
  [ "$fuzz_status" = 0 ] || { cat "$fuzzed"; return 1; }
}
wait "$checks"
checks=''
cat "$checked"
wait "$fuzz"
fuzz_status=$? fuzz=''
step fuzzing fuzzing

in_kernels() {
  cat "$booted"
  return "$kernels_status"
}
wait "$kernels"
kernels_status=$? kernels=''
step kernels in_kernels
# Leak verdicts depend on how programs run over time: nothing else runs beside them.
tests -count=1 ./cmd/vramprof/test/leaks

count() { grep -c "^$1" "$results"; }
echo "took $((SECONDS / 60))m$((SECONDS % 60))s"
# "skipped" before "failed": a runner may show only the end.
grep -E '^(skip|fail) ' "$results" | sed 's/^skip /skipped: /; s/^fail /failed: /' | sort -r
printf '%d passed, %d failed, %d skipped\n' "$(count pass)" "$(count fail)" "$(count skip)"
[ "$(count fail)" = 0 ]
