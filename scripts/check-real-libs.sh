#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check-real-libs.sh [--without-torch] [--offline]: unpacks NVIDIA's libcuda, libcudart and
# libnvidia-ml, in all versions that Debian packages, and PyTorch's CUDA build into
# .cache/real-libs, and tests the probe table against them, including the answers of the real
# cuGetProcAddress. It installs nothing. PyTorch: 480 MB to download, 1.4 GB unpacked; the rest: 50
# MB and 300 MB. --offline uses what an earlier run has unpacked.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
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
  local tool mirror keys package version suite folder kept
  for tool in apt-get apt-cache dpkg-deb; do
    command -v $tool >/dev/null || { echo "no $tool"; return 1; }
  done
  # The configured mirror: "URIs: MIRROR" or "deb MIRROR SUITE main".
  mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE '/^#/!s,.*[ =]([a-z]+://[^ ]+/debian)/?( .*)?$,\1,p' | sort -u | sed -n 1p) || true
  [ -n "$mirror" ] || { echo "no Debian mirror is configured"; return 1; }
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -r "$keys" ] || { echo "no $keys"; return 1; }
  mkdir -p "$work"/{lists/partial,archives/partial,none}
  : >"$work/status"
  for suite in $suites; do # one by one: suites come and go
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: contrib non-free\nSigned-By: %s\n\n' "$mirror" "$suite" "$keys"
  done >"$work/all.sources"
  options=(-q -o "Dir::Etc::sourcelist=$work/all.sources" -o "Dir::Etc::sourceparts=$work/none" -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work" -o "Dir::State::status=$work/status" -o Acquire::Languages=none -o APT::Sandbox::User=root
    -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
  timeout 300 apt-get "${options[@]}" update >"$work/log" 2>&1 || true # fails if the suite no longer exists
  wanted=$(apt-cache "${options[@]}" pkgnames | grep -xE "$names$torch" | sort) ||
    { grep -m 1 -E '^[EW]: ' "$work/log" || echo "the mirror has no such package"; return 1; }
  # "libcudart11.0 | 11.8.89~11.8.0-5~deb12u1 | …": the first package of each of NVIDIA's releases
  # is enough.
  apt-cache "${options[@]}" madison $wanted | tr -d ' ' | while IFS='|' read -r package version _; do
    folder=$cache/${package}_${version%%[-+~]*}
    [ -e "$folder" ] && continue
    (cd "$work/archives" && rm -f ./*.deb && timeout 500 apt-get "${options[@]}" download "$package=$version") >>"$work/log" 2>&1 ||
      { echo "$package $version is unavailable: $(tail -n 1 "$work/log")" >&2; continue; }
    dpkg-deb -x "$work"/archives/*.deb "$work/root"
    mv "$work/root" "$folder"
    echo "unpacked $package $version" >&2
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
output=$(go test -count=1 -v -run '^TestReal' ./tracer/probes ./tracer/nvml 2>&1) && status=0 || status=$?
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
