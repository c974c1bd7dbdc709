#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUTDIR: builds the fake CUDA libraries and the test programs. Needs gcc and g++. Does
# nothing if OUTDIR is up to date.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh OUTDIR}")
cd "$(dirname "$(realpath "$0")")"
programs=$(realpath ../programs)
CC=${CC:-gcc} CXX=${CXX:-g++} STRIP=${STRIP:-strip}
machine=$($CC -dumpmachine) machine=${machine%%-*}

stamp=$({ cat build.sh ./*.[chS] ./*.map ../faketorch/* "$programs"/*.* "$programs"/site-packages/*.py; $CC --version; } | sha256sum)
[ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
mkdir -p "$out/wheel"
rm -f "$out/stamp" # an interrupted build must not look complete; do not write through a hard link
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT

# No -g in the libraries: the real ones have no debug information.
cflags=(-std=gnu11 -O2 -fPIC -fomit-frame-pointer -fno-optimize-sibling-calls -fno-shrink-wrap
        -fasynchronous-unwind-tables -fvisibility=hidden -Wall -Wextra)
[ "$machine" != x86_64 ] || cflags+=(-fcf-protection=none)
link=(-shared -s -Wl,-z,lazy -Wl,--as-needed)
pflags=(-O2 -g -fomit-frame-pointer -fno-optimize-sibling-calls "-ffile-prefix-map=$programs=testdata/programs" -Wall -Wextra)

libcuda() {
  for f in books arena driver given device work memory procaddr blocks pools vmm arrays legacy sharing graphs objects; do $CC "${cflags[@]}" -c $f.c -o "$objects/cuda_$f.o"; done
  $CC -c stubs.S -o "$objects/stubs.o"
  $CC "${link[@]}" -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o "$out/libcuda.so.550.54.14" "$objects"/cuda_*.o "$objects/stubs.o" -lpthread
  ln -sf libcuda.so.550.54.14 "$out/libcuda.so.1"
  [ "$machine" = x86_64 ] || return 0
  mkdir -p "$out/driver_12.9" # with the entries of CUDA 12.9
  $CC -DENTRIES_12_9 -c stubs.S -o "$objects/stubs_12_9.o"
  $CC "${link[@]}" -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o "$out/driver_12.9/libcuda.so.575.57.08" "$objects"/cuda_*.o "$objects/stubs_12_9.o" -lpthread
  ln -sf libcuda.so.575.57.08 "$out/driver_12.9/libcuda.so.1"
}
libcudart() {
  local f
  for f in cudart cudart_kinds; do $CC "${cflags[@]}" -c $f.c -o "$objects/runtime_$f.o"; done
  $CC "${link[@]}" -Wl,-soname,libcudart.so.12 -Wl,--version-script=cudart.map -o "$out/libcudart.so.12.4.127" "$objects"/runtime_*.o -ldl -lpthread
  ln -sf libcudart.so.12.4.127 "$out/libcudart.so.12"
  # As old wheels name it.
  sed 's/libcudart.so.12/libcudart.so.10.2/' cudart.map > "$objects/wheel.map"
  $CC "${link[@]}" -Wl,-soname,libcudart-80664282.so.10.2 -Wl,--version-script="$objects/wheel.map" \
    -o "$out/wheel/libcudart-80664282.so.10.2" "$objects"/runtime_*.o -ldl -lpthread
  # As CUDA 13 names and versions it.
  sed 's/libcudart.so.12/libcudart.so.13/' cudart.map > "$objects/cudart13.map"
  $CC "${cflags[@]}" -DCUDART_13 -c cudart_kinds.c -o "$objects/runtime13_kinds.o"
  $CC "${link[@]}" -Wl,-soname,libcudart.so.13 -Wl,--version-script="$objects/cudart13.map" \
    -o "$out/libcudart.so.13" "$objects/runtime_cudart.o" "$objects/runtime13_kinds.o" -ldl -lpthread
  for f in cudart cudart_kinds; do $CC "${cflags[@]}" -DCUDART_STATIC -c $f.c -o "$objects/static_$f.o"; done
  rm -f "$out/libcudart_static.a"
  ar rcs "$out/libcudart_static.a" "$objects"/static_*.o
}
libnvml() {
  for f in books nvml nvml_memory; do $CC "${cflags[@]}" -c $f.c -o "$objects/nvml_$f.o"; done
  $CC "${link[@]}" -Wl,-soname,libnvidia-ml.so.1 -o "$out/libnvidia-ml.so.1" "$objects"/nvml_*.o -lpthread
}
c_programs() { # after libcudart
  local p list="alloc_c bench_c paths_c dying_c register_c borders_c marked_c storm_c flood_c"
  [ "$machine" != x86_64 ] || list+=" jit_c patched_c"
  for p in $list; do
    $CC -std=gnu11 "${pflags[@]}" -c "$programs/$p.c" -o "$objects/$p.o"
    $CC -o "$out/$p" "$objects/$p.o" "$out/libcudart.so.12" -ldl -lpthread
  done
  [ "$machine" != aarch64 ] || $CC -std=gnu11 "${pflags[@]}" -o "$out/first_arm64" "$programs"/first_arm64.[cS]
  for p in calls_c calls_arguments calls_call calls_random calls_kinds calls_share; do
    $CC -std=gnu11 "${pflags[@]}" -c "$programs/$p.c" -o "$objects/$p.o"
  done
  $CC -std=gnu11 "${pflags[@]}" -DLATE_BY_NAME -c "$programs/calls_call.c" -o "$objects/call12.o"
  $CC -o "$out/calls_c" "$objects"/calls_{c,arguments,random,kinds,share}.o "$objects/call12.o" "$out/libcudart.so.12" -ldl -lpthread
  $CC -std=gnu11 "${pflags[@]}" -DCUDART_13 -c "$programs/calls_call.c" -o "$objects/call13.o"
  $CC -o "$out/calls_13" "$objects"/calls_{c,arguments,random,kinds,share}.o "$objects/call13.o" "$out/libcudart.so.13" -ldl -lpthread
  $CC -s -o "$out/calls_static" "$objects"/calls_*.o "$out/libcudart_static.a" -ldl -lpthread
  $CC -o "$out/alloc_static_sym" "$objects/alloc_c.o" "$out/libcudart_static.a" -ldl -lpthread
  $STRIP -o "$out/alloc_static" "$out/alloc_static_sym"
}
cpp_program() {
  $CXX -std=c++17 "${pflags[@]}" -c "$programs/alloc_cpp.cpp" -o "$objects/alloc_cpp.o"
}

libcuda & a=$!
libnvml & b=$!
cpp_program & c=$!
libcudart
c_programs
../faketorch/build.sh "$out"
wait $a; wait $b; wait $c
$CXX -o "$out/alloc_cpp" "$objects/alloc_cpp.o" "$out/libcudart.so.12" -lpthread
cp -r "$programs"/*.py "$programs/site-packages" "$out/"
echo "$stamp" > "$out/stamp"
