#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# initrd.sh OUT FILE…: creates an initial file system with busybox, the given files and folders at
# their own paths, and the shared libraries that they need. Its init runs /inside.sh, given as
# "PATH=/inside.sh", with the words of vramprof.run="…" on the kernel's command line. It is not
# compressed: a simulated processor unpacks slowly. With ROOT in the environment, a folder of another
# architecture, programs, libraries and busybox are those in it.
set -euo pipefail
out=$(realpath -m "${1:?usage: initrd.sh OUT FILE…}")
shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{usr/bin,usr/lib,usr/lib64,usr/sbin,proc,sys,dev,tmp,root,run,etc}
for folder in bin lib lib64 sbin; do
  ln -s "usr/$folder" "$root/$folder"
  for part in "${ROOT:-}/$folder" "${ROOT:-}/usr/$folder"; do
    [ -z "${ROOT:-}" ] || [ ! -d "$part" ] || cp -a "$part/." "$root/usr/$folder/"
  done
done
for file in "$@"; do
  from=${file%%=*} to=${file#*=}
  mkdir -p "$root$(dirname "$to")"
  cp -a "$from" "$root$to"
done
find "$root" \( -name '*.pyc' -path '*/test/*' -o -name '*.a' \) -delete
# Libraries needed by programs and libraries, each once.
{ find "$root" -type f \( -perm -u+x -o -name "*.so*" \) -print0 | xargs -0r -n 64 ldd 2>/dev/null || true; } |
  sed -nE 's,.*[[:space:]](/[^ ]+\.so[^ ]*) \(0x.*,\1,p' | sort -u | while read -r library; do
    [ -e "$root$library" ] || { mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"; }
  done
busybox=$(command -v busybox)
[ -n "${ROOT:-}" ] || cp "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"; done
cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tracefs none /sys/kernel/tracing
mount -t securityfs none /sys/kernel/security
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
export PATH=/usr/bin:/bin HOME=/root
sh /inside.sh $(sed -n 's/.*vramprof\.run="\([^"]*\)".*/\1/p' /proc/cmdline)
echo "VM-DONE $?"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . -print0 | cpio --null -o -H newc --quiet) >"$out"
