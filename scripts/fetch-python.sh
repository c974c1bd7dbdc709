#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-python.sh VERSION SUITE [torch]: unpacks Debian's Python of another suite (such as 3.13 of
# trixie) into .cache/python-VERSION, and prints the path of a program that runs it. With torch also
# the suite's PyTorch for the CPU, into .cache/torch-SUITE: PyTorch 1.13 is that of 3.11 bookworm,
# 2.6 that of 3.13 trixie; 400 MB to download. It installs nothing.
# Exit status 77: the packages are unavailable.
set -euo pipefail
usage="usage: fetch-python.sh VERSION SUITE [torch]"
version=${1:?$usage} suite=${2:?$usage} torch=${3:-}
repository=$(dirname "$(dirname "$(realpath "$0")")")
cache=$repository/.cache/${torch:+torch-$suite}
[ -n "$torch" ] || cache=$repository/.cache/python-$version
wanted="python$version" modules="argparse, ctypes, json, threading"
if [ -n "$torch" ]; then
  [ "$torch" = torch ] || { echo "$usage" >&2; exit 2; }
  wanted="python$version python3-torch" modules=torch
fi
program=$cache/python$version
[ -x "$program" ] && { echo "$program"; exit; }

unavailable() { echo "Python $version of Debian $suite is unavailable: $*" >&2; exit 77; }
# shellcheck source=scripts/debian.sh
. "$repository/scripts/debian.sh"
mkdir -p "$repository/.cache"
exec 9>"$cache.lock"
flock 9
[ -x "$program" ] && { echo "$program"; exit; }
work=$(mktemp -d "$cache.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
debian_configure "$work" deb main "$suite" >"$log" || unavailable "$(cat "$log")"
timeout 300 apt-get "${options[@]}" update >"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
# The interpreter and all dependencies, as if nothing were installed.
packages=$(apt-cache "${options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances $wanted 2>>"$log" | grep -E '^[a-z0-9]' |
  grep -vE '^(dpkg|tar|debconf|perl|media-types|tzdata|netbase|gcc-[0-9]+$|cpp|g[+][+]|binutils|libc6-dev|linux-libc)' | sort -u) || true
[ -n "$packages" ] || unavailable "the suite has no $wanted"
(cd "$work/archives" && timeout 900 apt-get "${options[@]}" download $packages) >>"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
mkdir -p "$work/root/usr/lib" "$work/root/usr/lib64"
for name in lib lib64; do ln -s usr/$name "$work/root/$name"; done # older packages have files in /lib
for package in "$work"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$work/root" --exclude=./usr/share --exclude=./usr/include --exclude=./etc
  rm "$package"
done

loader=$(cd "$work/root" && ls usr/lib64/ld-linux-x86-64.so.2 usr/lib/ld-linux-aarch64.so.1 2>/dev/null) || true
triplet=$(cd "$work/root/usr/lib" && ls -d ./*-linux-gnu) && [ -n "$loader" ] || unavailable "the packages contain no dynamic loader"
for name in blas lapack; do # update-alternatives
  [ ! -e "$work/root/usr/lib/$triplet/$name" ] || ln -sf $name/lib$name.so.3 "$work/root/usr/lib/$triplet/lib$name.so.3"
done
cat >"$work/python$version" <<SCRIPT
#!/bin/sh
# Python $version of Debian $suite${torch:+ with PyTorch}, with its own loader and libc.
here=\$(dirname "\$(realpath "\$0")")
PYTHONHOME=\$here/root/usr exec "\$here/root/$loader" \\
  --library-path "\$here/root/usr/lib/${triplet#./}:\$here/root/usr/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" "\$here/root/usr/bin/python$version" "\$@"
SCRIPT
chmod +x "$work/python$version"
"$work/python$version" -c "import $modules" || unavailable "it does not run"
rm -rf "$work"/{lists,archives,none,log,status,suite.sources,*.bin}
chmod 755 "$work"
rm -rf "$cache"
mv "$work" "$cache"
trap - EXIT
echo "$program"
