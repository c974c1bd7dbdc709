#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# real-driver.sh [--offline] [--math] DRIVER: unpacks NVIDIA's libcuda, libnvidia-ml and libcudart of
# a driver branch that Debian packages (550, 535, 555 or 470) into .cache/real-libs, and the MIT-licensed
# headers of the same version's open kernel module (of 470, which has none: of 535's) into .cache/simdriver. It builds the simulated
# kernel driver with these headers and prints a folder with libsimdriver.so and the libraries as the
# loader looks for them (testdata/simdriver/README.md). It installs nothing and changes none of
# NVIDIA's files.
#
# --math also unpacks cuBLAS, NCCL and the other libraries that Debian's PyTorch links to, PyTorch's
# library of kernels, NPP, nvJPEG and a static NCCL: 1.6 GB to download, 4.3 GB unpacked. --offline uses what an earlier run
# has unpacked. If a package is unavailable, it prints "skipped: REASON" and ends with 0.
#
# Where Debian no longer has the source package, OPEN_MODULES=FOLDER names a git clone of the
# published open kernel modules; only headers are taken from it.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/debian.sh
offline='' math='' runtime='' headers_version='' headers_suite=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --offline) offline=1 ;;
    --math) math=1 ;;
    *) break ;;
  esac
  shift
done
case ${1:-} in
  550) suite=trixie packages="libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 libcudart12" ;;
  535) suite=bookworm packages="libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 libcudart11.0" runtime=libcudart12 ;;
  555) suite=experimental packages="libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1" runtime=libcudart12 ;;
  470) suite=bullseye packages="libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 libcudart11.0" headers_suite=bookworm headers_version=535.261.03 ;;
  *) echo "usage: real-driver.sh [--offline] [--math] 550|535|555|470" >&2; exit 2 ;;
esac
driver=$1
math_packages="libcudart12 libcublas12 libcublaslt12 libcufft11 libcurand10 libcusparse12 libcusolver11 libnvjitlink12 libnvtoolsext1
  libnccl2 libtorch-cuda-2.6"
# Those that only the tests of names need.
math_packages+=" libnvjpeg12 libnppc12 libnppisu12 libnccl-dev"
headers_of="src/common/sdk/nvidia/inc src/nvidia/arch/nvalloc/unix/include kernel-open/common/inc kernel-open/nvidia-uvm"
libs=$PWD/.cache/real-libs
cache=$PWD/.cache/simdriver

skip() { echo "skipped: NVIDIA's driver $driver is unavailable: $*"; exit; }
hash() { sha256sum | cut -c 1-16; }

# newest PATTERN…: prints the folder of the newest version.
newest() { ls -d "$@" 2>/dev/null | sort -V | tail -n 1; }

# unpacked PACKAGE: prints its folder: the driver's libraries are of one version.
unpacked() {
  local cuda
  cuda=$(newest "$libs/libcuda1_$driver".*)
  case $1 in
    libcuda1) echo "$cuda" ;;
    libnvidia-*) newest "$libs/${1}_${cuda##*_}" ;;
    *) newest "$libs/${1}"_* ;;
  esac
}

