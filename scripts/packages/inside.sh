#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# inside.sh: runs as a service of systemd in the machine of boot.sh, in the folder of its inputs. Each
# word of vramprof.run on the kernel's command line is a section, deb, and each function
# "SECTION_…" a step of it, in the order below. A step ends with a line "RESULT SECTION STEP ok SECONDS".
# After a failed one the next follows.
cd "$(dirname "$(realpath "$0")")" || exit 1
export DEBIAN_FRONTEND=noninteractive FAKECUDA_SHM=/dev/shm/gpu PAGER=cat MANPAGER=cat LC_ALL=C.UTF-8 HOME=/root
old=$(cat old/version)

fail() { echo "FAILED $*"; exit 1; }

# contains TEXT COMMAND…: fails unless the command succeeds and its output has the text.
contains() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || fail "$*: status $?: $out"
  grep -qE -- "$text" <<<"$out" || fail "$*: no \"$text\": $(tail -n 30 <<<"$out")"
}

# until_true SECONDS COMMAND…: waits until the command succeeds.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "not within the time: $*"
    sleep 0.3
  done
}

ready() { curl -sf localhost:9836/-/ready; }
metric() { curl -sf localhost:9836/metrics | grep -E "$1"; }
line='train\.py:[0-9]+ Trainer\.train_step'

# job: starts the demo's program in alice's home, as alice, and waits for its first steps.
job() {
  touch "$FAKECUDA_SHM"
  chmod 666 "$FAKECUDA_SHM"
  systemd-run --quiet --unit "$1" --uid alice --setenv FAKECUDA_SHM=$FAKECUDA_SHM --setenv PYTHONDONTWRITEBYTECODE=1 python3 /home/alice/job/train.py "${@:2}"
  sleep 1
  systemctl is-active --quiet "$1" || fail "the job ended"
}
pid_of() { systemctl show --property MainPID --value "$1"; }

# traced PID: the service's books have the process's allocations, with the line of its code.
traced() {
  vramprof report --connect -p "$1" | grep -E "$line"
}

start() {
  systemctl set-environment FAKECUDA_SHM=$FAKECUDA_SHM
  job before
  systemctl enable --now vramprof || fail "$(journalctl --no-pager -u vramprof -o cat | tail -n 5)"
  contains ready ready
  job after
  until_true 60 traced "$(pid_of before)"
  until_true 60 traced "$(pid_of after)"
  until_true 60 metric '^vramprof_memory_bytes\{.*\} [1-9]'
  contains "$line" vramprof top --connect --once
  systemctl reload vramprof
  until_true 10 ready
  ! journalctl -u vramprof -o cat | grep -E '"level":"ERROR"|EPERM|not permitted|watchdog' || fail "the log of the service"
}

# rights: systemd runs it as docs/release.md says.
rights() {
  local level pid
  systemd-analyze verify /usr/lib/systemd/system/vramprof.service || fail "systemd-analyze verify"
  level=$(systemd-analyze security vramprof | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
  awk -v level="$level" 'BEGIN { exit !(level > 0 && level < 3) }' || fail "exposure level $level"
  echo "exposure level $level"
  pid=$(pid_of vramprof)
  grep -E '^(Cap|NoNewPrivs|Seccomp)' "/proc/$pid/status"
}

deb_install() {
  apt-get install -y ./old/*.deb
  contains "^vramprof $old " vramprof version
  dpkg --verify vramprof
  ! systemctl is-active vramprof || fail "the service runs"
  ! systemctl is-enabled vramprof || fail "the service is enabled"
}
deb_check() { contains . vramprof check; }
deb_manual() {
  contains '^VRAMPROF-RECORD\(1\)' man vramprof-record
  contains '^VRAMPROF-PLANES\(7\)' man 7 vramprof-planes
  contains 'heap profiler' whatis vramprof
}
deb_completion() {
  contains holders zsh -fc 'autoload -Uz compinit && compinit -u && whence -v _vramprof && print -- $_comps[vramprof] && words=(vramprof h) CURRENT=2 && _describe() { print -l -- ${(P)2} } && _files() { : } && autoload +X _vramprof && _vramprof'
  contains '^holders$' bash -c '. /usr/share/bash-completion/bash_completion; _load_comp vramprof 2>/dev/null || _completion_loader vramprof; COMP_WORDS=(vramprof hol) COMP_CWORD=1; _vramprof; printf "%s\n" "${COMPREPLY[@]}"'
  test -s /usr/share/fish/vendor_completions.d/vramprof.fish
}
deb_demo() { bash demo.sh vramprof /opt/fake "$old"; }
deb_start() { start; }
deb_rights() { rights; }

if [ $# = 2 ]; then
  set -e
  "$1_$2"
  exit
fi
status=0
for section in $(sed -n 's/.*vramprof\.run="\([^"]*\)".*/\1/p' /proc/cmdline); do
  for step in $(sed -n "s/^${section}_\([a-z]*\)() .*/\1/p" "$0"); do
    begin=$(cut -d. -f1 /proc/uptime)
    bash "$0" "$section" "$step" || { echo "RESULT $section $step FAILED"; status=1; continue; }
    echo "RESULT $section $step ok $(($(cut -d. -f1 /proc/uptime) - begin))s"
  done
done
echo "VM-DONE $status"
systemctl poweroff --force --force
