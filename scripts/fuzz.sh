#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [TIME [REGEXP [NUMBER]]]: runs every fuzz target of the module, or those whose
# "package.Target" matches, or NUMBER of them at random, for TIME each (a Go duration, default 10m), two at a time with one worker each. It prints
# a table at the end. Exit status 1: a target failed or did not run. A failing input is left in its
# package's testdata/fuzz, to be committed with the fix. Other new inputs stay in Go's cache for the
# next run.
#
# At idle priority: chrt -i 0 scripts/fuzz.sh 1m
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
export CGO_CFLAGS="${CGO_CFLAGS:--Wno-deprecated-declarations}"
time=${1:-10m}
only=${2:-.}
number=${3:-1000}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
trap 'kill -- $(jobs -p) 2>/dev/null; exit 130' INT TERM

# targets prints "PACKAGE TARGET" lines: go test -list prints a package's targets, then "ok PACKAGE
# 0.01s".
targets() {
  local packages
  packages=$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u)
  # shellcheck disable=SC2086 # folders of Go packages have no spaces
  go test -list '^Fuzz' $packages |
    awk '/^Fuzz/ { names[++n] = $1 } $1 == "ok" { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 } /^FAIL/ { bad = 1 } END { exit bad }'
}

# fuzz PACKAGE TARGET: writes its output, then its exit status, to a log.
fuzz() {
  local log="$logs/$2.$(basename "$1")" status
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 2s -parallel 1 "$1" >"$log" 2>&1
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

list=$(targets) || { echo "cannot list the fuzz targets: $list"; exit 1; }
list=$(awk -v only="$only" '{ n = split($1, part, "/"); if (part[n] "." $2 ~ only) print }' <<<"$list")
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
  /^fuzz: elapsed/ { sub(/^.*execs: /, ""); runs = $1; sub(/^.*interesting: /, ""); found = $1 }
  /^ended / {
    n = split($2, part, "/")
    printf "%-40s %12d %10d  %s\n", part[n] "." $3, runs, found, $4 == 0 ? "ok" : "FAIL"
    bad += $4 != 0; runs = found = 0
  }
  END { exit bad > 0 }'
