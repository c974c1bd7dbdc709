#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check-real-libs.sh [--without-torch] [--offline]: unpacks NVIDIA's libcuda, libcudart and
# libnvidia-ml, in all versions that Debian packages, and PyTorch's CUDA build into
# .cache/real-libs, and tests the probe table against them, including the answers of the real
# cuGetProcAddress. It installs nothing. PyTorch: 480 MB to download, 1.4 GB unpacked; the rest: 50
# MB and 300 MB. --offline uses what an earlier run has unpacked.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/debian.sh
cache=$PWD/.cache/real-libs
suites="bullseye bookworm trixie forky sid experimental"
names='libcuda1|libnvidia-tesla(-[0-9]+)?-cuda1|libcudart[0-9.]+|libnvidia-ml1|libnvidia-tesla(-[0-9]+)?-ml1'
torch='|libtorch-cuda-[0-9.]+'
offline=
for argument in "$@"; do
  case $argument in
    --without-torch) torch= ;;
    --offline) offline=1 ;;
    *) echo "usage: check-real-libs.sh [--without-torch] [--offline]" >&2; exit 2 ;;
  esac
done

skip() { echo "skipped: NVIDIA's libraries are unavailable: $*"; exit; }

# fetch: downloads every version of every package that is not in the cache.
fetch() {
  local package version folder
  # shellcheck disable=SC2086 # a list
  debian_configure "$work" deb "contrib non-free" $suites || return 1
  timeout 300 apt-get "${options[@]}" update >"$work/log" 2>&1 || true # fails if the suite no longer exists
  wanted=$(apt-cache "${options[@]}" pkgnames | grep -xE "$names$torch" | sort) ||
    { grep -m 1 -E '^[EW]: ' "$work/log" || echo "the mirror has no such package"; return 1; }
  # "libcudart11.0 | 11.8.89~11.8.0-5~deb12u1 | …": the first package of each of NVIDIA's releases
  # is enough.
  apt-cache "${options[@]}" madison $wanted | tr -d ' ' | while IFS='|' read -r package version _; do
    folder=$cache/${package}_${version%%[-+~]*}
    [ -e "$folder" ] && continue
    debian_unpack "$work" "$package" "$version" "$folder" || continue
  done
}

mkdir -p "$cache"
if [ -z "$offline" ]; then
  exec 9>"$cache.lock"
  flock 9
  work=$(mktemp -d "$cache.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  reason=$(fetch) || true
  rm -rf "$work"
  flock -u 9
fi
[ -n "$(find "$cache" -name 'libcuda.so.*' -type f -print -quit)" ] || skip "${reason:-no package could be unpacked}"
[ -z "${reason:-}" ] || echo "nothing new was downloaded: $reason" >&2

. scripts/install.sh
go=$(find_go "$(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod)" || find_go 1.21) || skip "no Go compiler"
export PATH="$(dirname "$go"):$PATH" CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -Wno-deprecated-declarations" VRAMPROF_REAL_LIBS=$cache
# As root, NVIDIA's libraries make this device file, also where no driver is loaded.
made=/dev/nvidiactl
[ ! -e $made ] || made=
output=$(go test -count=1 -v -run '^TestReal' ./tracer/probes ./tracer/nvml 2>&1) && status=0 || status=$?
[ -z "$made" ] || rm -f "$made"
if [ $status = 0 ]; then # the tests log the table
  sed -nE 's/^ +real_[a-z_]*test\.go:[0-9]+: //p' <<<"$output"
else
  printf '%s\n' "$output"
fi
passed=$(grep -c '^--- PASS' <<<"$output") || true
failed=$(grep -c '^--- FAIL' <<<"$output") || true
[ $status = 0 ] || [ "$failed" != 0 ] || failed=1 # it did not build
skipped=$(grep -c '^--- SKIP' <<<"$output") || true
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
