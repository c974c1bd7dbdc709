#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# memory-viz.sh [--offline]: takes MemoryViz.js, the viewer behind pytorch.org/memory_viz, out of the sources of Debian's
# PyTorch 2.6 into .cache/memory-viz (or $VRAMPROF_MEMORYVIZ), and prints its path. 38 MB to fetch, nothing is installed.
# --offline takes what an earlier run has fetched. If it is not available, the script prints "skipped: why" and exits with 0.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../../.."
cache=${VRAMPROF_MEMORYVIZ:-$PWD/.cache/memory-viz}
suite=trixie
skip() { echo "skipped: MemoryViz.js is not available here: $*"; exit; }

[ ! -s "$cache/MemoryViz.js" ] || { echo "$cache/MemoryViz.js"; exit; }
[ "${1:-}" != --offline ] || skip "it is not prepared: run report/export/testdata/memory-viz.sh"
for tool in apt-get xz tar; do
  command -v $tool >/dev/null || skip "no $tool"
done
# "URIs: MIRROR" or "deb MIRROR SUITE main".
mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
  sed -nE '/^#/!s,.*[ =]([a-z]+://[^ ]+/debian)/?( .*)?$,\1,p' | sort -u | sed -n 1p) || true
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -n "$mirror" ] && [ -r "$keys" ] || skip "no Debian mirror is configured, or there is no $keys"
mkdir -p "$cache"
work=$(mktemp -d "$cache/new.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,none}
printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$mirror" $suite "$keys" >"$work/suite.sources"
apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/suite.sources" -o "Dir::Etc::sourceparts=$work/none" -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work" -o Acquire::Languages=none -o APT::Sandbox::User=root -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
cd "$work"
{ timeout 300 "${apt[@]}" update && timeout 600 "${apt[@]}" source --download-only --tar-only pytorch; } >log 2>&1 ||
  skip "$(grep -m 1 -E '^[EW]: ' log || echo "apt-get failed")"
tar -xf pytorch_*.orig.tar.xz --wildcards '*/torch/utils/viz/MemoryViz.js' --transform 's,.*/,,' || skip "it is not in the sources"
mv MemoryViz.js "$cache/"
echo "$cache/MemoryViz.js"
