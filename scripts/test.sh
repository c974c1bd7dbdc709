#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test.sh: runs formatting, vet, staticcheck, generated files and all tests. Tests that trace
# need root and are skipped without it. Ends with "N passed, N failed, N skipped". A test that failed
# runs once more, alone: one that passes then counts as passed, and is named as unsteady.
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
trap 'rm -f "$results" "$results.failed" "$fuzzed" "$booted" "$checked" "$fetched"; [ -z "${fuzz:-}${kernels:-}${checks:-}${fetch:-}" ] || kill ${fuzz:-} ${kernels:-} ${checks:-} ${fetch:-} 2>/dev/null' EXIT

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

# driver NUMBER: fetches NVIDIA's libraries for the tests on a simulated kernel driver.
driver() {
  local answer
  answer=$(scripts/real-driver.sh "$1" 2>&1) || { echo "$answer"; return 1; }
  answer=$(tail -n 1 <<<"$answer") # behind what was unpacked
  case $answer in skipped:*) echo "$answer"; return 77 ;; esac
}

# What comes over the network is fetched while the first checks need the processors.
(
  step "real PyTorch" pytorch
  step "PyTorch's viewer" viewer
  step "NVIDIA's driver 550" driver 550
  step "NVIDIA's driver 535" driver 535
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
# Runs some fuzz targets, other ones each time, while the tests mostly wait: two of those that read hostile heaps,
# allocators and requests, and others.
fuzz_some() {
  trap 'kill $! 2>/dev/null; exit 130' TERM
  chrt -i 0 scripts/fuzz.sh "${FUZZ_TIME:-4s}" 'holders\.Fuzz(Damaged|Read)Image|allocator\.FuzzRead|web\.FuzzRequests' 2 &
  wait $! || return
  chrt -i 0 scripts/fuzz.sh "${FUZZ_TIME:-4s}" . 4 &
  wait $!
}
fuzz_some >"$fuzzed" 2>&1 &
fuzz=$!
# Boots the oldest and the newest kernel meanwhile: their clocks count instructions, so load does not matter.
chrt -i 0 scripts/test-kernels.sh --ci >"$booted" 2>&1 &
kernels=$!
# go test cannot cache the results of tests that trace, because it does not know the traced programs as
# inputs. Packages run one by one: some tests fail when others slow them down.
pure='/tracer/(booking|capture|clock|defects|fileid|functions|ledger|oom|patience|procfs|shares|stacks|tensors)(/|$)'
# They come first, beside staticcheck: the checks after it begin many processes, which tests of a tracer
# that follows every process notice.
# shellcheck disable=SC2046 # folders of Go packages have no spaces
tests -count=1 -p 1 $(go list ./tracer/... ./cmd/... | grep -vE "$pure|/test/leaks$")
# shellcheck disable=SC2046
tests $(go list ./... | grep -E "$pure") $(go list ./... | grep -vE '/(tracer|cmd)(/|$)')

# Asks the questions of gpu-check.sh on NVIDIA's libraries over a simulated kernel driver.
simulated() {
  local binary driver answer status=0
  [ "$(id -u)" = 0 ] || { echo "tracing needs root"; return 77; }
  binary=$(mktemp)
  go build -buildvcs=false -o "$binary" ./cmd/vramprof || return 1
  for driver in 550 535; do
    answer=$(VRAMPROF=$binary scripts/sim-check.sh $driver/t4 2>&1) && status=0 || status=1
    case $answer in skipped:*) status=77 ;; *) break ;; esac
  done
  rm -f "$binary"
  echo "$answer"
  return $status
}
step "simulated driver" simulated

# Runs a few of the tests of sim-check.sh --tests on NVIDIA's libraries.
on_real_libraries() {
  local answer
  [ "$(id -u)" = 0 ] || { echo "tracing needs root"; return 77; }
  answer=$(scripts/sim-check.sh --tests TestTensorsAsleepAreInNoPart TestTensorsOlderThanTheAttachSleep TestAProcessThatFreesFirstHasItsTensors \
    TestLateAttachLearnsDevices TestEveryTensorIsBookedExactly TestAnEvictedStackComesBack 2>&1) || { echo "$answer"; return 1; }
  case $answer in skipped:*) echo "$answer"; return 77 ;; esac
}
step "tests on NVIDIA's libraries" on_real_libraries

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

# Nothing runs beside them any more. Many failures have one cause, which this would not find.
again() {
  local package test
  [ -s "$results.failed" ] && [ "$(wc -l <"$results.failed")" -le 8 ] || return 0
  while read -r package test; do
    echo "again, alone: $test"
    go test -count=1 -run "^$test\$" "$package" </dev/null || continue
    sed -i -E "s#^fail ($test[:/].*)#unsteady \1#" "$results"
    echo pass >>"$results"
  done <"$results.failed"
}
again

count() { grep -c "^$1" "$results"; }
echo "took $((SECONDS / 60))m$((SECONDS % 60))s"
# "skipped" before "failed": a runner may show only the end.
grep -E '^(skip|fail|unsteady) ' "$results" | sed 's/^skip /skipped: /; s/^fail /failed: /; s/^unsteady /failed first, passed alone: /' | sort -r
printf '%d passed, %d failed, %d skipped\n' "$(count pass)" "$(count fail)" "$(count skip)"
[ "$(count fail)" = 0 ]
