#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch.sh SERIES SUITE: downloads the newest Debian kernel of a series ("6.12"; "newest" for the
# latest of all) in a suite into .cache/kernels/SERIES. It prints "VERSION PATH" of the vmlinuz. A
# cached kernel is used for a week, and longer if no newer one is available. It installs nothing.
# With ARCH=arm64 in the environment, the kernel is one of arm64, in .cache/kernels/arm64-SERIES.
# fetch.sh packages SUITE PACKAGE… unpacks packages into the folder root of
# .cache/kernels/packages or arm64-packages, and prints "packages PATH".
# Exit status 77: no kernel or package is available.
set -euo pipefail
name=${1:?usage: fetch.sh SERIES SUITE} suite=${2:?usage: fetch.sh SERIES SUITE} arch=${ARCH:-amd64}
shift 2
case $arch in amd64) series=$name ;; *) series=$arch-$name ;; esac
file=vmlinuz
[ "$name" != packages ] || file=root
repository=$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")
cache=$repository/.cache/kernels
mkdir -p "$cache"

cached() { # prints the cached kernel or folder if there is one
  [ -s "$cache/$series/$file" ] && echo "$(cat "$cache/$series/version") $cache/$series/$file"
}
fresh() { [ -n "$(find "$cache/$series/version" -mtime -7 2>/dev/null)" ] && cached; }
unavailable() {
  cached && { echo "$series: using the cached one: $*" >&2; exit; }
  echo "no Linux $name for $arch of Debian $suite: $*" >&2
  exit 77
}

fresh && exit
exec 9>"$cache/$series.lock"
flock 9
fresh && exit
# shellcheck source=scripts/debian.sh
. "$repository/scripts/debian.sh"
work=$(mktemp -d "$cache/$series.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
log=$work/log
debian_configure "$work" deb main "$suite" >"$log" || unavailable "$(cat "$log")"
options+=(-o "APT::Architecture=$arch" -o "APT::Architectures=$arch")
timeout 200 apt-get "${options[@]}" update >"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"

# download PACKAGE…: unpacks packages of the suite into $work/root.
download() {
  local archive
  (cd "$work/archives" && timeout 300 apt-get "${options[@]}" download "$@") >>"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
  for archive in "$work"/archives/*.deb; do dpkg-deb -x "$archive" "$work/root"; done
}

# keep PATH VERSION: makes what was downloaded the cached one.
keep() {
  rm -rf "${cache:?}/$series"
  mkdir "$cache/$series"
  mv "$1" "$cache/$series/$file"
  echo "$2" >"$cache/$series/version" # written last: the download is complete
  cached
}

if [ "$name" = packages ]; then
  download "$@"
  keep "$work/root" packages
  exit
fi

# "6.1.0-47", "6.12.107+deb13". Since 6.19, linux-binary-* has only the image; no modules are needed
# here.
case $name in newest) pattern='[0-9.]+' ;; *) pattern="${name//./\\.}\\.[0-9.]+" ;; esac
package=$(apt-cache "${options[@]}" pkgnames linux- 2>>"$log" | sed -nE "s/^linux-(image|binary)-($pattern(-[0-9]+|\+[a-z0-9+~]+)?)-cloud-$arch\$/\2 \1/p" |
  sort -k1,1V -k2,2r | tail -n 1) || true
[ -n "$package" ] || unavailable "the suite has none"
package=linux-${package#* }-${package% *}-cloud-$arch
download "$package"
vmlinuz=$(find "$work/root" -name 'vmlinuz*' -type f | head -n 1) # boot/vmlinuz-VERSION or usr/lib/modules/VERSION/vmlinuz
[ -n "$vmlinuz" ] || unavailable "$package contains no kernel"
version=${package#linux-*-}
keep "$vmlinuz" "${version%-cloud-"$arch"}"
