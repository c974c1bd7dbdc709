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
work=$(mktemp -d)
results=$work/results
touch "$results"
# What runs beside something else, by name: its process, then its exit status. Its output is in a file.
declare -A beside=() ended=()
trap 'rm -rf "$work"; [ ${#beside[@]} = 0 ] || kill "${beside[@]}" 2>/dev/null' EXIT

# begin NAME COMMAND…: runs a command beside what follows.
begin() {
  local name=$1
  shift
  "$@" >"$work/$name" 2>&1 &
  beside[$name]=$!
}

# await NAME: waits for it.
await() {
  wait "${beside[$1]}"
  ended[$1]=$?
  unset "beside[$1]"
}

# end NAME: waits for it, and shows its output.
end() {
  await "$1"
  cat "$work/$1"
}

# step NAME COMMAND…: runs a check, and notes the outcome. Two processors bound the suite, so that what
# counts is the processor time of a step, its children's too.
TIMEFORMAT='      these tests took %0Rs, of the processors %0Us and %0Ss in the kernel'
step() {
  local name=$1 output status begin=$SECONDS used=$work/used.$BASHPID TIMEFORMAT='%0Us and %0Ss in the kernel'
  shift
  { time output=$("$@" 2>&1); } 2>"$used"
  status=$?
  case $status in
    0) printf 'ok    %s\t%ds, of the processors %s\n' "$name" $((SECONDS - begin)) "$(cat "$used")"; echo pass >>"$results" ;;
    77) echo "skip  $name: $output"; echo skip >>"$results" ;;
    *) printf 'FAIL  %s\n%s\n' "$name" "$output"; echo fail >>"$results" ;;
  esac
}

formatted() {
  local files
  files=$(gofmt -l $(go list -f '{{.Dir}}' ./...)) && [ -z "$files" ] || { echo "run gofmt -w on: $files"; return 1; }
}

# tests [FLAG…] PACKAGE…: runs go test and shows only failures and skips. Other tests may run beside
# them, so that their results come together at the end. go vet has seen them all. Their programs have no
# DWARF, which takes half of the time to link one.
tests() {
  local own
  own=$(mktemp -p "$work")
  time go test -json -timeout=20m -vet=off -ldflags=-w "$@" | python3 scripts/gotest.py "$own" || grep -q '^fail' "$own" || echo fail >>"$own"
  cat "$own" >>"$results"
  [ ! -e "$own.failed" ] || cat "$own.failed" >>"$results.failed"
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

# PyCUDA for the test of its names. Skipped likewise.
pycuda() {
  local answer
  answer=$(scripts/real-library.sh pycuda 2>&1) || { echo "$answer"; return 1; }
  case $answer in skipped:*) echo "$answer"; return 77 ;; esac
}

# What comes over the network is fetched while the first checks and tests need the processors. A test that
# needs it waits for its lock.
fetching() {
  step "real PyTorch" pytorch
  step "PyTorch's viewer" viewer
  step "NVIDIA's driver 550" driver 550
  step "NVIDIA's driver 535" driver 535
  step "PyCUDA" pycuda
}
begin fetched fetching
step gofmt formatted
go list -export -f '' ./... >/dev/null 2>&1 # compiles all once, before several commands need it

# Packages whose tests trace nothing and start no program with CUDA, and take a minute or more of processor time together.
light='/(report|symbolize)(/|$)|/tracer/(capture|ledger)(/|$)|/internal/(allocsim|docs|importrules|pickle)$'
# What needs the real PyTorch or a browser, and begins first, since it takes longest.
heavy='/internal/(whatif|snapshot|realtorch)$|/report/(export|html)$'
# Other packages that trace nothing.
pure='/tracer/(clock|fileid|oom|procfs|shares|stacks)(/|$)'
packages=$(go list ./...)
choose() { grep -E "$1" <<<"$packages" | grep -vE "${2:-^$}"; }

