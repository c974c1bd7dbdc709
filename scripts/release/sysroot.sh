#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sysroot.sh ARCH FOLDER: unpacks the C library of Debian 11 (glibc 2.31) for amd64 or arm64 into a
# folder, to link against. The packages have the versions and checksums of sysroot.txt.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
arch=${1:?usage: sysroot.sh ARCH FOLDER} root=$(realpath -m "${2:?usage: sysroot.sh ARCH FOLDER}")
wanted=$(grep " $arch " "$here/sysroot.txt") || { echo "sysroot.sh: no packages for $arch" >&2; exit 2; }
[ "$(cat "$root/.packages" 2>/dev/null)" != "$wanted" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/{lists/partial,cache/archives/partial,packages}
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m 1 '/debian$')
cat >"$work/debian11.sources" <<END
Types: deb
URIs: $mirror
Suites: bullseye
Components: main
Architectures: $arch
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
# apt's own lists and configuration stay as they are.
apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/debian11.sources" -o "Dir::Etc::sourceparts=$work/none" -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o "APT::Architectures=$arch" -o "APT::Architecture=$arch" -o Acquire::Languages=none
  -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root)
"${apt[@]}" update >&2
cd "$work/packages"
while read -r checksum _ package version; do
  "${apt[@]}" download "$package=$version" >&2
  echo "$checksum  $(ls "${package}"_*.deb)" >>SHA256SUMS
done <<<"$wanted"
sha256sum --quiet --check SHA256SUMS
rm -rf "$root"
mkdir -p "$root"
for package in *.deb; do dpkg-deb -x "$package" "$root"; done
# libpthread.so and the like lead to /lib/…: make the links relative.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -sfnr "$root$(readlink "$link")" "$link"
done
echo "$wanted" >"$root/.packages"
