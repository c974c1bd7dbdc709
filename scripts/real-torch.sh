#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# real-torch.sh [--offline]: unpacks Debian's CUDA build of PyTorch 2.6 with its Python 3.13 into
# .cache/realtorch (or $VRAMPROF_REALTORCH), builds stubs for the CUDA libraries that it links to,
# and prints the folders of both. It installs nothing and downloads nothing of NVIDIA's: 530 MB to
# download, 520 MB on disk. --offline uses what an earlier run has unpacked and only rebuilds the
# stubs. If PyTorch is unavailable, it prints "skipped: REASON" and ends with 0.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/debian.sh
cache=${VRAMPROF_REALTORCH:-$PWD/.cache/realtorch}
suite=trixie
# What "import torch" and a training loop load. Omitted dependencies: everything of NVIDIA, MPI, and
# what torch.compile and torch.hub use.
packages="python3-torch-cuda libtorch-cuda-2.6 libgloo-cuda-0 libtensorpipe-cuda-0
  libblas3 liblapack3 libgfortran5 libcpp-httplib0.18 libcpuinfo0 libdnnl3.6 libfmt10 libnuma1 libonnx1t64 libprotobuf32t64
  libpthreadpool0 libsleef3 libvulkan1 libxnnpack0.20241108 libz3-4 libssl3t64 libbrotli1 libuv1t64 libibverbs1
  libnl-3-200 libnl-route-3-200 libgomp1 libstdc++6 libgcc-s1 libc6 libzstd1 zlib1g
  python3.13-minimal libpython3.13-minimal libpython3.13-stdlib libffi8 libexpat1 libbz2-1.0 liblzma5 libuuid1
  python3-numpy python3-numpy-dev python3-sympy python3-mpmath python3-typing-extensions"
not_needed=(--exclude='./usr/share' --exclude='./usr/include' --exclude='./etc' --exclude='*/gconv' --exclude='*/torch/bin/*est*')
offline=
case ${1:-} in
  "") ;;
  --offline) offline=1 ;;
  *) echo "usage: real-torch.sh [--offline]" >&2; exit 2 ;;
esac

skip() { echo "skipped: PyTorch is unavailable: $*"; exit; }
hash() { sha256sum | cut -c 1-16; }

complaint() { grep -m 1 -E '^[EW]: ' "$work/log" || echo "apt-get failed"; } # a failed update may only warn

# fetch: unpacks everything into $work/root. It prints what is missing.
fetch() {
  local package
  debian_configure "$work" deb "main contrib" $suite || return 1
  mkdir "$work/root"
  timeout 300 apt-get "${options[@]}" update >"$work/log" 2>&1 || { complaint; return 1; }
  (cd "$work/archives" && timeout 900 apt-get "${options[@]}" download $packages) >>"$work/log" 2>&1 || { complaint; return 1; }
  echo "fetched $(du -sm "$work/archives" | cut -f 1) MB" >&2
  for package in "$work"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/root" "${not_needed[@]}" || { echo "$package does not unpack"; return 1; }
    rm "$package"
  done
  arrange || return 1
}

# arrange: does what installation scripts would do, as far as needed.
arrange() {
  local root=$work/root loader triplet name library offset size
  loader=$(cd "$root" && ls usr/lib64/ld-linux-x86-64.so.2 usr/lib/ld-linux-aarch64.so.1 2>/dev/null) || true
  triplet=$(cd "$root/usr/lib" && ls -d -- *-linux-gnu) && [ -n "$loader" ] || { echo "the packages contain no dynamic loader"; return 1; }
  for name in blas lapack; do # update-alternatives
    ln -sf $name/lib$name.so.3 "$root/usr/lib/$triplet/lib$name.so.3"
  done
  # The kernels for real GPUs are 80 % of the bytes and are never read.
  library=$(find "$root/usr/lib/$triplet" -name 'libtorch_cuda.so.*' -type f)
  read -r offset size < <(readelf -SW "$library" | sed -n 's/.* \.nv_fatbin  *PROGBITS *[0-9a-f]* \([0-9a-f]*\) \([0-9a-f]*\) .*/\1 \2/p')
  [ -n "${size:-}" ] || { echo "libtorch_cuda has no kernels"; return 1; }
  fallocate --punch-hole --offset $((16#$offset)) --length $((16#$size)) "$library" 2>/dev/null ||
    echo "this file system has no holes: 1.1 GB more" >&2
  cat >"$root/python3" <<SCRIPT
#!/bin/sh
# Debian's Python with its own loader and libc.
here=\$(dirname "\$(realpath "\$0")")
PYTHONHOME=\$here/usr exec "\$here/$loader" --argv0 "\$here/python3" \\
  --library-path "\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}\$here/usr/lib/$triplet:\$here/usr/lib" "\$here/usr/bin/python3.13" "\$@"
SCRIPT
  chmod +x "$root/python3"
  testdata/realtorch/build.sh "$root" "$work/cuda" >>"$work/log" 2>&1 || { echo "stubs for it cannot be built: $(tail -n 1 "$work/log")"; return 1; }
  # Import the modules that programs use once, to write their byte code.
  env -u PYTHONPATH -u PYTHONDONTWRITEBYTECODE -u PYTHONPYCACHEPREFIX LD_LIBRARY_PATH="$work/cuda" "$root/python3" -c \
    'import torch, torch._dynamo, torch.utils.data, torch.utils.checkpoint, torch.distributed, torch.nn.parallel, ctypes, json' \
    >>"$work/log" 2>&1 || { echo "the unpacked Python does not run: $(tail -n 1 "$work/log")"; return 1; }
}

command -v gcc >/dev/null && command -v readelf >/dev/null || skip "no gcc or no binutils"
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
root=$cache/root-$({ echo "$suite $packages ${not_needed[*]}"; declare -f arrange; uname -m; } | hash)
if [ ! -d "$root" ]; then
  [ -z "$offline" ] || skip "PyTorch is not unpacked: run scripts/real-torch.sh"
  rm -rf "$cache"/new.*
  work=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  reason=$(fetch) || skip "$reason"
  chmod 755 "$work/root"
  mv "$work/root" "$root"
  echo "unpacked to $(du -sm "$root" | cut -f 1) MB in $SECONDS s" >&2
fi
cuda=$cache/cuda-$({ cat testdata/realtorch/*.{c,sh} testdata/fakecuda/{cudart*.c,*.h}; echo "$root"; gcc --version; } | hash)
if [ ! -d "$cuda" ]; then
  new=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$new" ${work:+"$work"}' EXIT
  testdata/realtorch/build.sh "$root" "$new" >&2
  chmod 755 "$new"
  mv "$new" "$cuda"
fi
touch "$root" "$cuda"
# Other checkouts may share the cache: remove what was unused for a week.
find "$cache" -maxdepth 1 \( -name 'root-*' -o -name 'cuda-*' \) -mtime +7 -exec rm -rf {} +
echo "$root"
echo "$cuda"
