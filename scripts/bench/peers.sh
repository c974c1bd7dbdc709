# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: vramprof and other tools, in turn on the same programs. This script installs
# them; scripts/bench/peers runs them and parses their output.

measure_peers() {
  local answer torch=() headers peer_rounds=$rounds
  [ -z "${quick:-}" ] || peer_rounds=${ROUNDS:-1}
  progress "tools to compare with"
  setup peers || true
  go build -o "$cache/peers" ./scripts/bench/peers
  # Gives CUDA's functions the names of malloc, with frame pointers, as memleak requires.
  gcc -std=gnu11 -O2 -fPIC -shared -fno-builtin -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall -Wextra \
    -o "$fake/libbench_named.so" testdata/programs/bench_named.c "$fake/libcudart.so.12"
  answer=$(scripts/real-torch.sh) || exit 1
  case $answer in
    skipped:*) echo "$answer" ;;
    *) { read -r torch_root; read -r torch_cuda; } <<< "$answer"
      torch=(-torch "$torch_root" -torch-cuda "$torch_cuda" -train testdata/realtorch/train.py) ;;
  esac
  headers=$(kernel_headers) || headers=
  "$cache/peers" -fake "$fake" -floor "$cache/floor" -vramprof "$vramprof" -python "$python" -work "$work" ${torch[@]+"${torch[@]}"} \
    -headers "$headers" -rounds "$peer_rounds" -pairs $((pairs / 2)) -seconds "$peer_seconds" -torch-seconds "$peer_torch_seconds" \
    -o "$results/peers.samples"
  progress_end
  rounds=$peer_rounds
  echo
  go run ./scripts/bench/benchtable print scripts/bench/peers.tmpl "$results"
}

# kernel_headers: a folder for bcc if the running kernel's headers are not installed: those of
# Debian's kernel, unpacked into the cache. memleak only needs the registers.
kernel_headers() {
  [ ! -e "/lib/modules/$(uname -r)/build" ] && [ ! -e /sys/kernel/kheaders.tar.xz ] || return 0
  local package folder=$cache/headers
  if [ ! -d "$folder" ]; then
    package=$(apt-cache depends "linux-headers-$(dpkg --print-architecture)" 2>/dev/null | sed -n 's/.*Depends: \(linux-headers-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$package" ] || return 0
    mkdir "$work/headers"
    (cd "$work/headers" && apt-get -q download "$package" "${package%-*}-common" && for deb in *.deb; do dpkg-deb -x "$deb" .; done) > /dev/null 2>&1 || return 0
    mkdir "$work/headers/all"
    cp -a "$work"/headers/usr/src/*-common/. "$work/headers/all"
    cp -a --remove-destination "$work/headers/usr/src/$package/." "$work/headers/all"
    mv "$work/headers/all" "$folder"
  fi
  echo "$folder"
}
