#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-memory.sh [CPUS]: boots a kernel in QEMU on a machine with CPUS CPUs (64 by default), and
# compares the kernel memory of the maps, as the kernel reports it, with what vramprof computes. It
# prints both. It takes two minutes of CPU time, since the CPUs are simulated, and installs only the
# Debian packages of test-kernels.sh. Exit status 77: the kernel is unavailable. KERNEL is "SERIES
# SUITE" as in test-kernels.sh; kernels report the memory of maps since Linux 6.4.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
here=scripts/kernels work=.cache/kernels cpus=${1:-64}
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this machine is not x86-64"; exit 77; }
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
