# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: what the screen of "vramprof top" costs beside a session without one.

measure_top() {
  if ! command -v tmux > /dev/null; then section "top"; echo "  skipped: no tmux"; return; fi
  measure_screen 1 20 1
  measure_screen 200 25 5
  measure_hour
}

# measure_screen PROCESSES SITES TARGET: the processor time of top beside that of record, in % of a
# core, while each process makes 10 calls a second at that many sites.
measure_screen() {
  local p processes=() i with without
  local -x FAKECUDA_SHM=$work/top-shm FAKECUDA_MEMORY=256G # each process has a context
  progress "screen of $1 processes"
  for ((i = 0; i < $1; i++)); do
    start "$fake/bench_c" cudart 20 0 --wait --seconds 600 --rate 10 --paths "$2"
    processes+=("$pid")
  done
  for p in "${processes[@]}"; do
    expect "$p" "ready *" 60
    kill -USR1 "$p"
  done
  without=$(session_cost record -o "$work/top.vram" -f capture --force)
  with=$(session_cost top)
  for p in "${processes[@]}"; do end "$p" TERM; done
  section "screen of $1 process(es) with $(($1 * $2)) sites in all, for $top_seconds s"
  row "of a core, beside record" "≤ $3 %" "$(awk -v a="$with" -v b="$without" 'BEGIN {printf "%.2f %%", a - b}')" "" "$with - $without <= $3"
  row "  top / record" "" "$with / $without %" "" -
}

# session_cost COMMAND…: prints the % of a core that a vramprof command on a terminal takes once it
# runs.
session_cost() {
  local socket=$work/tmux pid begin
  tmux -S "$socket" -f /dev/null new-session -d -x 120 -y 40 "exec $vramprof $1 --holders=off --name '^bench_c' ${*:2} 2> $work/top.err"
  pid=$(tmux -S "$socket" display-message -p '#{pane_pid}')
  sleep "$top_warm"
  begin=$(cpu_ticks "$pid")
  sleep "$top_seconds"
  awk -v t=$(($(cpu_ticks "$pid") - begin)) -v s="$top_seconds" 'BEGIN {printf "%.2f", t / s}'
  kill -INT "$pid"
  while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
  tmux -S "$socket" kill-server 2> /dev/null || true
}

# measure_hour plays an hour of 200 processes through the screen and compares its heap.
measure_hour() {
  progress "an hour on the screen"
  local figures early late
  figures=$(go test -run '^$' -bench '^BenchmarkHour$' -benchtime 1x ./report/tui)
  early=$(benchmark Hour early-MB) late=$(benchmark Hour late-MB)
  section "an hour of 200 processes and 5,000 sites on the screen, played in $(benchmark Hour s-played) s"
  row "heap after 6 and 60 minutes" "+10 %" "$early / $late MB" "$(ratio "$late" "$early")" "$late <= 1.1 * $early"
}
