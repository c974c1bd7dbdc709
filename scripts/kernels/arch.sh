#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# arch.sh: sourced by scripts that boot kernels, after install.sh and with arch=amd64 or arm64. It
# installs what they need, exports ARCH, and sets prefix, of names in .cache/kernels. Traced
# programs of arm64 sign their return addresses, and begin functions with landing pads.
#   cross                sets the compilers
#   initrd OUT FILE…     calls initrd.sh, with Python: the host's, or Debian 12's for arm64
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this machine is not x86-64"; exit 77; }
export ARCH=$arch
case $arch in
  amd64) prefix='' && setup kernels || exit 1 ;;
  arm64) prefix=arm64- && setup kernels_arm64 || exit 1 ;;
esac

cross() {
  [ "$arch" = amd64 ] || export GOARCH=arm64 CGO_ENABLED=1 CC="aarch64-linux-gnu-gcc -mbranch-protection=standard" CXX="aarch64-linux-gnu-g++ -mbranch-protection=standard" STRIP=aarch64-linux-gnu-strip
}

initrd() {
  local python root
  if [ "$arch" = arm64 ]; then
    root=$(scripts/kernels/fetch.sh packages bookworm libc6 libgcc-s1 libstdc++6 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib zlib1g \
      libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libtinfo6 busybox-static) || return 1
    ln -sf python3.11 "${root#* }/usr/bin/python3"
    ROOT=${root#* } scripts/kernels/initrd.sh "$@"
  else
    python=$(realpath /usr/bin/python3) || return 1
    scripts/kernels/initrd.sh "$@" /usr/bin/python3 "$python" "/usr/lib/${python##*/}"
  fi
}
