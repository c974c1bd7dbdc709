#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# names.sh HEADERS: prints names.c, which names the classes, controls and UVM requests that the
# headers define, for the log.
set -euo pipefail
headers=${1:?usage: names.sh HEADERS}
sdk=$headers/src/common/sdk/nvidia/inc

# table NAME: reads "NUMBER NAME" lines, and prints a C function.
table() {
  echo "const char *$1(u32 number)"
  echo '{'
  echo '	static const struct { u32 number; const char *name; } names[] = {'
  sort -u -k 1,1 | awk '{printf "\t\t{%s, \"%s\"},\n", $1, $2}'
  echo '	};'
  echo '	for (size_t i = 0; i < COUNT(names); i++)'
  echo '		if (names[i].number == number)'
  echo '			return names[i].name;'
  echo '	return "(no published name)";'
  echo '}'
}

# hex FILE…: prints "NUMBER NAME" of each #define of a hexadecimal number.
hex() { sed -nE 's/^#define +([A-Z0-9_a-z]+) +\(?(0x[0-9a-fA-F]+)U?\)?.*/\2 \1/p' "$@"; }

echo '#include "sim.h"'
hex "$sdk"/class/*.h | grep -E '^0x0*[0-9a-fA-F]{1,4} (NV[0-9]*|[A-Z]+)_[A-Z0-9_]*$' | awk '{print tolower($1), $2}' | sed -E 's/^0x0+([0-9a-f])/0x\1/' | table class_name
find "$sdk/ctrl" -name '*.h' -print0 | xargs -0 cat | hex | grep -E ' NV[0-9A-F]+_CTRL_(CMD_)?' | grep -vE '_MESSAGE_ID$' | grep -E '^0x[0-9a-fA-F]{3,8} ' | table control_name
sed -nE 's/^#define +(UVM_[A-Z_0-9]+) +UVM_IOCTL_BASE\(([0-9]+)\).*/\2 \1/p; s/^#define +(UVM_(DE)?INITIALIZE) +(0x[0-9a-fA-F]+).*/\3 \1/p' "$headers"/kernel-open/nvidia-uvm/uvm{,_linux}_ioctl.h | table uvm_name
