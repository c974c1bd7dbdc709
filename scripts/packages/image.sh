#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh FOLDER FAKE SUITE KERNEL: makes a disk with that Debian, the package of a kernel, systemd, and
# the fake CUDA as the machine's driver. The user alice has the demo's program. Exit status 77: it is
# not available.
set -euo pipefail
[ $# = 4 ] || { echo "usage: image.sh FOLDER FAKE SUITE KERNEL" >&2; exit 2; }
folder=$1 fake=$2 suite=$3 kernel=$4
root=$folder/root
mkdir -p "$folder"
"$(dirname "$0")/tree.sh" "$suite" "$root" "$kernel" systemd systemd-sysv dbus udev kmod passwd procps initramfs-tools zstd python3 man-db zsh fish bash-completion curl rpm apparmor
[ ! "$folder/disk" -nt "$root.made" ] || [ ! "$folder/disk" -nt "$fake/stamp" ] || [ ! "$folder/disk" -nt "$0" ] || exit 0
cp "$root"/boot/vmlinuz-* "$folder/vmlinuz"
cp "$root"/boot/initrd.img-* "$folder/initrd"
rm -rf "$root/opt/fake"
cp -a "$fake" "$root/opt/fake"
echo /opt/fake >"$root/etc/ld.so.conf.d/driver.conf"
chroot "$root" ldconfig
chroot "$root" id alice >/dev/null 2>&1 || chroot "$root" useradd --create-home alice
install -d -o 1000 -g 1000 -m 700 "$root/home/alice" "$root/home/alice/job"
cp -a "$fake/train.py" "$fake/site-packages" "$root/home/alice/job/"
chown -R 1000:1000 "$root/home/alice/job"
echo 127.0.0.1 localhost >"$root/etc/hosts"
rm -f "$root/etc/resolv.conf"
cat >"$root/etc/systemd/system/inside.service" <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/bash -c 'mkdir -p /run/t && tar -xf /dev/vdb -C /run/t && exec bash /run/t/inside.sh'
END
install -d "$root/etc/systemd/system/multi-user.target.wants"
ln -sf ../inside.service "$root/etc/systemd/system/multi-user.target.wants/inside.service"
ln -sf /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
rm -f "$folder/disk"
truncate -s 2G "$folder/disk.part"
mkfs.ext4 -q -d "$root" "$folder/disk.part"
mv "$folder/disk.part" "$folder/disk"
