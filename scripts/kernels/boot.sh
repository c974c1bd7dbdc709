#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh VMLINUZ INITRD WORDS: boots a kernel in QEMU, shows its console, and returns the exit
# status of /inside.sh with these words, or 125 if the machine did not finish: a panic, or more than
# LIMIT seconds of processor time, or four times that by the clock of a busy host. It reads from the
# environment MEMORY (MiB), SMP (QEMU's -smp), OPTIONS (more options of QEMU), APPEND (to the
# kernel's command line), ARCH (amd64, the default, or arm64) and CLOCK. The processor is simulated
# (TCG) and needs no /dev/kvm. The machine's clock counts instructions, 2 ns each, and skips idle
# time, so time limits inside do not depend on the host's load. With CLOCK=host, it is the host's:
# kernels before 6.5 wait forever for a second processor whose clock counts instructions.
# cmpxchg16b is disabled: with instruction counting, QEMU 7.2 sometimes gives an interrupt wrong
# flags after it.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
case ${ARCH:-amd64} in
  amd64) qemu=(qemu-system-x86_64 -machine q35 -cpu max,-cx16) console=ttyS0 ;;
  # impdef: QEMU signs return addresses with an algorithm of its own, which is cheap to simulate.
  arm64) qemu=(qemu-system-aarch64 -machine virt,gic-version=3 -cpu max,pauth-impdef=on) console=ttyAMA0 ;;
esac
clock=(-icount shift=1,sleep=off)
[ "${CLOCK:-}" != host ] || clock=()
limit=${LIMIT:-300}
timeout -k 5 $((4 * limit)) prlimit --cpu="$limit" "${qemu[@]}" -accel tcg,thread=single "${clock[@]}" -m "${MEMORY:-3072}" ${SMP:+-smp "$SMP"} \
  ${OPTIONS:-} -nodefaults -no-user-config -display none -serial stdio -no-reboot -kernel "$1" -initrd "$2" \
  -append "console=$console panic=-1 quiet no_timer_check ${APPEND:-} vramprof.run=\"$3\"" </dev/null | sed -u 's/\r$//' | tee "$log"
status=${PIPESTATUS[0]}
code=$(sed -n 's/^VM-DONE \([0-9]*\)$/\1/p' "$log" | tail -n 1)
[ -n "$code" ] && exit "$code"
case $status in
  124) why="more than $((4 * limit)) s" ;;
  152 | 137) why="more than $limit s of processor time" ;; # SIGXCPU, then SIGKILL
  *) why="qemu ended with $status" ;;
esac
echo "the machine did not finish: $why" >&2
exit 125
