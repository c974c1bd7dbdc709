#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# inside.sh: runs as a service of systemd in the machine of boot.sh, in the folder of its inputs. The
# first word of vramprof.run on the kernel's command line is a section, deb or rpm. Each function
# "SECTION_…" is a step of it; by default all run, in the order below, otherwise those that the other
# words name. A step ends with a line "RESULT SECTION STEP ok SECONDS". After a failed one the next
# follows.
cd "$(dirname "$(realpath "$0")")" || exit 1
export DEBIAN_FRONTEND=noninteractive FAKECUDA_SHM=/dev/shm/gpu PAGER=cat MANPAGER=cat LC_ALL=C.UTF-8 HOME=$PWD
old=$(cat old/version) new=$(cat new/version)

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

# tree: prints the files of the machine, without the package managers' own and logs.
tree() { find / -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/rpm -o -path /var/log -o -path /var/cache/apt -o -path /var/cache/debconf -o -path /var/cache/man \) -prune -o -print | sort; }

# remains REGEX: fails if a file came since "tree >before" whose name does not match.
remains() {
  tree >after
  ! comm -13 before after | grep -vxE "$1" || fail "these files remain"
  ! comm -23 before after | grep . || fail "these files are gone"
}

ready() { curl -sf localhost:9836/-/ready; }
metric() { curl -sf localhost:9836/metrics | grep -E "$1"; }
line='train\.py:[0-9]+ Trainer\.train_step'

