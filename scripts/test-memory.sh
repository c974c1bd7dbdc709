#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-memory.sh [CPUS]: boots a kernel in QEMU on a machine with so many CPUs, 64 by default, and
# compares how much memory the maps take there, as the kernel says, with what vramprof computes. Prints both.
# Two minutes of processor time, since the CPUs are simulated; nothing but the Debian packages of test-kernels.sh is installed. Ends with 77 if the kernel cannot be had. KERNEL is
# "SERIES SUITE" as in test-kernels.sh; the kernel says what maps take from Linux 6.4 on.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
here=scripts/kernels work=.cache/kernels cpus=${1:-64}
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this machine is no x86-64"; exit 77; }
setup kernels || exit 1
kernel=$($here/fetch.sh ${KERNEL:-newest trixie-backports}) || exit 77
mkdir -p "$work/build"
go test -c -ldflags='-s -w' -o "$work/build/tracer.test" ./tracer || exit 1
$here/initrd.sh "$work/initrd.memory" $here/inside.sh=/inside.sh "$work/build/tracer.test=/t/tracer.test" || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
SMP=$cpus LIMIT=${LIMIT:-600} $here/boot.sh "${kernel#* }" "$work/initrd.memory" memory > "$log" 2>&1
status=$?
echo "Linux ${kernel% *}, $(sed -nE 's/.*memory: (.*)/\1/p' "$log")"
[ $status = 0 ] || sed 's/^/    /' "$log"
exit $status
