#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inside.sh SECONDS [ROW…]: runs in the guest of scripts/numa.sh. It prints a line "NUMA …" for each
# program, with NUMA balancing off and on. ROW: the number of a program, with balancing on only.
export FAKECUDA_DIR=/fake LD_LIBRARY_PATH=/fake PYTHONDONTWRITEBYTECODE=1
cd /t || exit 1
echo "BOOTED $(uname -r), $(ls -d /sys/devices/system/node/node* | wc -l) nodes, balancing $(cat /proc/sys/kernel/numa_balancing)"
of() { sed -n "s/^$1 //p" /proc/vmstat; }

seconds=$1 row=0
shift
rows=$*
/t/vramprof check | grep -A 4 NUMA

# measure LABEL COMMAND…
measure() {
  label=$1 row=$((row + 1)) states="0 1"
  shift
  if [ -n "$rows" ]; then
    case " $rows " in *" $row "*) states=1 ;; *) return ;; esac
  fi
  for balancing in $states; do
    echo $balancing >/proc/sys/kernel/numa_balancing
    faults=$(of numa_hint_faults) updates=$(of numa_pte_updates)
    /t/vramprof record -o /tmp/out.vram --force -- "$@" >/tmp/said 2>&1 || cat /tmp/said
    updates=$(($(of numa_pte_updates) - updates)) faults=$(($(of numa_hint_faults) - faults))
    /t/vramprof leaks /tmp/out.vram --json --top 1000 >/tmp/out.json
    python3 - "$label" $balancing $updates $faults <<'PYTHON'
import json, sys
losses = json.load(open("/tmp/out.json"))["losses"]
label, balancing, updates, faults = sys.argv[1:]
cut = losses["truncated"]
print(f"NUMA {label}, balancing {balancing}: {losses['stacks']} stacks, {100 * sum(cut.values()) / max(losses['stacks'], 1):.1f}% truncated {cut}, "
      f"{updates} pages marked, {faults} hint faults")
PYTHON
  done
}

measure "C, 1 thread, step of 200" /t/deep 1 "$seconds" 200
measure "C, 4 threads, step of 200" /t/deep 4 "$seconds" 200
measure "C, 4 threads, one step" /t/deep 4 "$seconds" 0
measure "C, 4 threads, one step, memory bound to the nodes" /t/deep 4 "$seconds" 0 bind
measure "Python, 4 threads, step of 200" /usr/bin/python3 /t/deep.py 4 "$seconds" 200
measure "Python, 4 threads, one step" /usr/bin/python3 /t/deep.py 4 "$seconds" 0