# What only needs processor time runs while the tests mostly wait.
light() {
  renice -n 19 "$BASHPID" >/dev/null
  step "go vet" go vet ./...
  # shellcheck disable=SC2046 # folders of Go packages have no spaces
  tests -timeout=60m $(choose "$light" "$heavy") # they wait for a processor most of the time
}
begin light light
checking() {
  chrt -i -p 0 "$BASHPID"
  # Collecting garbage less often takes a third of its processor time away.
  step staticcheck env GOGC=400 GOMEMLIMIT=2GiB go tool staticcheck ./...
  step "generated files" scripts/check-generated.sh
  step "arm64" scripts/test-arm64.sh --ci
}
begin checked checking
# Runs four fuzz targets, other ones each time, while the tests mostly wait: two of those that read hostile heaps,
# allocators and requests, and two others.
fuzz_some() {
  trap 'kill $! 2>/dev/null; exit 130' TERM
  chrt -i 0 scripts/fuzz.sh --blind "${FUZZ_TIME:-4s}" 'holders\.Fuzz(Damaged|Read)Image|allocator\.FuzzRead|web\.FuzzRequests' 2 &
  wait $! || return
  chrt -i 0 scripts/fuzz.sh --blind "${FUZZ_TIME:-4s}" . 2 &
  wait $!
}
begin fuzzed fuzz_some
# Boots the oldest and the newest kernel meanwhile: their clocks count instructions, so load does not matter.
begin booted chrt -i 0 scripts/test-kernels.sh --ci
# go test cannot cache the results of tests that trace, because it does not know the traced programs as
# inputs. Those of package tracer mostly wait, and trace only programs of their own: packages that read
# processes run beside them, one by one. The others run after each other: some tests fail when others slow them down.
begin traced tests -count=1 ./tracer
# shellcheck disable=SC2046
tests -count=1 -p 1 $(choose /tracer/ "$light|$pure")
end traced
end fetched
# One binary for all tests that run the command.
export VRAMPROF=$work/vramprof
go build -buildvcs=false -ldflags=-w -o "$VRAMPROF" ./cmd/vramprof || unset VRAMPROF
tests -count=1 -p 2 ./cmd/vramprof ./cmd/vramprof/test/accuracy
tests -count=1 ./cmd/vramprof/test/e2e
# These begin many processes, which tests of a tracer that follows every process notice.
# shellcheck disable=SC2046
begin others tests $(choose "$heavy") $(choose . "/(tracer|cmd)(/|$)|$light|$heavy") $(choose "$pure")

# Asks the questions of gpu-check.sh on NVIDIA's libraries over a simulated kernel driver.
simulated() {
  local driver answer status=0
  [ "$(id -u)" = 0 ] || { echo "tracing needs root"; return 77; }
  [ -n "${VRAMPROF:-}" ] || { echo "vramprof does not build"; return 1; }
  for driver in 550 535; do
    answer=$(scripts/sim-check.sh $driver/t4 2>&1) && status=0 || status=1
    case $answer in skipped:*) status=77 ;; *) break ;; esac
  done
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

end others
# Leak verdicts depend on how programs run over time: only what has the processor when nobody else wants it
# runs beside them.
end light
tests -count=1 ./cmd/vramprof/test/leaks
end checked

fuzzing() {
  [ "${ended[fuzzed]}" = 0 ] || { cat "$work/fuzzed"; return 1; }
}
await fuzzed
step fuzzing fuzzing

in_kernels() {
  cat "$work/booted"
  return "${ended[booted]}"
}
await booted
step kernels in_kernels

# Nothing runs beside them any more. Many failures have one cause, which this would not find.
again() {
  local package test pattern
  [ -s "$results.failed" ] && [ "$(wc -l <"$results.failed")" -le 8 ] || return 0
  while read -r package test pattern; do
    echo "again, alone: $pattern"
    go test -count=1 -run "$pattern" "$package" </dev/null || continue
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