# download SUITE PACKAGE…: unpacks the packages that are not in the cache.
download() {
  local package version missing=()
  local from=$1
  shift
  for package in "$@"; do
    [ -n "$(unpacked "$package")" ] || missing+=("$package")
  done
  [ ${#missing[@]} != 0 ] || return 0
  debian_configure "$work" "deb deb-src" "main contrib non-free" "$from" || return 1
  timeout 300 apt-get "${options[@]}" update >"$work/log" 2>&1 || { grep -m 1 -E '^[EW]: ' "$work/log"; return 1; }
  for package in "${missing[@]}"; do
    version=$(apt-cache "${options[@]}" madison "$package" | tr -d ' ' | grep -m 1 "^$package|.*Packages$" | cut -d '|' -f 2) || true
    [ -n "$version" ] || { echo "$from has no $package"; return 1; }
    debian_unpack "$work" "$package" "$version" "$libs/${package}_${version%%[-+~]*}" || { echo "$package $version"; return 1; }
  done
}

# fetch_headers VERSION FOLDER: unpacks only the headers of that version, to FOLDER.
fetch_headers() {
  local version=$1 new=$work/headers folder paths=()
  rm -rf "$new"
  mkdir -p "$new" "$work/source"
  if [ -n "${OPEN_MODULES:-}" ]; then
    # shellcheck disable=SC2086 # a list
    git -C "$OPEN_MODULES" archive "$version" $headers_of 2>>"$work/log" | tar -x -C "$new" --wildcards '*.h' || { echo "$OPEN_MODULES has no tag $version"; return 1; }
  else
    debian_configure "$work" "deb deb-src" "main contrib non-free" "${headers_suite:-$suite}" || return 1
    timeout 300 apt-get "${options[@]}" update >"$work/log" 2>&1 || { grep -m 1 -E '^[EW]: ' "$work/log"; return 1; }
    (cd "$work/source" && timeout 300 apt-get "${options[@]}" source --download-only --tar-only nvidia-open-gpu-kernel-modules) >>"$work/log" 2>&1 ||
      { echo "no source package nvidia-open-gpu-kernel-modules $version is available (see OPEN_MODULES)"; return 1; }
    [ -e "$work/source/nvidia-open-gpu-kernel-modules_$version.orig.tar.xz" ] || { echo "${headers_suite:-$suite}'s source is not of version $version"; return 1; }
    for folder in $headers_of; do paths+=("*/$folder/*.h"); done
    tar -x -C "$new" --strip-components=1 --wildcards -f "$work/source/nvidia-open-gpu-kernel-modules_$version.orig.tar.xz" "${paths[@]}" ||
      { echo "the source package does not unpack"; return 1; }
  fi
  mv "$new" "$2"
  echo "unpacked the headers of $version" >&2
}

# fetch: unpacks what is missing. It prints why it cannot.
fetch() {
  # shellcheck disable=SC2086 # lists
  download $suite $packages || return 1
  # shellcheck disable=SC2086
  [ -z "$runtime" ] || download trixie $runtime || return 1
  # shellcheck disable=SC2086
  [ -z "$math" ] || download trixie $math_packages || return 1
  version=$(basename "$(unpacked libcuda1)")
  version=${version##*_}
  headers=${headers_version:-$version}
  [ -d "$cache/headers-$headers" ] || fetch_headers "$headers" "$cache/headers-$headers"
}

# complete: whether everything is unpacked.
complete() {
  local package
  for package in $packages $runtime ${math:+$math_packages}; do
    [ -n "$(unpacked "$package")" ] || return 1
  done
  version=$(basename "$(unpacked libcuda1)")
  version=${version##*_}
  headers=${headers_version:-$version}
  [ -d "$cache/headers-$headers" ]
}

# link_libraries FOLDER: links each library by the name that the loader looks for.
link_libraries() {
  local package file name
  mkdir -p "$1"
  for package in $packages $runtime ${math:+$math_packages}; do
    find "$(unpacked "$package")" -type f \( -name 'lib*.so.*' -o -name 'lib*_static.a' \) | while read -r file; do
      name=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
      ln -sfr "$file" "$1/${name:-$(basename "$file")}"
      ln -sfr "$file" "$1/$(basename "$file")" # libcuda asks for libnvidia-ptxjitcompiler.so.VERSION
    done
  done
}

for tool in gcc readelf; do command -v $tool >/dev/null || skip "no $tool"; done
[ "$(uname -m)" = x86_64 ] || skip "the simulated driver was written for x86-64"
mkdir -p "$libs" "$cache"
exec 9>"$cache/lock"
flock 9
if ! complete; then
  [ -z "$offline" ] || skip "it is not unpacked: run scripts/real-driver.sh${math:+ --math} $driver"
  work=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  fetch >"$work/reason" || skip "$(cat "$work/reason")"
  complete || skip "a package is incomplete"
fi
out=$cache/$version${math:+-math}-$({ cat testdata/simdriver/*.{c,h,sh} scripts/real-driver.sh; gcc --version; } | hash)
if [ ! -d "$out" ]; then
  new=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$new" ${work:+"$work"}' EXIT
  testdata/simdriver/build.sh "$cache/headers-$headers" "$version" "$new" >&2
  link_libraries "$new"
  chmod 755 "$new"
  mv "$new" "$out"
fi
touch "$out"
# Remove what was unused for a week.
find "$cache" -mindepth 1 -maxdepth 1 -name '[0-9]*' -mtime +7 -exec rm -rf {} +
echo "$out"
