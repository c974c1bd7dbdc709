#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [--blind] [TIME [REGEXP [NUMBER]]]: runs every fuzz target of the module, or those whose
# "package.Target" matches, or NUMBER of them at random, for TIME each (a Go duration, default 10m), two at a time with one worker each. It prints
# a table at the end. Exit status 1: a target failed or did not run. A failing input is left in its
# package's testdata/fuzz, to be committed with the fix. Other new inputs stay in Go's cache for the
# next run.
#
# --blind changes the seeds and what earlier runs have found without looking at what code an input reaches.
# Counters for that take up to a minute of processor time to compile, which a run of seconds does not gain.
#
# At idle priority: chrt -i 0 scripts/fuzz.sh 1m
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
export CGO_CFLAGS="${CGO_CFLAGS:--Wno-deprecated-declarations}"
blind=''
[ "${1:-}" != --blind ] || { blind=1; shift; }
time=${1:-10m}
only=${2:-.}
number=${3:-1000}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
trap 'kill -- $(jobs -p) 2>/dev/null; exit 130' INT TERM

# targets prints "PACKAGE TARGET" lines. go test -list would link every test program.
targets() {
  grep -rEo --include='*_test.go' --exclude-dir=.cache '^func Fuzz\w+' . |
    sed -nE 's#^(.+)/[^/]+:func (Fuzz.+)$#\1 \2#p' | sort
}

# unguided PACKAGE TARGET: fuzzes the program that runs the package's tests. It has no counters.
unguided() {
  local program=$logs/$2.test cache
  cache=$(go env GOCACHE)/fuzz/$(go list "$1") || return
  go test -c -vet=off -ldflags=-w -o "$program" "$1" || return
  (cd "$1" && "$program" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzminimizetime 100x -test.parallel 1 -test.fuzzcachedir "$cache")
}

# fuzz PACKAGE TARGET: writes its output, then its exit status, to a log. Go also minimizes inputs that
# only reach new code. By time instead of a number of runs, that takes most of a short fuzzing.
fuzz() {
  local log="$logs/$2.$(basename "$1")" status
  if [ -n "$blind" ]; then
    unguided "$1" "$2" >"$log" 2>&1
  else
    go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 100x -parallel 1 "$1" >"$log" 2>&1
  fi
  status=$?
  # On a busy machine, a worker of Go's fuzzer may not answer in time at the end. A real failure
  # names the failing input.
  if [ "$status" = 1 ] && grep -q '^    context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; then
    status=0
  fi
  echo "ended $1 $2 $status" >>"$log"
  if [ "$status" = 0 ]; then
    echo "ok    $2 ($(basename "$1"))"
  else
    echo "FAIL  $2 ($(basename "$1"))"
    grep -v '^fuzz: elapsed' "$log" | head -60
  fi
}

list=$(awk -v only="$only" '{ n = split($1, part, "/"); if (part[n] "." $2 ~ only) print }' < <(targets))
list=$(shuf -n "$number" <<<"$list")
[ -n "$list" ] || { echo "no fuzz target matches $only"; exit 1; }
while read -r package target; do
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
  fuzz "$package" "$target" </dev/null &
done <<<"$list"
wait

# A log ends with "fuzz: elapsed: 9s, execs: 81920 (9102/sec), new interesting: 3 (total: 41)".
printf '\n%-40s %12s %10s  %s\n' target executions 'new inputs' result
cat "$logs"/* | awk '
  /^fuzz: elapsed/ { sub(/^.*execs: /, ""); runs = $1; found = sub(/^.*interesting: /, "") ? $1 : 0 }
  /^ended / {
    n = split($2, part, "/")
    printf "%-40s %12d %10d  %s\n", part[n] "." $3, runs, found, $4 == 0 ? "ok" : "FAIL"
    bad += $4 != 0; runs = found = 0
  }
  END { exit bad > 0 }'
