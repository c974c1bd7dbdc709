#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh VMLINUZ INITRD WORDS: boots a kernel in QEMU, shows its console, and ends as /inside.sh with these words did; with
# 125 if the machine did not come to its end: a panic, or longer than LIMIT seconds. MEMORY (MiB), SMP (QEMU's -smp), OPTIONS (further
# ones of QEMU's) and APPEND (to the kernel's command line) are taken from the environment. Its one processor is simulated (TCG): needs no /dev/kvm.
# The machine's clock counts instructions, 2 ns each, and leaps where it would wait: however busy the host is, time limits inside are the same.
# Without cmpxchg16b: after it QEMU 7.2, when it counts, sometimes hands an interrupt wrong flags.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
timeout -k 5 "${LIMIT:-300}" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -icount shift=1,sleep=off -cpu max,-cx16 -m "${MEMORY:-3072}" ${SMP:+-smp "$SMP"} \
  ${OPTIONS:-} -nodefaults -no-user-config -display none -serial stdio -no-reboot -kernel "$1" -initrd "$2" \
  -append "console=ttyS0 panic=-1 quiet no_timer_check ${APPEND:-} vramprof.run=\"$3\"" </dev/null | sed -u 's/\r$//' | tee "$log"
status=${PIPESTATUS[0]}
code=$(sed -n 's/^VM-DONE \([0-9]*\)$/\1/p' "$log" | tail -n 1)
[ -n "$code" ] && exit "$code"
echo "the machine did not come to its end: $([ "$status" = 124 ] && echo "more than ${LIMIT:-300} s" || echo "qemu ended with $status")" >&2
exit 125
