#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUTDIR: builds the fake PyTorch next to the fake CUDA runtime in OUTDIR: a folder
# torch-VERSION with libc10.so and libc10_cuda.so for each way in which PyTorch reports tensors, and
# tensors_c.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh OUTDIR}")
cd "$(dirname "$(realpath "$0")")"
CC=${CC:-gcc}
machine=$($CC -dumpmachine) machine=${machine%%-*}
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT

# Like the real ones: optimized, without frame pointers, without debug information.
cflags=(-std=gnu11 -O2 -fPIC -fomit-frame-pointer -fno-optimize-sibling-calls -fno-shrink-wrap
        -fasynchronous-unwind-tables -fvisibility=hidden -Wall -Wextra)
link=(-shared -s -Wl,-z,lazy)
plain=-fcf-protection=none guarded=-fcf-protection=branch # endbr64 at each entry
[ "$machine" = x86_64 ] || plain="" guarded=""
report=_ZN3c1027reportMemoryUsageToProfiler failed=_ZN3c1027reportOutOfMemoryToProfiler

# variant VERSION ENTRY REPORT FAILED [MORE]: the two C++ names without their prefixes, or "-".
variant() {
  local dir=$out/torch-$1 entry=$2 flags=("${@:5}") f made=()
  [ "$3" = - ] || flags+=("-DREPORT=\"$report$3\"")
  [ "$4" = - ] || flags+=("-DFAILED=\"$failed$4\"")
  mkdir -p "$dir"
  $CC "${cflags[@]}" $entry "${flags[@]}" "${link[@]}" -Wl,-soname,libc10.so -o "$dir/libc10.so" c10.c
  $CC "${cflags[@]}" $plain "${flags[@]}" -c blocks.c -o "$objects/blocks-$1.o"
  for f in bins segments since; do made+=("$objects/$f.o"); done
  $CC "${link[@]}" -Wl,-soname,libc10_cuda.so -o "$dir/libc10_cuda.so" "$objects/blocks-$1.o" "${made[@]}" \
    "$dir/libc10.so" "$out/libcudart.so.12" -ldl -lpthread
}

for f in bins segments since; do $CC "${cflags[@]}" $plain -c $f.c -o "$objects/$f.o"; done
variant 1.6 "$plain" EPvlNS_6DeviceE - -DNO_TOTALS
variant 1.13 "$guarded" EPvlllNS_6DeviceE ElllNS_6DeviceE
variant 2.6 "$plain" EPvlmmNS_6DeviceE ElmmNS_6DeviceE
variant 2.14 "$plain" EPvlmmNS_6DeviceE EmmmNS_6DeviceE -DLOOKS_AHEAD
variant 2.99 "$plain" EPvlmmbNS_6DeviceE ElmmbNS_6DeviceE # as no existing version does
variant none "$plain" - -

$CC "${cflags[@]}" $plain -fvisibility=default -shared -s -Wl,-soname,libforeign.so -o "$out/libforeign.so" foreign.c "$out/libcudart.so.12"
$CC -std=gnu11 -O2 -g -fomit-frame-pointer -fno-optimize-sibling-calls "-ffile-prefix-map=$PWD=testdata/faketorch" -Wall -Wextra \
  -o "$out/tensors_c" tensors_c.c sites.c modes.c "$out/torch-2.6/libc10_cuda.so" "$out/libforeign.so" \
  -Wl,--allow-shlib-undefined -Wl,-rpath-link,"$out:$out/torch-2.6" -lpthread
