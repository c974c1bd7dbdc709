#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tree.sh SUITE FOLDER PACKAGE…: makes a tree of Debian with mmdebstrap, from apt's mirror, unless the
# folder has it with these packages and is less than a week old. PACKAGE/SUITE-backports is one of
# backports. Exit status 77: it is not available.
set -euo pipefail
suite=${1:?usage: tree.sh SUITE FOLDER PACKAGE…} root=$2
shift 2
wanted="$suite $*"
if [ "$(cat "$root.made" 2>/dev/null)" = "$wanted" ] && [ -n "$(find "$root.made" -mtime -7)" ]; then exit; fi
command -v mmdebstrap >/dev/null || { echo "no mmdebstrap" >&2; exit 77; }
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m 1 '/debian$') || { echo "no Debian mirror is configured" >&2; exit 77; }
rm -rf "$root" "$root.made"
packages=$* mirrors=("$mirror")
[[ $packages != *-backports* ]] || mirrors=("deb $mirror $suite main" "deb $mirror $suite-backports main")
mmdebstrap --quiet --variant=apt --architectures=amd64 --include="${packages// /,}" "$suite" "$root" "${mirrors[@]}" >&2 || { rm -rf "$root"; echo "no tree of Debian $suite" >&2; exit 77; }
echo "$wanted" >"$root.made"
