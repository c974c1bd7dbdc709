#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# glibc.sh VERSION FILE: fails if an ELF file needs a symbol of a newer glibc, or a library beside it.
set -euo pipefail
limit=${1:?usage: glibc.sh VERSION FILE} file=${2:?usage: glibc.sh VERSION FILE}
needed=$(readelf --version-info --wide "$file" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
newest=$(printf '%s\n' "${needed#GLIBC_}" "$limit" | sort -V | tail -n 1)
[ -n "$needed" ] || { echo "glibc.sh: $file needs no version of glibc: is it linked?" >&2; exit 1; }
[ "$newest" = "$limit" ] || { echo "glibc.sh: $file needs $needed, newer than $limit" >&2; exit 1; }
others=$(readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libdl|libpthread|libresolv|ld-linux-x86-64|ld-linux-aarch64)\.so' || true)
[ -z "$others" ] || { echo "glibc.sh: $file needs $others" >&2; exit 1; }
echo "$file needs $needed" >&2
