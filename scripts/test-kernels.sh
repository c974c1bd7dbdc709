#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-kernels.sh [--ci] [--table FILE] [SERIES…]: boots Debian's kernels in QEMU with simulated
# processors, and traces real programs on the fake CUDA in each; see scripts/kernels/inside.sh. By
# default it boots the whole matrix; --ci boots the oldest and the newest kernel in about 90
# seconds. --table writes the result as Markdown. Kernels are cached in .cache/kernels; it installs
# only the Debian packages qemu-system-x86, busybox-static and cpio. Exit status 77: a kernel is
# unavailable and the others passed.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
here=scripts/kernels work=.cache/kernels

# SERIES SUITE FOR: the Ubuntu release that it represents.
matrix="5.10 bullseye 22.04 (5.15 is newer)
6.1 bookworm 22.04
6.12 trixie 24.04 (6.8 and 6.11 lie between 6.1 and this)
6.17 trixie-backports 24.04 HWE
7.0 trixie-backports 26.04
newest trixie-backports what comes"

ci='' table='' wanted=''
while [ $# -gt 0 ]; do
  case $1 in
    --ci) ci=1 ;;
    --table) table=$2; shift ;;
    -*) echo "usage: test-kernels.sh [--ci] [--table FILE] [SERIES…]" >&2; exit 2 ;;
    *) wanted+=" $1" ;;
  esac
  shift
done
[ -n "$wanted" ] || [ -z "$ci" ] || wanted="5.10 newest"

[ "$(uname -m)" = x86_64 ] || { echo "skipped: this machine is not x86-64"; exit 77; }
setup kernels || exit 1

# build creates one initial file system for all kernels: traced programs are built and stripped
# here.
build() {
  mkdir -p "$work/build" && testdata/fakecuda/build.sh "$work/fake" &&
    go build -buildvcs=false -ldflags='-s -w' -o "$work/build/vramprof" ./cmd/vramprof &&
    go test -c -ldflags='-s -w' -o "$work/build/e2e.test" ./cmd/vramprof/test/e2e || return 1
  go test -c -ldflags='-s -w' -o "$work/build/tracer.test" ./tracer || return 1
  local python
  python=$(realpath /usr/bin/python3) || return 1
  $here/initrd.sh "$work/initrd" $here/inside.sh=/inside.sh "$work"/build/vramprof=/t/vramprof "$work"/build/e2e.test=/t/e2e.test \
    "$work"/build/tracer.test=/t/tracer.test "$work/fake=/fake" /usr/bin/python3 "$python" "/usr/lib/${python##*/}"
}

# rows prints the boots: NAME SERIES OPTIONS STEPS…. In OPTIONS, a comma stands for a space and "-"
# for none.
rows() {
  local series suite _ steps="check how verifier running command later threads warnings"
  [ -z "$ci" ] || steps="check how running warnings"
  while read -r series suite _; do
    case " ${wanted:-$series} " in *" $series "*) ;; *) continue ;; esac
    if [ -n "$ci" ] && [ "$series" = newest ]; then
      echo "$series $series preempt=full ${steps/running/running threads}"
      continue
    fi
    echo "$series $series - $steps"
    [ -z "$ci" ] || continue
    case $series in
      6.12) echo "$series-integrity $series lockdown=integrity check running"
        echo "$series-confidentiality $series lockdown=confidentiality refused" ;;
      6.17 | 7.0 | newest) echo "$series-preempt $series preempt=full threads warnings" ;;
    esac
  done <<<"$matrix"
}

# run NAME SERIES OPTIONS STEPS…: boots a row and writes its console to a file.
run() {
  local name=$1 series=$2 options=${3//,/ } begin=$SECONDS
  shift 3
  [ "$options" != - ] || options=''
  APPEND=$options LIMIT=${LIMIT:-900} $here/boot.sh "$work/$series/vmlinuz" "$work/initrd" "$*" >"$work/log/$name" 2>&1
  local status=$?
  if [ $status = 125 ] && ! grep -q '^BOOTED' "$work/log/$name"; then # a fault of the simulator: retry once
    APPEND=$options LIMIT=${LIMIT:-900} $here/boot.sh "$work/$series/vmlinuz" "$work/initrd" "$*" >"$work/log/$name" 2>&1
    status=$?
  fi
  echo "ENDED $status $((SECONDS - begin))" >>"$work/log/$name"
  report "$name" "$series" $status $((SECONDS - begin))
}

# report prints a row as one line, and the whole console of a failed row.
report() {
  local log=$work/log/$1 result=ok
  [ "$3" = 0 ] || result=FAIL
  printf '%-4s  %-22s %-18s %4ss  %s\n' $result "$1" "$(cat "$work/$2/version")" "$4" \
    "$(sed -nE 's/^RESULT (\S+) (\S+) ([0-9]+)$/\1 \2 (\3 s)/p' "$log" | sed 's/ ok / /' | paste -sd, | sed 's/,/, /g')"
  [ "$3" = 0 ] || sed 's/^/    /' "$log"
}

# upstream NAME SERIES: prints the upstream version, which Debian's own number may hide.
upstream() {
  local version
  version=$(sed -nE 's/^ok +kernel +Linux .* \(([0-9.]+)\)$/\1/p' "$work/log/$1" | head -n 1)
  echo "${version:-$(sed 's/[-+].*//' "$work/$2/version")}"
}

# of NAME WORD: prints what the step "how" reported for a row.
of() { sed -nE "s/.*\b$2=([^ ;]+).*/\1/p" "$work/log/$1" | head -n 1; }
step_of() { sed -nE "s/^RESULT $2 (\S+) .*/\1/p" "$work/log/$1" 2>/dev/null | head -n 1 | sed 's/failed/**no**/;s/^ok$/yes/'; }

write_table() {
  echo '| Linux | instead of the Ubuntu kernel | probes | cookies | mappings from | verifier | running C and Python | new command | later program | preempted threads |'
  echo '|---|---|---|---|---|---|---|---|---|---|'
  local series suite target
  while read -r series suite target; do
    [ -s "$work/log/$series" ] || continue
    local preempt=$series
    [ ! -s "$work/log/$series-preempt" ] || preempt=$series-preempt
    echo "| $(upstream "$series" "$series") | $target | $(of "$series" probes), $(of "$series" guard) | $(of "$series" cookies) | $(of "$series" discovery) | $(step_of "$series" verifier) | $(step_of "$series" running) | $(step_of "$series" command) | $(step_of "$series" later) | $(step_of "$preempt" threads) |"
  done <<<"$matrix" | sed 's/~/ /g'
}

mkdir -p "$work/log"
rm -f "$work"/log/*
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
grep -L '^ENDED 0 ' "$work"/log/* | grep -q . && failed=1
[ -z "$table" ] || write_table >"$table"
[ $failed = 1 ] || [ -z "$reason" ] || exit 77
exit $failed
