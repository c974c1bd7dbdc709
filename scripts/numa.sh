#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# numa.sh [SECONDS] [SERIES] [ROW…]: measures how many stacks automatic NUMA balancing truncates. Balancing
# temporarily unmaps pages of multithreaded processes to see who uses them; BPF programs cannot read
# such a page, while the process itself faults it back in. It boots Debian's kernel of a series
# (6.12 by default) in QEMU with two nodes of one simulated processor each, and traces programs that
# use SECONDS (8 by default) of CPU time per thread, with balancing off and on. It prints a line for
# each; see scripts/numa/inside.sh.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
seconds=${1:-8} series=${2:-6.12} rows=${*:3} work=.cache/kernels
case $series in 6.12) suite=trixie ;; 6.1) suite=bookworm CLOCK=host ;; 5.10) suite=bullseye CLOCK=host ;; *) suite=trixie-backports ;; esac
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this machine is not x86-64"; exit 77; }
setup kernels || exit 1
kernel=$(scripts/kernels/fetch.sh "$series" "$suite") || { echo "skipped: no kernel"; exit 77; }
mkdir -p "$work/build" && testdata/fakecuda/build.sh "$work/fake" &&
  go build -buildvcs=false -ldflags='-s -w' -o "$work/build/vramprof" ./cmd/vramprof &&
  gcc -O2 -fno-optimize-sibling-calls -o "$work/build/deep" scripts/numa/deep.c "$work/fake/libcudart.so.12" -lpthread || exit 1
python=$(realpath /usr/bin/python3) || exit 1
scripts/kernels/initrd.sh "$work/initrd-numa" scripts/numa/inside.sh=/inside.sh "$work"/build/vramprof=/t/vramprof "$work"/build/deep=/t/deep \
  scripts/numa/deep.py=/t/deep.py "$work/fake=/fake" /usr/bin/python3 "$python" "/usr/lib/${python##*/}" || exit 1
export CLOCK=${CLOCK:-}
half=$((${MEMORY:-3072} / 2))
export OPTIONS="-smp 2 -object memory-backend-ram,id=m0,size=${half}M -object memory-backend-ram,id=m1,size=${half}M -numa node,memdev=m0,cpus=0 -numa node,memdev=m1,cpus=1"
LIMIT=${LIMIT:-1500} scripts/kernels/boot.sh "${kernel#* }" "$work/initrd-numa" "$seconds${rows:+ $rows}"
