#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# upgrade.sh OLD NEW: in a tree without systemd, installs a .deb, upgrades, removes and purges it. Fails
# if anything but the archive and the configuration stays after removal, or anything after purging.
set -euo pipefail
work=$(mktemp -d /var/cache/packages.XXXXXX)
trap 'rm -rf "$work"' EXIT
tree() { find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /src -o -path /tmp \) -prune -o -print | sort; }
# stays NAME…: fails unless exactly these files have come since the beginning.
stays() { tree | comm -3 "$work/before" - | tr -d '\t' | diff <(printf '%s\n' "$@" | grep .) -; }

tree >"$work/before"
dpkg --install "$1"
first=$(vramprof version)
mkdir /var/lib/vramprof && touch /var/lib/vramprof/capture
echo "keep: 20m" >/etc/vramprof/serve.yml
dpkg --install "$2"
[ "$(vramprof version)" != "$first" ]
grep -q "^keep: 20m$" /etc/vramprof/serve.yml
dpkg --remove vramprof
stays /etc/apparmor.d /etc/apparmor.d/usr.bin.vramprof /etc/vramprof /etc/vramprof/serve.yml /var/lib/vramprof /var/lib/vramprof/capture
dpkg --purge vramprof
stays ""
