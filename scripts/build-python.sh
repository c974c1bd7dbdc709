#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build-python.sh BUILD: builds a Python that users run and Debian does not package, from Debian's
# source package, into .cache/python-BUILD, and prints the path of the program. It installs nothing.
#   3.13t, 3.14t        free-threaded (--disable-gil)
#   3.13-gcc, 3.14-gcc  static with LTO by gcc, like conda's
#   3.13-clang          static with LTO by clang, stripped, like uv's
#   3.14-clang          the same, with the tail-call interpreter
# clang is 19 of bookworm, unpacked into .cache/clang-19. Each build is one process at the lowest
# priority: 3 to 20 minutes, without profile-guided optimization. Exit status 77: a package is
# unavailable.
set -euo pipefail
build=${1:?usage: build-python.sh BUILD}
repository=$(dirname "$(dirname "$(realpath "$0")")")
version=${build:0:4} suite=trixie suffix='' clang=''
clang_version=19
configure=(--without-ensurepip --disable-test-modules --with-lto) cc=gcc ar=gcc-ar ranlib=gcc-ranlib
case $build in
  3.13t | 3.14t) suffix=t configure=(--without-ensurepip --disable-test-modules --disable-gil) ;;
  3.13-gcc | 3.14-gcc) ;;
  3.13-clang) clang=1 ;;
  3.14-clang) clang=1 configure+=(--with-tail-call-interp) ;;
  *) echo "unknown build $build (the head of this script lists all)" >&2; exit 2 ;;
esac
[ "$version" = 3.13 ] || suite=sid
cache=$repository/.cache/python-$build
program=$cache/bin/python$version$suffix
[ -x "$program" ] && { echo "$program"; exit; }

unavailable() { echo "Python $build cannot be built: $*" >&2; exit 77; }
for tool in make gcc xz; do
  command -v $tool >/dev/null || unavailable "no $tool"
done
# shellcheck source=scripts/debian.sh
. "$repository/scripts/debian.sh"

mkdir -p "$repository/.cache"
exec 9>"$repository/.cache/python-build.lock" # one at a time
flock 9
[ -x "$program" ] && { echo "$program"; exit; }
work=$(mktemp -d "$repository/.cache/python-$build.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log

# apt_of KIND SUITE: "apt" runs an apt command with only that suite, in its own folder.
apt_of() {
  debian_configure "$work/$2" "$1" main "$2" >"$log" || unavailable "$(cat "$log")"
  timeout 300 apt-get "${options[@]}" update >"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
}

if [ -n "$clang" ]; then
  tools=$repository/.cache/clang-$clang_version
  if [ ! -e "$tools/done" ]; then
    apt_of deb bookworm
    mkdir -p "$work/deb"
    (cd "$work/deb" && timeout 500 apt-get "${options[@]}" download "clang-$clang_version" "libclang-common-$clang_version-dev" \
      "libclang-cpp$clang_version" "libllvm$clang_version" "llvm-$clang_version" "lld-$clang_version") >>"$log" 2>&1 || unavailable "$(tail -n 2 "$log")"
    for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$work/clang"; done
    touch "$work/clang/done"
    rm -rf "$tools"
    mv "$work/clang" "$tools"
  fi
  export PATH="$tools/usr/lib/llvm-$clang_version/bin:$PATH"
  export LD_LIBRARY_PATH="$tools/usr/lib/x86_64-linux-gnu:$tools/usr/lib/llvm-$clang_version/lib"
  clang --version >>"$log" 2>&1 || unavailable "clang-$clang_version does not run: $(tail -n 1 "$log")"
  cc=clang ar=llvm-ar ranlib=llvm-ranlib
  export LDFLAGS=-fuse-ld=lld
fi

apt_of deb-src "$suite"
mkdir "$work/source"
# The suite lists the newest first; a mirror may no longer have its files.
for exact in $(apt-cache "${options[@]}" showsrc "python$version" 2>>"$log" | sed -n 's/^Version: //p' | sort -rVu); do
  (cd "$work/source" && timeout 300 apt-get "${options[@]}" source --download-only --tar-only "python$version=$exact") >>"$log" 2>&1 && break
done
tarball=$(ls "$work"/source/*.orig.tar.xz 2>/dev/null) || unavailable "$(sed -n 's/^E: //p' "$log" | head -n 1)"
mkdir "$work/tree"
tar -xJf "$tarball" -C "$work/tree" --strip-components=1
cd "$work/tree"
export CFLAGS='-g0 -fno-semantic-interposition' # direct calls inside the interpreter, as in conda's
{ nice -n 19 ./configure --prefix="$cache" CC="$cc" AR="$ar" RANLIB="$ranlib" "${configure[@]}" &&
  nice -n 19 make -j1 && nice -n 19 make -j1 DESTDIR="$work/root" install; } >>"$log" 2>&1 </dev/null 9>&- ||
  { cp "$log" "$repository/.cache/python-$build.log"; echo "Python $build was not built: see .cache/python-$build.log" >&2; exit 1; }
installed=$work/root$cache
[ -z "$clang" ] || strip "$installed/bin/python$version$suffix"
find "$installed" \( -name __pycache__ -o -name '*.a' -o -name test \) -prune -exec rm -rf {} +
LD_LIBRARY_PATH='' PYTHONHOME=$installed "$installed/bin/python$version$suffix" -c 'import argparse, ctypes, json, threading' >>"$log" 2>&1 ||
  { tail -n 3 "$log" >&2; exit 1; }
rm -rf "$cache"
mv "$installed" "$cache"
echo "$program"
