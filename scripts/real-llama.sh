#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# real-llama.sh [--offline]: unpacks llama.cpp's libraries, built for CUDA 12, from their npm package into
# .cache/real-libs, and prints their folder: 190 MB to download, 460 MB unpacked. It installs nothing. --offline uses
# what an earlier run has unpacked. If the package is unavailable, it prints "skipped: REASON" and ends with 0.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
package=@node-llama-cpp/linux-x64-cuda
version=3.6.0 # llama.cpp b4753: later ones need CUDA 13, whose cuBLAS Debian does not have
out=$PWD/.cache/real-libs/llama.cpp_$version

skip() { echo "skipped: llama.cpp is unavailable: $*"; exit; }

[ "$(uname -m)" = x86_64 ] || skip "the package is for x86-64"
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9
if [ ! -d "$out" ]; then
  [ -z "${1:-}" ] || skip "it is not unpacked: run scripts/real-llama.sh"
  command -v npm >/dev/null || skip "no npm"
  new=$(mktemp -d "$out.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  (cd "$new" && timeout 580 npm pack --silent "$package@$version" >/dev/null 2>"$new/log") || skip "npm pack: $(head -n 1 "$new/log")"
  tar -xzf "$new"/*.tgz -C "$new" || skip "the package does not unpack"
  [ -e "$new/package/bins/linux-x64-cuda/libggml-cuda.so" ] || skip "the package has no libraries"
  chmod -R u=rwX,go=rX "$new/package"
  mv "$new/package/bins/linux-x64-cuda" "$out"
fi
echo "$out"
