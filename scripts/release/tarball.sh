#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tarball.sh NAME FILE: packs the files of a release in the current folder, all below NAME, as FILE.
# The same files make the same bytes. SOURCE_DATE_EPOCH is their time.
set -euo pipefail
name=${1:?usage: tarball.sh NAME FILE} file=${2:?usage: tarball.sh NAME FILE}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/$name
install -D -m 755 build/vramprof "$top/bin/vramprof"
mkdir -p "$top/share" && cp -r build/man "$top/share/man"
install -D -m 644 -t "$top/share/completions" build/completions/*
install -D -m 644 -t "$top/systemd" packaging/systemd/*
install -D -m 644 -t "$top/apparmor" packaging/apparmor/*
install -D -m 644 -t "$top" README.md LICENSE build/copyright
install -D -m 644 bpf/LICENSE "$top/LICENSE.GPL-2"
install -D -m 644 -t "$top/docs" docs/*.md
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -cf - "$name" | gzip -9n >"$file"