# job NAME OPTION…: starts the demo's program in alice's home, as alice, and waits for its first steps.
# By default it leaks so slowly that the GPU has memory until the end.
job() {
  touch "$FAKECUDA_SHM"
  chmod 666 "$FAKECUDA_SHM"
  systemd-run --quiet --unit "$1" --uid alice --setenv FAKECUDA_SHM=$FAKECUDA_SHM --setenv PYTHONDONTWRITEBYTECODE=1 python3 /home/alice/job/train.py --leak-bytes 16384 "${@:2}"
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

# restart DROP-IN…: restarts the service with exactly these drop-ins.
restart() {
  local folder=/etc/systemd/system/vramprof.service.d name
  rm -rf $folder
  for name in "$@"; do
    install -D -m 644 "/usr/share/doc/vramprof/examples/$name" "$folder/$name" || fail "no drop-in $name"
  done
  systemctl daemon-reload
  systemctl restart vramprof || fail "$(journalctl --no-pager -u vramprof -o cat | tail -n 60)"
}

# alerts DROP-IN…: with alerts.conf and these, --on-oom runs its command as nobody, and under the
# service's AppArmor profile if it has one.
alerts() {
  local profile
  profile=$(cat "/proc/$(pid_of vramprof)/attr/current")
  cp /etc/vramprof/serve.yml serve.yml
  echo 'on-oom: echo "$(id --user --name) $(cat /proc/self/attr/current)" | logger -t alarm' >>/etc/vramprof/serve.yml
  restart alerts.conf "$@"
  job "greedy$#" --leak-bytes 2147483648
  until_true 60 sh -c "journalctl -t alarm -o cat | grep -xF 'nobody $profile'"
  cp serve.yml /etc/vramprof/serve.yml
  restart "$@"
  until_true 60 traced "$(pid_of after)"
}

# loaded: the kernel has the AppArmor profile.
loaded() { grep -x 'vramprof (enforce)' /sys/kernel/security/apparmor/profiles; }

# confined: the service runs under its AppArmor profile, which has denied nothing.
confined() {
  contains "/usr/bin/vramprof \($(pid_of vramprof)\) vramprof\$" aa-status
  until_true 60 traced "$(pid_of before)"
  ! journalctl -k -o cat | grep 'apparmor="DENIED".*profile="vramprof"' || fail "denied by AppArmor"
}

apparmor() {
  loaded || fail "the profile is not loaded"
  contains '^unconfined$' cat "/proc/$(pid_of vramprof)/attr/current"
  # The fake driver's state, which the service of a real one has no right to.
  echo "$FAKECUDA_SHM rwk," >/etc/apparmor.d/local/usr.bin.vramprof
  apparmor_parser --replace /etc/apparmor.d/usr.bin.vramprof
  restart apparmor.conf
  confined
  alerts apparmor.conf
  confined
  apt-get install -y --reinstall ./new/*.deb
  confined
}

# moment: notes the time, and waits until the archive has it, which is written each second.
moment() {
  date --utc +%Y-%m-%dT%H:%M:%SZ >moment
  sleep 3
}

# upgrade COMMAND…: of a running service, in the middle of a job.
upgrade() {
  local pid
  pid=$(pid_of vramprof)
  moment
  "$@" || fail "$*: status $?"
  contains "^vramprof $new " vramprof version
  systemctl is-active --quiet vramprof && systemctl is-enabled --quiet vramprof || fail "the service does not run"
  [ "$(pid_of vramprof)" != "$pid" ] || fail "the old one still runs"
  [ "$(readlink "/proc/$(pid_of vramprof)/exe")" = /usr/bin/vramprof ] || fail "another program runs"
  until_true 60 metric "^vramprof_build_info\{.*version=\"$new\""
  until_true 60 traced "$(pid_of after)"
  contains "$line" vramprof report /var/lib/vramprof --at "$(cat moment)"
  # The program of "alerts" was out of memory.
  ! journalctl -u vramprof -o cat | grep '"level":"ERROR"' | grep -v '"msg":"out of memory"' || fail "the log of the service"
}

stopped() {
  ! systemctl is-active --quiet vramprof || fail "the service runs"
  ! pgrep -x vramprof || fail "vramprof runs"
  ! systemctl is-enabled vramprof 2>/dev/null || fail "the service is enabled"
  systemctl stop before after 2>/dev/null || true
  systemctl reset-failed
  systemctl unset-environment FAKECUDA_SHM
}

deb_install() {
  tree >before
  apt-get install -y ./old/*.deb
  contains "^vramprof $old " vramprof version
  dpkg --verify vramprof
  ! systemctl is-active vramprof || fail "the service runs"
  ! systemctl is-enabled vramprof || fail "the service is enabled"
  loaded || fail "the profile is not loaded"
}
deb_check() { contains . vramprof check; }
deb_manual() {
  contains '^VRAMPROF-RECORD\(1\)' man vramprof-record
  contains '^VRAMPROF-PLANES\(7\)' man 7 vramprof-planes
  contains 'heap profiler' whatis vramprof || contains . man -w vramprof
}
deb_completion() {
  contains holders zsh -fc 'autoload -Uz compinit && compinit -u && whence -v _vramprof && print -- $_comps[vramprof] && words=(vramprof h) CURRENT=2 && _describe() { print -l -- ${(P)2} } && _files() { : } && autoload +X _vramprof && _vramprof'
  contains '^holders$' bash -c '. /usr/share/bash-completion/bash_completion; _load_comp vramprof 2>/dev/null || _completion_loader vramprof; COMP_WORDS=(vramprof hol) COMP_CWORD=1; _vramprof; printf "%s\n" "${COMPREPLY[@]}"'
  contains '^holders' fish --no-config --command 'source /usr/share/fish/vendor_completions.d/vramprof.fish; complete --do-complete "vramprof h"'
  contains '^--pid' fish -c 'complete --do-complete "vramprof record --p"'
}
deb_demo() { bash demo.sh vramprof /opt/fake "$old"; }
deb_start() { start; }
deb_rights() { rights; }
deb_alerts() { alerts; }
deb_upgrade() {
  echo "keep: 20m" >/etc/vramprof/serve.yml
  upgrade apt-get install -y ./new/*.deb
  contains '^keep: 20m$' cat /etc/vramprof/serve.yml
}
deb_apparmor() { apparmor; }
deb_remove() {
  moment
  apt-get remove -y vramprof
  rm -rf /etc/systemd/system/vramprof.service.d
  ! loaded || fail "the profile is loaded"
  stopped
  remains '/var/lib/vramprof(/.*)?|/etc/vramprof(/serve\.yml)?|/etc/apparmor\.d((/local)?/usr\.bin\.vramprof)?'
  ls /var/lib/vramprof | grep -q . || fail "no archive"
}
deb_again() { # a new installation has the archive of the last one
  apt-get install -y ./new/*.deb
  loaded || fail "the profile is not loaded"
  ! systemctl is-enabled vramprof || fail "the service is enabled"
  contains "$line" vramprof report /var/lib/vramprof --at "$(cat moment)"
}
deb_purge() {
  apt-get purge -y vramprof
  ! loaded || fail "the profile is loaded"
  stopped
  remains -
}

rpms() { rpm --nodeps --force-debian "$@"; } # Debian's packages are not in rpm's books
rpm_install() {
  # Fedora's preset, which Debian lacks.
  mkdir -p /etc/systemd/system-preset
  echo 'disable *' >/etc/systemd/system-preset/99-default-disable.preset
  # Fedora's package "filesystem" owns the one; Debian's rpm does not know that fish owns the other.
  mkdir -p /usr/share/licenses
  touch /usr/share/fish/vendor_completions.d/other.fish
  tree >before
  rpms -i old/*.rpm
  contains "^vramprof $old " vramprof version
  rpm -V --nodeps vramprof
  ! systemctl is-active vramprof || fail "the service runs"
  ! systemctl is-enabled vramprof || fail "the service is enabled"
}
rpm_check() { contains . vramprof check; }
rpm_manual() { contains '^VRAMPROF-RECORD\(1\)' man vramprof-record; }
rpm_demo() { bash demo.sh vramprof /opt/fake "$old"; }
rpm_start() { start; }
rpm_rights() { rights; }
rpm_upgrade() {
  echo "keep: 20m" >/etc/vramprof/serve.yml
  upgrade rpms -U new/*.rpm
  contains '^keep: 20m$' cat /etc/vramprof/serve.yml
}
rpm_remove() {
  rpms -e vramprof
  stopped
  remains '/var/lib/vramprof(/.*)?|/etc/vramprof(/serve\.yml\.rpmsave)?'
  ls /var/lib/vramprof | grep -q . || fail "no archive"
}

if [ $# = 2 ]; then
  set -e
  "$1_$2"
  exit
fi
status=0
read -r section steps < <(sed -n 's/.*vramprof\.run="\([^"]*\)".*/\1/p' /proc/cmdline)
for step in ${steps:-$(sed -n "s/^${section}_\([a-z]*\)() .*/\1/p" "$0")}; do
  begin=$(cut -d. -f1 /proc/uptime)
  bash "$0" "$section" "$step" || { echo "RESULT $section $step FAILED"; status=1; continue; }
  echo "RESULT $section $step ok $(($(cut -d. -f1 /proc/uptime) - begin))s"
done
echo "VM-DONE $status"
systemctl poweroff --force --force
