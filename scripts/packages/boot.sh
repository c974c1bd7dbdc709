#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh FOLDER INPUTS WORDS: boots the machine that image.sh made in FOLDER, whose systemd runs
# inside.sh of the folder INPUTS with these words. It shows the lines that inside.sh writes, and
# returns its exit status, or 125 if the machine did not finish within LIMIT seconds. All else of the
# console is in INPUTS.log. Without KVM on a processor's own virtualization, the
# processors are simulated, about 20 times slower.
set -uo pipefail
folder=$1 inputs=$2 words=$3 log=$2.log
accel=(-accel "tcg,thread=multi" -cpu max)
! { [ -w /dev/kvm ] && grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo; } || accel=(-accel kvm -cpu host)
tar -C "$inputs" -cf "$inputs.tar" . || exit 125
truncate -s %1M "$inputs.tar"
timeout -k 5 "${LIMIT:-1200}" qemu-system-x86_64 -machine q35 "${accel[@]}" -m 2048 -smp 2 -nodefaults -no-user-config -display none -no-reboot \
  -serial stdio -kernel "$folder/vmlinuz" -initrd "$folder/initrd" -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 vramprof.run=\"$words\"" \
  -drive "file=$folder/disk,format=raw,if=virtio,snapshot=on" -drive "file=$inputs.tar,format=raw,if=virtio,readonly=on" </dev/null |
  sed -u 's/\r$//' | tee "$log" | grep --line-buffered -aoE '(RESULT|FAILED) .*'
code=$(sed -n 's/.*VM-DONE \([0-9]*\)$/\1/p' "$log" | tail -n 1)
[ -n "$code" ] && exit "$code"
tail -n 20 "$log" >&2
echo "the machine did not finish: see $log" >&2
exit 125
