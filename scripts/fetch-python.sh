#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-python.sh VERSION SUITE: unpacks Debian's Python of another suite (such as 3.13 of trixie)
# into .cache/python-VERSION, and prints the path of a program that runs it. It installs nothing.
# Exit status 77: the packages are unavailable.
set -euo pipefail
version=${1:?usage: fetch-python.sh VERSION SUITE} suite=${2:?usage: fetch-python.sh VERSION SUITE}
repository=$(dirname "$(dirname "$(realpath "$0")")")
cache=$repository/.cache/python-$version
program=$cache/python$version
[ -x "$program" ] && { echo "$program"; exit; }

unavailable() { echo "Python $version of Debian $suite is unavailable: $*" >&2; exit 77; }
for tool in apt-get apt-cache dpkg-deb; do
  command -v $tool >/dev/null || unavailable "no $tool"
done
# The configured mirror: "URIs: MIRROR" or "deb MIRROR SUITE main".
mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
  sed -nE '/^#/!s,.*[ =]([a-z]+://[^ ]+/debian)/?( .*)?$,\1,p' | sort -u | sed -n 1p) || true
[ -n "$mirror" ] || unavailable "no Debian mirror is configured"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || unavailable "no $keys"

mkdir -p "$repository/.cache"
exec 9>"$repository/.cache/python-$version.lock"
flock 9
[ -x "$program" ] && { echo "$program"; exit; }
work=$(mktemp -d "$repository/.cache/python-$version.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,none,root}
printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$mirror" "$suite" "$keys" >"$work/suite.sources"
options=(-q -o "Dir::Etc::sourcelist=$work/suite.sources" -o "Dir::Etc::sourceparts=$work/none" -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work" -o "Dir::State::status=$work/status" -o Acquire::Languages=none -o APT::Sandbox::User=root
  -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
: >"$work/status"
log=$work/log
timeout 300 apt-get "${options[@]}" update >"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
# The interpreter and all dependencies, as if nothing were installed.
packages=$(apt-cache "${options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances "python$version" 2>>"$log" | grep -E '^[a-z0-9]' | grep -vE '^(dpkg|tar|debconf|perl|media-types|tzdata|netbase)' | sort -u) || true
[ -n "$packages" ] || unavailable "the suite has no python$version"
(cd "$work/archives" && timeout 300 apt-get "${options[@]}" download $packages) >>"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
for package in "$work"/archives/*.deb; do dpkg-deb -x "$package" "$work/root"; done

loader=$(cd "$work/root" && ls usr/lib64/ld-linux-x86-64.so.2 usr/lib/ld-linux-aarch64.so.1 2>/dev/null) || true
triplet=$(cd "$work/root/usr/lib" && ls -d ./*-linux-gnu) && [ -n "$loader" ] || unavailable "the packages contain no dynamic loader"
cat >"$work/python$version" <<SCRIPT
#!/bin/sh
# Python $version of Debian $suite with its own loader and libc.
here=\$(dirname "\$(realpath "\$0")")
PYTHONHOME=\$here/root/usr exec "\$here/root/$loader" \\
  --library-path "\$here/root/usr/lib/${triplet#./}\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" "\$here/root/usr/bin/python$version" "\$@"
SCRIPT
chmod +x "$work/python$version"
"$work/python$version" -c 'import argparse, ctypes, json, threading' || unavailable "it does not run"
rm -rf "$work"/{lists,archives,none,log,status,suite.sources,*.bin}
chmod 755 "$work"
rm -rf "$cache"
mv "$work" "$cache"
trap - EXIT
echo "$program"
