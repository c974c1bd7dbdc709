#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vramprof-epilog.sh: Slurm's Epilog (slurm.conf). It writes what the job held of the GPUs of this
# node into /var/log/vramprof/jobs, as JOB.NODE.txt and JOB.NODE.json, which belong to the job's
# user. It always succeeds, because an Epilog that fails drains the node, and takes at most 45 s.
trap 'exit 0' EXIT
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
[ ! -r /etc/vramprof/slurm.conf ] || . /etc/vramprof/slurm.conf
: "${VRAMPROF:=vramprof}" "${VRAMPROF_SOCKET:=/run/vramprof/vramprof.sock}" "${VRAMPROF_REPORTS:=/var/log/vramprof/jobs}" "${VRAMPROF_DAYS:=30}"

job=${SLURM_JOB_ID:-}
[[ $job =~ ^[0-9]+$ ]] || exit 0
node=${SLURMD_NODENAME:-$(hostname -s)}
node=${node//[^A-Za-z0-9._-]/_}
umask 077
mkdir -p "$VRAMPROF_REPORTS" || exit 0
chmod 711 "$VRAMPROF_REPORTS" # users read their own reports
find "$VRAMPROF_REPORTS" -maxdepth 1 -type f -mtime "+$VRAMPROF_DAYS" -regex '.*/[0-9]+\.[^/]*\.\(txt\|json\)' -delete

own=$VRAMPROF_REPORTS/$job
if [ -e "$own.pid" ]; then # vramprof-prolog.sh started vramprof record
  pid=$(<"$own.pid")
  running() { [[ $pid =~ ^[0-9]+$ ]] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = timeout ]; }
  ! running || kill -INT "$pid" # timeout passes it on
  for _ in $(seq 100); do
    running || break
    sleep 0.1
  done
  source=("$own.vram")
elif [ -S "$VRAMPROF_SOCKET" ]; then
  sleep 2 # the books are at most a second old
  source=("--connect=$VRAMPROF_SOCKET")
else
  exit 0
fi

# report SUFFIX OPTION…: writes one file. A job without CUDA has none.
report() {
  local file=$VRAMPROF_REPORTS/$job.$node.$1 part
  shift
  part=$(mktemp "$VRAMPROF_REPORTS/.$job.XXXXXX") || return
  if timeout --kill-after=2 15 "$VRAMPROF" report "${source[@]}" --job "$job" "$@" </dev/null >"$part" 2>>"$VRAMPROF_REPORTS/errors" && [ -s "$part" ]; then
    chown "${SLURM_JOB_UID:-0}" "$part"
    chmod 400 "$part"
    mv -f "$part" "$file"
  fi
  rm -f "$part"
}
report txt
report json --json
truncate --size='<65536' "$VRAMPROF_REPORTS/errors" 2>/dev/null
rm -f "$own.pid" "$own.log" "$own.vram"
