#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# numa.sh [--arm64] [SECONDS] [SERIES] [ROW…]: measures how many stacks automatic NUMA balancing truncates. Balancing
# temporarily unmaps pages of multithreaded processes to see who uses them; BPF programs cannot read
# such a page, while the process itself faults it back in. It boots Debian's kernel of a series
# (6.12 by default) in QEMU with two nodes of one simulated processor each, and traces programs that
# use SECONDS (8 by default) of CPU time per thread, with balancing off and on. It prints a line for
# each; see scripts/numa/inside.sh. With APPEND=sysctl.kernel.kptr_restrict=2 in the environment,
# the kernel hides its addresses, and vramprof cannot read such pages either.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
arch=amd64
[ "${1:-}" != --arm64 ] || { arch=arm64 && shift; }
seconds=${1:-8} series=${2:-6.12} rows=${*:3} work=.cache/kernels
case $series in 6.12) suite=trixie ;; 6.1) suite=bookworm CLOCK=host ;; 5.10) suite=bullseye CLOCK=host ;; *) suite=trixie-backports ;; esac
. scripts/kernels/arch.sh
kernel=$(scripts/kernels/fetch.sh "$series" "$suite") || { echo "skipped: no kernel"; exit 77; }
build=$work/${prefix}build fake=$work/${prefix}fake
cross
mkdir -p "$build" && testdata/fakecuda/build.sh "$fake" &&
  go build -buildvcs=false -ldflags='-s -w' -o "$build/vramprof" ./cmd/vramprof &&
  ${CC:-gcc} -O2 -fno-optimize-sibling-calls -o "$build/deep" scripts/numa/deep.c "$fake/libcudart.so.12" -lpthread || exit 1
initrd "$work/${prefix}initrd-numa" scripts/numa/inside.sh=/inside.sh "$build"/vramprof=/t/vramprof "$build"/deep=/t/deep \
  scripts/numa/deep.py=/t/deep.py "$fake=/fake" || exit 1
export CLOCK=${CLOCK:-}
half=$((${MEMORY:-3072} / 2))
export OPTIONS="-smp 2 -object memory-backend-ram,id=m0,size=${half}M -object memory-backend-ram,id=m1,size=${half}M -numa node,memdev=m0,cpus=0 -numa node,memdev=m1,cpus=1"
LIMIT=${LIMIT:-1500} scripts/kernels/boot.sh "${kernel#* }" "$work/${prefix}initrd-numa" "$seconds${rows:+ $rows}"
