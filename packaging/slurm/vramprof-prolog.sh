#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vramprof-prolog.sh: Slurm's Prolog (slurm.conf). Where no vramprof serve runs, it starts vramprof
# record for the job; vramprof-epilog.sh ends it. It always succeeds, because a Prolog that fails
# drains the node, and takes at most some seconds.
trap 'exit 0' EXIT
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
[ ! -r /etc/vramprof/slurm.conf ] || . /etc/vramprof/slurm.conf
: "${VRAMPROF:=vramprof}" "${VRAMPROF_SOCKET:=/run/vramprof/vramprof.sock}" "${VRAMPROF_REPORTS:=/var/log/vramprof/jobs}" "${VRAMPROF_RECORD:=yes}"

job=${SLURM_JOB_ID:-}
[[ $job =~ ^[0-9]+$ ]] || exit 0
[ ! -S "$VRAMPROF_SOCKET" ] && [ "$VRAMPROF_RECORD" = yes ] || exit 0
umask 077
mkdir -p "$VRAMPROF_REPORTS" || exit 0
# A job without an epilog ends its capture after a week.
# shellcheck disable=SC2016 # the inner shell expands these
setsid --fork bash -c 'echo $$ >"$2.pid"; exec timeout --signal=INT --kill-after=60 7d "$1" record -a --no-oom --force --max-memory 1GiB -o "$2.vram"' \
  - "$VRAMPROF" "$VRAMPROF_REPORTS/$job" </dev/null >"$VRAMPROF_REPORTS/$job.log" 2>&1
# The job may begin once its calls are traced, or after 5 s.
for _ in $(seq 50); do
  ! grep -qs 'tracing\|waiting' "$VRAMPROF_REPORTS/$job.log" || break
  sleep 0.1
done
