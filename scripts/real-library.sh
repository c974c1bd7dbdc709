#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# real-library.sh [--offline] llama|ggml|onnx|pycuda: unpacks libraries that use CUDA from their npm or Debian packages into
# .cache/real-libs, and prints their folder. It installs nothing. --offline uses what an earlier run has unpacked. If a package is
# unavailable, it prints "skipped: REASON" and ends with 0.
#
#   llama   llama.cpp b4753: 190 MB to download, 460 MB unpacked
#   ggml    an addon of Node that whisper.cpp is linked into, without a symbol table: 70 MB, 200 MB unpacked
#   onnx    ONNX Runtime 1.19.2 and its provider for CUDA: 260 MB, 550 MB unpacked. cuDNN, which no package has, is a library whose
#           functions do nothing
#   pycuda  PyCUDA 2022.2 for Debian 12's Python: 1 MB. cuRAND is a library whose functions do nothing
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
libs=$PWD/.cache/real-libs offline=''
[ "${1:-}" != --offline ] || { offline=1; shift; }
name=${1:-}

skip() { echo "skipped: $name is unavailable: $*"; exit; }

# package NAME@VERSION PATH…: unpacks files of a package into the folder new.
package() {
  local at=$1 path
  shift
  rm -rf "$new/package" "$new"/*.tgz
  command -v npm >/dev/null || skip "no npm"
  (cd "$new" && timeout 580 npm pack --silent "$at" >/dev/null 2>"$new/log") || skip "npm pack: $(head -n 1 "$new/log")"
  tar -xzf "$new"/*.tgz -C "$new" || skip "$at does not unpack"
  for path in "$@"; do
    # shellcheck disable=SC2086 # a pattern
    mv "$new"/package/$path "$new/out" || skip "$at has no $path"
  done
}

# without LIBRARY FILE…: builds a library whose functions, which the files call, do nothing.
without() {
  local library=$1 prefix=${1#lib}
  shift
  prefix=${prefix%%.*}
  nm -D --undefined-only "$@" | sed -n "s/.* \\($prefix[A-Za-z0-9_]*\\)\\(@.*\\|\\)\$/\\1/p" | sort -u | sed 's/.*/int &(void) { return 0; }/' >"$new/none.c"
  echo "$library { global: $prefix*; };" >"$new/none.map"
  gcc -shared -fPIC -fno-builtin -Wl,-soname,"$library" -Wl,--version-script="$new/none.map" -o "$new/out/$library" "$new/none.c"
}

get_llama() { package @node-llama-cpp/linux-x64-cuda@3.6.0 'bins/linux-x64-cuda/*'; } # later ones need CUDA 13, whose cuBLAS Debian does not have
get_ggml() { package @fugood/node-whisper-linux-x64-cuda@1.1.3 index.node; }
get_onnx() {
  package com.github.asus4.onnxruntime.linux-x64-gpu@0.2.1 'Plugins/Linux/x64/libonnxruntime_providers_*.so'
  package onnxruntime-node@1.19.2 bin/napi-v3/linux/x64/libonnxruntime.so.1
  without libcudnn.so.9 "$new/out/libonnxruntime_providers_cuda.so"
}
get_pycuda() {
  local package version
  # shellcheck source=scripts/debian.sh
  . scripts/debian.sh
  /usr/bin/python3 -c 'import sys, numpy; sys.exit(sys.version_info[:2] != (3, 11))' 2>"$new/log" || skip "/usr/bin/python3 is not Python 3.11 with NumPy"
  debian_configure "$new/apt" deb "main contrib" bookworm >"$new/log" || skip "$(cat "$new/log")"
  timeout 300 apt-get "${options[@]}" update >"$new/log" 2>&1 || skip "$(grep -m 1 -E '^[EW]: ' "$new/log")"
  apt-cache "${options[@]}" madison python3-pycuda python3-{pytools,appdirs,platformdirs,mako,markupsafe,decorator,typing-extensions} \
    libboost-{python,thread}1.74.0 | tr -d ' ' | sort -u -t '|' -k 1,1 >"$new/packages"
  while IFS='|' read -r package version _; do
    debian_unpack "$new/apt" "$package" "$version" "$new/one" 2>"$new/log" || skip "$(cat "$new/log")"
    cp -r "$new"/one/usr/lib/python3/dist-packages "$new"/one/usr/lib/*/libboost*.so.* "$new/out/" 2>/dev/null || true # each has one
    rm -rf "$new/one"
  done <"$new/packages"
  [ -d "$new/out/dist-packages/pycuda" ] || skip "no python3-pycuda"
  without libcurand.so.10 "$new"/out/dist-packages/pycuda/_driver.*.so
}

case $name in
  llama) out=$libs/llama.cpp_3.6.0 ;;
  ggml) out=$libs/whisper.node_1.1.3 ;;
  onnx) out=$libs/onnxruntime_1.19.2 ;;
  pycuda) out=$libs/pycuda_2022.2.2 ;;
  *) echo "usage: real-library.sh [--offline] llama|ggml|onnx|pycuda" >&2; exit 2 ;;
esac
[ "$(uname -m)" = x86_64 ] || skip "the package is for x86-64"
mkdir -p "$libs"
exec 9>"$out.lock"
flock 9
if [ ! -d "$out" ]; then
  [ -z "$offline" ] || skip "it is not unpacked: run scripts/real-library.sh $name"
  new=$(mktemp -d "$out.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  mkdir "$new/out"
  "get_$name"
  chmod -R u=rwX,go=rX "$new/out"
  mv "$new/out" "$out"
fi
echo "$out"
