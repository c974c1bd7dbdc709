#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh ROOT OUTDIR: builds the CUDA libraries that PyTorch in ROOT links to, except the driver
# and NVML. The runtime is the fake one, with additions for PyTorch; in the other libraries, nearly
# every function does nothing and returns 0.
set -euo pipefail
root=${1:?usage: build.sh ROOT OUTDIR} out=$(realpath -m "${2:?usage: build.sh ROOT OUTDIR}")
cd "$(dirname "$(realpath "$0")")"
CC=${CC:-gcc}
mkdir -p "$out"
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT

cflags=(-std=gnu11 -O2 -fPIC -fomit-frame-pointer -fno-optimize-sibling-calls -fno-shrink-wrap
        -fasynchronous-unwind-tables -Wall -Wextra)
case $($CC -dumpmachine) in x86_64*) cflags+=(-fcf-protection=none) ;; esac

# imports LIBRARY: prints what PyTorch imports from it, by version or, if there is none, by prefix.
imports() {
  local prefix=none
  case $1 in
    libnccl.so.*) prefix=nccl ;;
    libmpi.so.*) prefix='(MPI_|ompi_)' ;;
    libhiredis.so.*) prefix='(redis|freeReply)' ;;
  esac
  awk -v library="$1" -v prefix="^$prefix" '$2 == library || !$2 && $1 ~ prefix {print $1}' "$objects/imported" | sort -u
}

# library NAME SOURCE…: builds a library of that soname, with a stub for each function that no
# source defines.
library() {
  local name=$1 version="" source made=()
  shift
  for source in "$@"; do
    made+=("$objects/$name.$(basename "$source" .c).o")
    $CC "${cflags[@]}" -c "$source" -o "${made[-1]}"
  done
  imports "$name" >"$objects/$name.all"
  nm -g --defined-only "$objects/empty.o" "${made[@]}" | awk 'NF == 3 {print $3}' | sort -u >"$objects/$name.own"
  comm -23 "$objects/$name.all" "$objects/$name.own" | sed 's/.*/int &(void);\nint &(void) { return 0; }/' >"$objects/$name.c"
  $CC "${cflags[@]}" -fno-builtin -c "$objects/$name.c" -o "$objects/$name.o"
  grep -q " $name$" "$objects/imported" && version=$name
  echo "$version { global: cuda*; $(sed 's/$/;/' "$objects/$name.all" | tr '\n' ' ')local: *; };" >"$objects/$name.map"
  $CC -shared -s -Wl,-soname,"$name" -Wl,--version-script="$objects/$name.map" -Wl,--as-needed -o "$out/$name" \
    "$objects/$name.o" "${made[@]}" $(ls "$out/libcudart.so.12" 2>/dev/null) -ldl -lpthread
}

libraries=()
for name in torch torch_cuda c10_cuda torch_python torch_cuda_linalg caffe2_nvrtc torch_global_deps gloo_cuda tensorpipe_cuda gloo; do
  libraries+=("$(find "$root/usr/lib" -name "lib$name.so.*" -type f -print -quit)")
done
nm -D --undefined-only "${libraries[@]}" | awk 'NF == 2 {sub("@", " ", $2); print $2}' >"$objects/imported"
$CC -x c -c /dev/null -o "$objects/empty.o"

fake=../fakecuda
library libcudart.so.12 $fake/cudart.c $fake/cudart_kinds.c device.c stream.c
library libcublasLt.so.12 cublasLt.c
library libnccl.so.2 nccl.c
# Gloo links MPI and Redis, and runs without them.
for name in $(readelf -d "${libraries[@]}" | sed -n 's/.*(NEEDED).*\[\(lib.*\)\]/\1/p' | grep -E '^lib(cu|nv|mpi|hiredis)' | grep -v '^libcuda\.' | sort -u); do
  [ -e "$out/$name" ] || library "$name"
done
$CC "${cflags[@]}" -shared -s -Wl,-soname,libforeign.so -o "$out/libforeign.so" foreign.c "$out/libcudart.so.12"
