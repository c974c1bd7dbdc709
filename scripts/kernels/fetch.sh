#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch.sh SERIES SUITE: downloads the newest Debian kernel of a series ("6.12"; "newest" for the
# latest of all) in a suite into .cache/kernels/SERIES. It prints "VERSION PATH" of the vmlinuz. A
# cached kernel is used for a week, and longer if no newer one is available. It installs nothing.
# Exit status 77: no kernel is available.
set -euo pipefail
series=${1:?usage: fetch.sh SERIES SUITE} suite=${2:?usage: fetch.sh SERIES SUITE}
cache=$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")/.cache/kernels
mkdir -p "$cache"

cached() { # prints the cached kernel if there is one
  [ -s "$cache/$series/vmlinuz" ] && echo "$(cat "$cache/$series/version") $cache/$series/vmlinuz"
}
fresh() { [ -n "$(find "$cache/$series/version" -mtime -7 2>/dev/null)" ] && cached; }
unavailable() {
  cached && { echo "Linux $series: using the cached one: $*" >&2; exit; }
  echo "no Linux $series of Debian $suite: $*" >&2
  exit 77
}

fresh && exit
exec 9>"$cache/$series.lock"
flock 9
fresh && exit
for tool in apt-get apt-cache dpkg-deb; do
  command -v $tool >/dev/null || unavailable "$tool is not installed"
done
[ "$(dpkg --print-architecture)" = amd64 ] || unavailable "this machine is not amd64"
# The configured mirror: "URIs: MIRROR" or "deb MIRROR SUITE main".
mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
  sed -nE '/^#/!s,.*[ =]([a-z]+://[^ ]+/debian)/?( .*)?$,\1,p' | sort -u | sed -n 1p) || true
[ -n "$mirror" ] || unavailable "no Debian mirror is configured"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || unavailable "$keys does not exist"

work=$(mktemp -d "$cache/$series.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,none,root}
printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n' "$mirror" "$suite" "$keys" >"$work/suite.sources"
options=(-q -o "Dir::Etc::sourcelist=$work/suite.sources" -o "Dir::Etc::sourceparts=$work/none" -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work" -o "Dir::State::status=$work/status" -o Acquire::Languages=none -o APT::Sandbox::User=root
  -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
: >"$work/status"
log=$work/log
timeout 200 apt-get "${options[@]}" update >"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"

# "6.1.0-47", "6.12.107+deb13". Since 6.19, linux-binary-* has only the image; no modules are needed
# here.
case $series in newest) pattern='[0-9.]+' ;; *) pattern="${series//./\\.}\\.[0-9.]+" ;; esac
package=$(apt-cache "${options[@]}" pkgnames linux- 2>>"$log" | sed -nE "s/^linux-(image|binary)-($pattern(-[0-9]+|\+[a-z0-9+~]+)?)-cloud-amd64\$/\2 \1/p" |
  sort -k1,1V -k2,2r | tail -n 1) || true
[ -n "$package" ] || unavailable "the suite has none"
package=linux-${package#* }-${package% *}-cloud-amd64
(cd "$work/archives" && timeout 300 apt-get "${options[@]}" download "$package") >>"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
dpkg-deb -x "$work"/archives/*.deb "$work/root"
vmlinuz=$(find "$work/root" -name 'vmlinuz*' -type f | head -n 1) # boot/vmlinuz-VERSION or usr/lib/modules/VERSION/vmlinuz
[ -n "$vmlinuz" ] || unavailable "$package contains no kernel"
rm -rf "$cache/$series"
mkdir "$cache/$series"
mv "$vmlinuz" "$cache/$series/vmlinuz"
version=${package#linux-*-}
echo "${version%-cloud-amd64}" >"$cache/$series/version" # written last: the download is complete
cached
