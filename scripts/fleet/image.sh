#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh FOLDER PROGRAM…: makes the file system of an image in the folder: the programs in
# /usr/bin, the libraries that they link, and the folders that a container needs.
set -euo pipefail
root=${1:?usage: image.sh FOLDER PROGRAM…}
shift
mkdir -p "$root"/{usr/bin,usr/lib,usr/lib64,proc,sys,dev,etc,tmp,run,var/lib}
for link in bin lib lib64; do ln -sfn "usr/$link" "$root/$link"; done
echo 'root:x:0:0:root:/:/bin/false' >"$root/etc/passwd"
for program in "$@"; do
  install -m 755 "$program" "$root/usr/bin/"
  # "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)" and "/lib64/ld-linux-x86-64.so.2 (0x…)"
  ldd "$program" | sed -nE 's,.*=> (/[^ ]+) .*,\1,p; s,^[ \t]+(/[^ ]+) .*,\1,p' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
done
