#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-kernels.sh [--ci|--arm64] [--table FILE] [SERIES…]: boots Debian's kernels in QEMU with
# simulated processors, and traces real programs on the fake CUDA in each; see scripts/kernels/inside.sh.
# By default it boots the whole matrix. --ci boots the oldest and the newest kernel, in two minutes, and runs
# vramprof check on the oldest; scripts/test-long.sh boots one that differs from both. --arm64 boots kernels of arm64, with Debian 12's Python
# and C libraries and with C programs that sign their return addresses. --table writes the result as
# Markdown. Kernels are cached in .cache/kernels. It installs only the Debian packages qemu-system-x86
# or qemu-system-arm with a cross compiler, busybox-static and cpio.
# Exit status 77: a kernel is unavailable and the others passed.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
here=scripts/kernels work=.cache/kernels

# SERIES SUITE FOR: the Ubuntu release that it represents.
matrix_amd64="5.10 bullseye 22.04 (5.15 is newer)
6.1 bookworm 22.04
6.12 trixie 24.04 (6.8 and 6.11 lie between 6.1 and this)
6.17 trixie-backports 24.04 HWE
7.0 trixie-backports 26.04
newest trixie-backports what comes"
matrix_arm64="6.1 bookworm -
6.12 trixie -
newest trixie-backports -"

ci='' table='' wanted='' arch=amd64
while [ $# -gt 0 ]; do
  case $1 in
    --ci) ci=1 ;;
    --arm64) arch=arm64 ;;
    --table) table=$2; shift ;;
    -*) echo "usage: test-kernels.sh [--ci|--arm64] [--table FILE] [SERIES…]" >&2; exit 2 ;;
    *) wanted+=" $1" ;;
  esac
  shift
done
[ -n "$wanted" ] || [ -z "$ci" ] || wanted="5.10 newest"

matrix=$matrix_amd64
[ $arch = amd64 ] || matrix=$matrix_arm64
. $here/arch.sh

