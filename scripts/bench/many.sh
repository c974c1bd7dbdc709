# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: many processes and many CPUs.

# 500 workers of a data loader end at once while two threads make 50,000 tensor events per second.
measure_exits() {
  progress "500 exits at once"
  local p workers job begin report=$work/exits.json
  toy $'workers 500 4096\nwait\nworkers_end'
  workers=$pid
  kill -USR1 "$workers"
  expect "$workers" "workers 500" 60
  toy "rate 2 $seconds 50000"
  job=$pid
  start "$vramprof" leaks --json --name tensors_c
  attached=$pid
  expect "$attached" "vramprof: tracing*" 120
  kill -USR1 "$job"
  sleep 1
  begin=$(now_us)
  kill -USR1 "$workers"
  expect "$workers" "workers 0" 60
  local us=$(($(now_us) - begin)) events
  expect "$job" "rate *" $((seconds + 60))
  events=$(awk '{printf "%.0f", $2 / $3 * 1e9}' <<< "$line")
  sleep 1
  end_leaks "$report"
  for p in "$workers" "$job"; do end "$p" TERM; done
  local lost
  lost=$(field "$report" losses.lost_events)
  section "500 processes end at once during $events tensor events/s"
  row "until all have ended" "" "$(awk -v u=$us 'BEGIN {printf "%.2f s", u / 1e6}')" "" -
  row "events lost" "0" "$lost of $(field "$report" losses.events)" "" "$lost == 0"
}

# Computed. scripts/test-memory.sh compares the result with a kernel on 64 CPUs.
measure_memory() {
  local cpus least torch most target
  go build -o "$cache/kernelmemory" ./scripts/bench/kernelmemory
  section "kernel memory, computed, all CPUs online"
  while read -r cpus least torch most; do
    target=""
    case $cpus in 2) target=100 ;; 224) target=150 ;; esac
    if [ -n "$target" ]; then
      row "$cpus CPUs, at least" "≤ $target MiB" "$least MiB" "" "$least <= $target"
    else
      row "$cpus CPUs, at least" "" "$least MiB" "" -
    fi
    row "  with PyTorch" "" "$torch MiB" "" -
    row "  with every table full" "" "$most MiB" "" -
  done < <("$cache/kernelmemory" 2 64 224)
}
