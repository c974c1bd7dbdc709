# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: the tracers under which the programs run.

depth=30

# program NAME [OPTION…]: starts one of the programs, which waits, and sets $pid.
#   c_LIB    C without frame pointers      fp_LIB   the same with frame pointers
#   p64_LIB  C, from 64 distinct stacks in turn
#   py_LIB   Python; LIB is cuda (the driver's stubs) or cudart (functions that begin with push)
program() {
  local name=$1 lib=${1#*_} command
  shift
  case $name in
    c_*) command=("$fake/bench_c") ;;
    p64_*) command=("$fake/bench_c") && set -- "$@" --paths 64 ;;
    fp_*) command=("$fake/bench_fp") ;;
    py_*) command=("$python" "$fake/bench.py") ;;
  esac
  start "${command[@]}" "$lib" $depth "$@" --wait
  expect "$pid" "ready *" 30
}

# sample VARIANT NAME…: starts the programs, attaches the variant, runs the programs one after the
# other, and detaches. It adds lines "VARIANT PROGRAM METRIC VALUE" to the samples.
sample() {
  local variant=$1 name key value p tails
  local -a pids=()
  shift
  for name in "$@"; do
    tails=--tails
    [ "${name%%_*}" != py ] || tails=
    program "$name" "$pairs" --split $tails
    pids+=("$pid")
  done
  "attach_${variant%%-*}" "$variant" "${pids[@]}"
  for name in "$@"; do
    p=${pids[0]}
    pids=("${pids[@]:1}")
    kill -USR1 "$p"
    while read -r key value; do
      echo "$variant $name $key $value" >> "$samples"
    done < <(finish "$p")
    unset "output[$p]"
  done
  [ -z "$attached" ] || end "$attached"
}

# Each attach_… VARIANT PID… sets $attached to the tracer's pid.
attach_none() { attached=""; }

attach_floor() {
  start "$cache/floor" "$fake/libcuda.so.1"
  attached=$pid
  expect "$attached" "floor: ready" 30
}

attach_frames() { # the probes take stacks
  start "$cache/floor" -stack "$fake/libcuda.so.1"
  attached=$pid
  expect "$attached" "floor: ready" 30
}

# vramprof, after it has detached its probes from the functions of the runtime that call the driver:
# a program calls them first, for as long as that takes. vramprof-first: before it has.
attach_vramprof() {
  local pids=() p warm=""
  if [ "$1" = vramprof ]; then
    program c_cudart 0 --rate 100 --seconds 5
    warm=$pid pids+=(-p "$pid")
  fi
  shift
  for p in "$@"; do pids+=(-p "$p"); done
  start "$vramprof" record --force -o "$work/profile.pb.gz" "${pids[@]}"
  attached=$pid
  expect "$attached" "vramprof: tracing*" 60
  [ -z "$warm" ] || { kill -USR1 "$warm"; finish "$warm" > /dev/null; }
}

# What a typical leak script does: it stores size and stack of live allocations.
attach_bpftrace() { # bpftrace-cuda, bpftrace-cudart
  local library=$fake/libcuda.so.1 alloc=cuMemAlloc_v2 free=cuMemFree_v2
  [ "$1" = bpftrace-cuda ] || library=$fake/libcudart.so.12 alloc=cudaMalloc free=cudaFree
  start bpftrace -e "
    uprobe:$library:$alloc { @out[tid] = arg0; @size[tid] = arg1; }
    uretprobe:$library:$alloc /@out[tid]/ {
      if (retval == 0) {
        \$p = *(uint64 *)@out[tid];
        @bytes[\$p] = @size[tid];
        @stacks[\$p] = ustack;
      }
      delete(@out[tid]);
      delete(@size[tid]);
    }
    uprobe:$library:$free { delete(@bytes[arg0]); delete(@stacks[arg0]); }
    interval:ms:300 { printf(\"ready\\n\"); }
    END { clear(@bytes); clear(@stacks); clear(@size); clear(@out); }"
  attached=$pid
  expect "$attached" ready 60
  sleep 0.5 # the interval probe may be attached first
}
