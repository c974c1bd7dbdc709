#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh HEADERS VERSION OUTDIR: builds libsimdriver.so for a version of NVIDIA's driver, with the
# headers of the same version. Needs gcc.
set -euo pipefail
headers=$(realpath "${1:?usage: build.sh HEADERS VERSION OUTDIR}") version=${2:?} out=$(realpath -m "${3:?}")
cd "$(dirname "$(realpath "$0")")"
CC=${CC:-gcc}
mkdir -p "$out"
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
./names.sh "$headers" >"$objects/names.c"
# The headers are not strict about pointers and unused parameters.
cflags=(-std=gnu11 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Wno-pointer-to-int-cast -Wno-int-to-pointer-cast -Wno-cast-function-type
  -U_FORTIFY_SOURCE "-DDRIVER_VERSION=\"$version\"" -I. "-I$headers/src/common/sdk/nvidia/inc" "-I$headers/src/nvidia/arch/nvalloc/unix/include"
  "-I$headers/kernel-open/common/inc" "-I$headers/kernel-open/nvidia-uvm")
for file in ./*.c "$objects/names.c"; do
  $CC "${cflags[@]}" -c "$file" -o "$objects/$(basename "$file" .c).o"
done
$CC -shared -Wl,-soname,libsimdriver.so -o "$out/libsimdriver.so" "$objects"/*.o -ldl -lpthread