# build creates one initial file system for all kernels: traced programs are built and stripped
# here.
build() {
  local to=$work/${prefix}build fake=$work/${prefix}fake
  cross
  mkdir -p "$to" && go build -buildvcs=false -ldflags='-s -w' -o "$to/vramprof" ./cmd/vramprof &&
    go test -c -vet=off -ldflags='-s -w' -o "$to/e2e.test" ./cmd/vramprof/test/e2e &&
    go test -c -vet=off -ldflags='-s -w' -o "$to/tracer.test" ./tracer || return 1
  # The tests have one for amd64, which build.sh keeps if it is up to date.
  local built
  built=$(ls -td .cache/fakecuda/*/ 2>/dev/null | head -n 1)
  [ $arch != amd64 ] || [ -z "$built" ] || { rm -rf "$fake" && cp -a "$built" "$fake"; } || return 1
  testdata/fakecuda/build.sh "$fake" || return 1
  initrd "$work/${prefix}initrd" $here/inside.sh=/inside.sh "$to"/vramprof=/t/vramprof "$to"/e2e.test=/t/e2e.test "$to"/tracer.test=/t/tracer.test "$fake=/fake"
}

# rows prints the boots: NAME SERIES OPTIONS STEPS…. In OPTIONS, a comma stands for a space and "-"
# for none.
rows() {
  local series suite _ steps="check how verifier running command later threads marked warnings"
  [ -z "$ci" ] || steps="check how running warnings"
  [ $arch != arm64 ] || steps="${steps/ marked/} first" # marked: docs/limits.md
  while read -r series suite _; do
    case " ${wanted:-$series} " in *" $series "*) ;; *) continue ;; esac
    case $ci-$series in
      1-newest) echo "$series $series preempt=full ${steps/check how running/how running threads}"; continue ;;
    esac
    echo "$series $series - $steps"
    [ -z "$ci" ] || continue
    case $arch-$series in
      amd64-6.12) echo "$series-integrity $series lockdown=integrity check running"
        echo "$series-confidentiality $series lockdown=confidentiality refused" ;;
      amd64-6.17 | amd64-7.0 | amd64-newest) echo "$series-preempt $series preempt=full threads warnings" ;;
    esac
  done <<<"$matrix"
}

# run NAME SERIES OPTIONS STEPS…: boots a row and writes its console to a file.
run() {
  local name=$1 series=$2 options=${3//,/ } begin=$SECONDS
  shift 3
  [ "$options" != - ] || options=''
  APPEND=$options LIMIT=${LIMIT:-900} $here/boot.sh "$work/$prefix$series/vmlinuz" "$work/${prefix}initrd" "$*" >"$work/${prefix}log/$name" 2>&1
  local status=$?
  if [ $status = 125 ] && ! grep -q '^BOOTED' "$work/${prefix}log/$name"; then # a fault of the simulator: retry once
    APPEND=$options LIMIT=${LIMIT:-900} $here/boot.sh "$work/$prefix$series/vmlinuz" "$work/${prefix}initrd" "$*" >"$work/${prefix}log/$name" 2>&1
    status=$?
  fi
  echo "ENDED $status $((SECONDS - begin))" >>"$work/${prefix}log/$name"
  report "$name" "$series" $status $((SECONDS - begin))
}

# report prints a row as one line, and the whole console of a failed row.
report() {
  local log=$work/${prefix}log/$1 result=ok
  [ "$3" = 0 ] || result=FAIL
  printf '%-4s  %-22s %-18s %4ss  %s\n' $result "$1" "$(cat "$work/$prefix$2/version")" "$4" \
    "$(sed -nE 's/^RESULT (\S+) (\S+) ([0-9]+)$/\1 \2 (\3 s)/p' "$log" | sed 's/ ok / /' | paste -sd, | sed 's/,/, /g')"
  [ "$3" = 0 ] || sed 's/^/    /' "$log"
}

# upstream NAME SERIES: prints the upstream version, which Debian's own number may hide.
upstream() {
  local version
  version=$(sed -nE 's/^ok +kernel +Linux .* \(([0-9.]+)\)$/\1/p' "$work/${prefix}log/$1" | head -n 1)
  echo "${version:-$(sed 's/[-+].*//' "$work/$prefix$2/version")}"
}

# of NAME WORD: prints what the step "how" reported for a row.
of() { sed -nE "s/.*\b$2=([^ ;]+).*/\1/p" "$work/${prefix}log/$1" | head -n 1; }
step_of() { sed -nE "s/^RESULT $2 (\S+) .*/\1/p" "$work/${prefix}log/$1" 2>/dev/null | head -n 1 | sed 's/failed/**no**/;s/^ok$/yes/'; }

write_table() {
  echo '| Linux | instead of the Ubuntu kernel | probes | cookies | mappings from | verifier | running C and Python | new command | later program | preempted threads |'
  echo '|---|---|---|---|---|---|---|---|---|---|'
  local series suite target
  while read -r series suite target; do
    [ -s "$work/${prefix}log/$series" ] || continue
    local preempt=$series
    [ ! -s "$work/${prefix}log/$series-preempt" ] || preempt=$series-preempt
    echo "| $(upstream "$series" "$series") | $target | $(of "$series" probes), $(of "$series" guard) | $(of "$series" cookies) | $(of "$series" discovery) | $(step_of "$series" verifier) | $(step_of "$series" running) | $(step_of "$series" command) | $(step_of "$series" later) | $(step_of "$preempt" threads) |"
  done <<<"$matrix" | sed 's/~/ /g'
}

mkdir -p "$work/${prefix}log"
rm -f "$work/${prefix}log"/*
reason='' had=''
while read -r series suite _; do
  case " ${wanted:-$series} " in *" $series "*) ;; *) continue ;; esac
  if said=$($here/fetch.sh "$series" "$suite" 2>&1); then
    had+=" $series"
  else
    echo "SKIPPED: $said"
    reason=$said
  fi
done <<<"$matrix"
[ -n "$had" ] || { echo "skipped: $reason"; exit 77; }
build || exit 1
failed=0
while read -r row; do
  case "$had " in *" $(cut -d' ' -f2 <<<"$row") "*) ;; *) continue ;; esac
  while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n || failed=1; done
  run $row &
done < <(rows)
while [ -n "$(jobs -p)" ]; do wait -n 2>/dev/null || { [ $? = 127 ] && break; failed=1; }; done
grep -L '^ENDED 0 ' "$work/${prefix}log"/* | grep -q . && failed=1
[ -z "$table" ] || write_table >"$table"
[ $failed = 1 ] || [ -z "$reason" ] || exit 77
exit $failed
