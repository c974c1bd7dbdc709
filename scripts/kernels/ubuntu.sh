#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ubuntu.sh STEP…: runs in a kernel as init's only child, for test-ubuntu.sh. Each step ends with a
# line "RESULT STEP ok|failed". scope3 comes last: only a boot undoes it.
#   sysctls   vramprof traces with Ubuntu's settings, and with stricter ones
#   profile   the AppArmor profile loads, and vramprof passes check and traces under it
#   denied    the profile forbids writing other files, memory of processes and settings
#   alerts    vramprof serve runs under it, and the commands of alerts keep it
#   peer      a process with a profile as Docker's is hidden from vramprof under its own profile,
#             and traced without
#   logged    the profile denied vramprof nothing else
#   scope3    with ptrace_scope 3, vramprof traces C, and check warns
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LD_LIBRARY_PATH=/fake FAKECUDA_SHM=/tmp/machine
confined="aa-exec -p vramprof --"
cd /root || exit 1
mkdir -p /var/lib/vramprof /run/vramprof
chmod 755 / && chmod 1777 /tmp
echo nobody:x:65534:65534::/:/bin/sh >/etc/passwd
echo 127.0.0.1 localhost >/etc/hosts

# target PROFILE: starts a program that allocates five times a second, and sets pid.
target() {
  printf 'repeat 1000000\nmalloc b 2000000\nsleep 200\nend\n' >/tmp/script
  if [ "$1" = unconfined ]; then
    /fake/alloc_c </tmp/script >/dev/null &
  else
    aa-exec -p "$1" -- /fake/alloc_c </tmp/script >/dev/null &
  fi
  pid=$!
  until grep -q libcuda /proc/$pid/maps; do sleep 0.2; done
}

# traces PREFIX…: succeeds if vramprof, started so, finds the stack trace of pid's allocations.
traces() {
  "$@" vramprof report -p $pid -d 3 --view tree >/tmp/out 2>&1
  cat /tmp/out
  grep -q 'level1 \[alloc_c\]' /tmp/out
}

set_and_trace() {
  for setting in "$@"; do
    sysctl -w "$setting" || return 1
  done
  vramprof check >/tmp/check || { cat /tmp/check; return 1; }
  traces env
}

# refused FILE: succeeds if a program under the profile cannot write FILE, which root could.
refused() {
  ! $confined sh -c ": >>$1" 2>/tmp/out || { echo "written: $1"; return 1; }
  grep -i 'permission denied' /tmp/out
}

step() {
  case $1 in
    sysctls)
      target unconfined
      set_and_trace kernel.unprivileged_bpf_disabled=2 kernel.perf_event_paranoid=4 kernel.yama.ptrace_scope=1 &&
        set_and_trace kernel.yama.ptrace_scope=2
      ;;
    scope3)
      target unconfined
      set_and_trace kernel.yama.ptrace_scope=3 && grep 'warn  ptrace scope' /tmp/check
      ;;
    profile)
      apparmor_parser --replace --skip-cache /etc/apparmor.d/usr.bin.vramprof /etc/apparmor.d/container || return 1
      target unconfined
      $confined vramprof check >/tmp/check || { cat /tmp/check; return 1; }
      grep 'ok    AppArmor        vramprof (enforce)' /tmp/check && traces $confined &&
        $confined vramprof record -p $pid -d 3 -o /var/lib/vramprof/run.pb.gz
      ;;
    denied)
      refused /etc/vramprof.txt && refused /root/vramprof.txt && refused /proc/$pid/mem &&
        refused /proc/sys/kernel/hostname && refused /sys/kernel/profiling
      ;;
    alerts)
      # As the service runs: NoNewPrivileges comes first.
      setpriv --no-new-privs $confined vramprof serve --on-oom 'cat /proc/self/attr/current >/tmp/alert' >/tmp/serve 2>&1 &
      serve=$!
      for _ in $(seq 60); do wget -q -O - http://localhost:9836/-/ready 2>/dev/null && break; sleep 1; done
      printf 'malloc a 1000\nsleep 3000\nfail 90000000000000\n' >/tmp/script
      /fake/alloc_c </tmp/script
      for _ in $(seq 60); do [ ! -s /tmp/alert ] || break; sleep 1; done
      kill -TERM $serve
      wait $serve || { cat /tmp/serve; return 1; }
      ls /var/lib/vramprof
      grep 'vramprof (enforce)' /tmp/alert || { cat /tmp/serve; return 1; }
      ;;
    peer)
      target container
      traces env && ! traces $confined
      ;;
    logged)
      # Root here has capabilities that the service lacks, and vramprof can do without.
      ! dmesg | grep 'apparmor="DENIED"' | grep 'profile="vramprof"' | grep -v -e 'comm="sh"' -e 'peer="container"' -e 'capname="setpcap"' -e 'capname="sys_resource"'
      ;;
    *) echo "no step $1"; false ;;
  esac
}

echo "BOOTED $(uname -r)"
status=0
for s in "$@"; do
  if step "$s"; then result=ok; else result=failed status=1; fi
  echo "RESULT $s $result"
done
exit $status
