#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh [--shell]: builds vramprof, starts a training process that leaks GPU memory, and attaches to
# it while it runs. Needs root. Writes demo.pb.gz. --shell attaches nothing: it opens a shell for
# docs/tutorial.md, in a folder with a copy of the training's source. The training ends with the shell.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
case ${1-} in
"" | --shell) ;;
*) echo "usage: demo.sh [--shell]" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "demo.sh: run it as root (tracing needs it)" >&2; exit 4; }
. scripts/install.sh
setup demo

say() { printf '\n== %s\n' "$*"; }

build() {
  mkdir -p .cache/bin
  say "building .cache/bin/vramprof"
  go build -o .cache/bin/ ./cmd/vramprof
}

# real_cudart: prints the path of the CUDA runtime library if there is a GPU with a driver.
real_cudart() {
  [ -e /dev/nvidiactl ] || return 1
  if [ -n "${CUDART:-}" ]; then
    echo "$CUDART"
    return
  fi
  { ldconfig -p | sed -n 's/.*libcudart\.so[.0-9]* .*=> //p'
    ls /usr/local/cuda*/lib64/libcudart.so.* /usr/lib/python3*/*-packages/nvidia/cuda_runtime/lib/libcudart.so.* \
      /usr/local/lib/python3*/*-packages/nvidia/cuda_runtime/lib/libcudart.so.* /opt/*/lib/libcudart.so.* \
      /usr/lib/python3*/*-packages/nvidia/cu13/lib/libcudart.so.* /usr/local/lib/python3*/*-packages/nvidia/cu13/lib/libcudart.so.*
  } 2>/dev/null | grep -m 1 .
}

choose_gpu() {
  if CUDART=$(real_cudart); then
    export CUDART
    say "using the GPU of this machine, through $CUDART"
    return
  fi
  unset CUDART
  [ ! -e /dev/nvidiactl ] || echo "no libcudart found (CUDART=FILE names one)"
  say "using a simulated GPU (see testdata/fakecuda/README.md)"
  testdata/fakecuda/build.sh .cache/demo
  export LD_LIBRARY_PATH=$PWD/.cache/demo FAKECUDA_SHM=$temporary/gpu
}

start_training() { # PROGRAM
  python3 "$1" >"$temporary/train.log" 2>&1 &
  training=$!
  for _ in $(seq 100); do
    grep -q ready "$temporary/train.log" && break
    kill -0 "$training" 2>/dev/null || break
    sleep 0.1
  done
  sleep 2
  if ! kill -0 "$training" 2>/dev/null; then
    echo "demo.sh: the training process ended:" >&2
    cat "$temporary/train.log" >&2
    exit 1
  fi
  say "train.py has been running for 2 seconds, as process $training"
}

cleanup() {
  [ -z "${training:-}" ] || kill "$training" 2>/dev/null || true
  [ -z "${training:-}" ] || wait "$training" 2>/dev/null || true
  rm -rf "$temporary"
}

temporary=$(mktemp -d)
trap cleanup EXIT
trap 'exit 130' INT TERM
export PYTHONDONTWRITEBYTECODE=1

# open_shell: a shell in a copy of the training's folder, where $training is its pid.
open_shell() {
  rm -rf .cache/tutorial
  mkdir -p .cache/tutorial
  cp -r testdata/programs/train.py testdata/programs/site-packages .cache/tutorial/
  start_training "$PWD/.cache/tutorial/train.py"
  cd .cache/tutorial
  export training
  say "a shell in $PWD, where \$training is $training; exit ends both"
  PS1='tutorial# ' "${BASH:-bash}" --norc || true
}

build
choose_gpu
PATH=$PWD/.cache/bin:$PATH
if [ "${1-}" = --shell ]; then
  open_shell
  exit
fi
start_training testdata/programs/train.py

say "vramprof ps"
vramprof ps
say "vramprof record -p $training -d 6 -o demo.pb.gz"
vramprof record -p "$training" -d 6 --force -o demo.pb.gz
say "vramprof leaks -p $training -d 8"
vramprof leaks -p "$training" -d 8
say "go tool pprof -top demo.pb.gz"
go tool pprof -top demo.pb.gz 2>/dev/null | sed -n '/^Showing/,$p' | head -n 14
printf '\n%s\n' "To browse it: go tool pprof -http=localhost:8080 demo.pb.gz"
