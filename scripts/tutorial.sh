#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutorial.sh: runs the commands of docs/tutorial.md as root, on the GPU that demo.sh finds, and writes
# what they print, and the pictures in docs/tutorial/, anew. Takes three minutes. The commands run in a
# mount of this checkout at /opt/vramprof, whose name the outputs show; other CUDA processes show too.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
[ "$(id -u)" = 0 ] || { echo "tutorial.sh: run it as root (tracing needs it)" >&2; exit 4; }
. scripts/install.sh
setup tutorial
mkdir -p /opt/vramprof
exec unshare --mount --propagation private sh -c 'mount --bind "$PWD" /opt/vramprof && cd /opt/vramprof && exec python3 -B scripts/tutorial.py'
