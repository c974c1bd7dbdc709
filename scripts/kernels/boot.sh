#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh VMLINUZ INITRD WORDS: boots a kernel in QEMU, shows its console, and returns the exit
# status of /inside.sh with these words, or 125 if the machine did not finish: a panic, or longer
# than LIMIT seconds. It reads MEMORY (MiB), SMP (QEMU's -smp), OPTIONS (more options of QEMU) and
# APPEND (to the kernel's command line) from the environment. The only processor is simulated (TCG)
# and needs no /dev/kvm. The machine's clock counts instructions, 2 ns each, and skips idle time, so
# time limits inside do not depend on the host's load. cmpxchg16b is disabled: with instruction
# counting, QEMU 7.2 sometimes gives an interrupt wrong flags after it.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
timeout -k 5 "${LIMIT:-300}" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -icount shift=1,sleep=off -cpu max,-cx16 -m "${MEMORY:-3072}" ${SMP:+-smp "$SMP"} \
  ${OPTIONS:-} -nodefaults -no-user-config -display none -serial stdio -no-reboot -kernel "$1" -initrd "$2" \
  -append "console=ttyS0 panic=-1 quiet no_timer_check ${APPEND:-} vramprof.run=\"$3\"" </dev/null | sed -u 's/\r$//' | tee "$log"
status=${PIPESTATUS[0]}
code=$(sed -n 's/^VM-DONE \([0-9]*\)$/\1/p' "$log" | tail -n 1)
[ -n "$code" ] && exit "$code"
echo "the machine did not finish: $([ "$status" = 124 ] && echo "more than ${LIMIT:-300} s" || echo "qemu ended with $status")" >&2
exit 125
