#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-ubuntu.sh [SERIES SUITE]: boots a Debian kernel (the newest by default) in QEMU with AppArmor
# and settings as Ubuntu has them; see scripts/kernels/ubuntu.sh. It takes about five minutes, since
# the processor is simulated, and installs only Debian packages that are missing. Exit status 77: the
# kernel is unavailable.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
. scripts/install.sh
here=scripts/kernels work=.cache/kernels
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this machine is not x86-64"; exit 77; }
setup ubuntu || exit 1
kernel=$($here/fetch.sh "${1:-newest}" "${2:-trixie-backports}") || exit 77
mkdir -p "$work/build" && testdata/fakecuda/build.sh "$work/fake" &&
  go build -buildvcs=false -ldflags='-s -w' -o "$work/build/vramprof" ./cmd/vramprof &&
  $here/initrd.sh "$work/initrd.ubuntu" $here/ubuntu.sh=/inside.sh "$work/build/vramprof=/usr/bin/vramprof" "$work/fake=/fake" \
    "$(command -v apparmor_parser)=/usr/sbin/apparmor_parser" "$(command -v aa-exec)=/usr/bin/aa-exec" "$(command -v setpriv)=/usr/bin/setpriv" \
    /etc/apparmor.d/abi /etc/apparmor.d/tunables /usr/share/apparmor-features/features /etc/apparmor/parser.conf \
    packaging/apparmor/usr.bin.vramprof=/etc/apparmor.d/usr.bin.vramprof $here/container.apparmor=/etc/apparmor.d/container || exit 1
echo "Linux ${kernel% *}"
APPEND="apparmor=1 lsm=landlock,lockdown,yama,integrity,apparmor,bpf" LIMIT=${LIMIT:-1200} $here/boot.sh "${kernel#* }" "$work/initrd.ubuntu" \
  "${STEPS:-sysctls profile denied alerts peer logged scope3}"
