# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: one function for each row of the budget.

all_programs="c_cuda c_cudart py_cuda py_cudart"

# measure_calls runs the variants in turn, round by round, so that load on the machine affects all
# of them.
measure_calls() {
  local round lib
  for ((round = 1; round <= rounds; round++)); do
    progress "calls, round $round of $rounds"
    sample none $all_programs fp_cuda fp_cudart p64_cuda
    sample floor $all_programs p64_cuda
    for lib in cuda cudart; do sample frames-$lib fp_$lib; done
    sample vramprof $all_programs p64_cuda
    sample vramprof-first c_cudart
    have_bpftrace || continue
    for lib in cuda cudart; do sample bpftrace-$lib c_$lib py_$lib; done
  done
}

have_bpftrace() { command -v bpftrace > /dev/null; }

# field FILE PATH: prints a number of a JSON report; sums the numbers of an object.
field() {
  "$python" - "$1" "$2" <<'PY'
import functools, json, sys
value = functools.reduce(lambda v, key: v[key], sys.argv[2].split("."), json.load(open(sys.argv[1])))
print(sum(value.values()) if isinstance(value, dict) else value)
PY
}

# losses FILE: prints why stacks are truncated or missing in a JSON report.
losses() { "$python" -c 'import json, sys
l = json.load(open(sys.argv[1]))["losses"]
print(", ".join(f"{n} {why}" for why, n in {"without stack": l["without_stack"], "torn": l["torn"], **l["truncated"]}.items() if n))' "$1"; }

# end_leaks FILE: ends the attached tracer "leaks --json" and writes its report to FILE.
end_leaks() {
  end "$attached"
  sed -n '/^{$/,/^}$/p' "$work/last_output" > "$1"
}

attach_leaks() { # PID FLAGS…
  start "$vramprof" leaks --json -p "$@"
  attached=$pid
  expect "$attached" "vramprof: tracing*" 60
}

# Two threads that allocate and free in turn: 100,000 events per second.
measure_rate() {
  progress "100,000 events/s for $seconds s"
  local p before begin half rss_half lost report=$work/rate.json
  program c_cuda 0 --threads 2 --rate 25000 --seconds "$seconds" --hold
  p=$pid
  attach_leaks "$p"
  before=$(cpu_ticks "$attached") begin=$(now_us)
  kill -USR1 "$p"
  half=$((seconds / 2))
  sleep $half
  rss_half=$(memory_kib "$attached" VmRSS)
  expect "$p" done $((seconds + 30))
  local ticks=$(($(cpu_ticks "$attached") - before)) us=$(($(now_us) - begin)) rss_end
  rss_end=$(memory_kib "$attached" VmRSS)
  end_leaks "$report"
  end "$p" TERM
  lost=$(field "$report" losses.lost_events)
  local events
  events=$(field "$report" losses.events)
  section "$(awk -v e="$events" -v u=$us 'BEGIN {printf "%.0f", e / u * 1e6}') events/s for $seconds s, two threads, 30 frames"
  row "events lost" "0" "$lost of $events" "" "$lost == 0"
  row "tracer, of one core" "< 100 %" "$(awk -v t=$ticks -v u=$us 'BEGIN {printf "%.1f %%", t * 1e6 / u}')" "" "$ticks * 10000 < $us"
  row "tracer's RSS, half way → end" "flat" "$(mib "$rss_half") → $(mib "$rss_end") MB" "" "$rss_end <= $rss_half * 1.1"
}

# Allocates a million blocks under the tracer, then measures the time from Ctrl-C to the end.
measure_live() {
  progress "1,000,000 live allocations"
  local p target begin peak=0 now_peak us profile=$work/live.pb.gz
  start "$vramprof" record --force -o "$profile" -- "$fake/bench_c" cuda $depth 1 --live 1000000 --sites 10000 --wait
  p=$pid
  expect "$p" "ready *" 300
  target=${line#ready }
  sleep 1
  local rss
  rss=$(memory_kib "$p" VmRSS)
  begin=$(now_us)
  kill -INT "$p"
  while now_peak=$(memory_kib "$p" VmHWM 2>/dev/null) && [ -n "$now_peak" ]; do
    peak=$now_peak
    sleep 0.02
  done
  us=$(($(now_us) - begin))
  kill -KILL "$target" 2>/dev/null || true
  finish "$p" > "$work/last_output"
  unset "output[$p]"
  section "1,000,000 live allocations from 10,000 sites"
  row "Ctrl-C until the profile is written" "≤ 2 s" "$(awk -v u=$us 'BEGIN {printf "%.2f s", u / 1e6}')" "" "$us <= 2000000"
  row "tracer's RSS before, and its peak" "< 400 MB" "$(mib "$rss"), $(mib "$peak") MB" "" "$peak < 400 * 1000000 / 1024"
  local live
  live=$(sed -nE 's/^bench_c .* cuda:0 +[0-9.]+ [KMGT]?i?B +([0-9,]+) .*/\1/p' "$work/last_output" | tr -d , | head -n 1)
  row "live allocations in the summary" "1000000" "${live:-none}" "" "${live:-0} == 1000000"
}

# Measures the time from the start of vramprof to its first whole stack. Unwind tables are loaded
# before probes, so the first event has a whole stack unless some are truncated.
measure_attach() {
  local answer
  printf 'ready\nrepeat 100000000\nsleep 5\nalloc a 1000\nfree a\nempty_cache\nend\n' > "$work/toy" # the program calls CUDA, so that stacks can be truncated
  attach_to "a C program with few libraries" "ready *" env LD_LIBRARY_PATH="$fake/torch-2.6:$fake" "$fake/tensors_c" "$work/toy"
  attach_to "a Python process that trains (4 threads)" "ready *" "$python" "$fake/train.py" --step-ms 5
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "attach to PyTorch"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  measure_start
  attach_to "the real PyTorch that trains, 20 ms a step" '*"point": "model"*' env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site" \
    "$torch_root/python3" "$repository/testdata/realtorch/train.py" --steps 100000 --every 100000 --sleep 0.02
}

# measure_start measures what "record --" adds to the start of a program that loads PyTorch.
measure_start() {
  local round variant begin alone="" traced=""
  local load=(env LD_LIBRARY_PATH="$torch_cuda:$fake" "$torch_root/python3" -c 'import torch; print("loaded")')
  for ((round = 0; round <= attach_rounds; round++)); do # the first round fills caches
    progress "start of PyTorch, round $round of $attach_rounds"
    for variant in alone traced; do
      begin=$(now_us)
      case $variant in
        alone) start "${load[@]}" ;;
        traced) start "$vramprof" record --cache "$work/tables" --force -o "$work/start.pb.gz" -- "${load[@]}" ;;
      esac
      expect "$pid" loaded 60
      [ $round = 0 ] || printf -v $variant '%s%s\n' "${!variant}" $(($(now_us) - begin))
      finish "$pid" > "$work/last_output"
      unset "output[$pid]"
    done
  done
  local us
  alone=$(median <<< "${alone%$'\n'}") traced=$(median <<< "${traced%$'\n'}")
  us=$((traced - alone))
  section "start of a program that loads PyTorch, with the cache of unwind tables"
  row "alone" "" "$(awk -v u="$alone" 'BEGIN {printf "%.2f s", u / 1e6}')" "" -
  row "record -- adds" "≤ 0.3 s" "$(awk -v u="$us" 'BEGIN {printf "%.2f s", u / 1e6}')" "" "$us <= 300000"
}

# attach_to WHAT READY COMMAND…: READY is a line that the program prints once it is working.
attach_to() {
  local what=$1 ready=$2 round begin truncated missing cold="" cached="" worst=0 why="" report=$work/attach.json p variant stacks
  shift 2
  for ((round = 1; round <= attach_rounds; round++)); do
    progress "attach to $what, round $round of $attach_rounds"
    start "$@"
    p=$pid
    expect "$p" "$ready" 60
    sleep 2
    attach_leaks "$p" --cache "$work/tables" # fills it
    end "$attached"
    for variant in cold cached; do
      begin=$(now_us)
      case $variant in
        cold) attach_leaks "$p" --no-cache ;;
        cached) attach_leaks "$p" --cache "$work/tables" ;;
      esac
      printf -v $variant '%s%s\n' "${!variant}" $(($(now_us) - begin))
      sleep 1
      end_leaks "$report"
      truncated=$(field "$report" losses.truncated) missing=$(field "$report" losses.without_stack)
      [ $((truncated + missing)) -le $worst ] || { worst=$((truncated + missing)); why=$(losses "$report"); }
    done
    end "$p" TERM
  done
  cold=$(median <<< "${cold%$'\n'}") cached=$(median <<< "${cached%$'\n'}") stacks=$(field "$report" losses.stacks)
  section "attach to $what"
  row "start until the first whole stack" "≤ 1 s" "$(awk -v u="$cached" 'BEGIN {printf "%.2f s", u / 1e6}')" "" "$cached <= 1000000"
  row "without the cache of unwind tables" "" "$(awk -v u="$cold" 'BEGIN {printf "%.2f s", u / 1e6}')" "" -
  row "stacks truncated or missing" "0" "$worst of $stacks" "" "$worst == 0 && $stacks > 0"
  [ -z "$why" ] || echo "    $why"
}

# A rank of PyTorch with all of NVIDIA's libraries and its data loader workers: the last forked
# process trains.
measure_forks() {
  local answer
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "forked processes of PyTorch"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  local i source=$work/library.c
  mkdir -p "$work/libraries"
  echo 'int nothing(void) { return 0; }' > "$source"
  gcc -shared -fPIC -o "$work/libraries/library0.so" "$source"
  for ((i = 1; i < 232; i++)); do cp "$work/libraries/library0.so" "$work/libraries/library$i.so"; done
  forks_of 800 3
  forks_of 2000 ""
}

# forks_of PROCESSES SECONDS: prints the target, if there is one.
forks_of() {
  local round begin all="" worst=0 lost=0 stacks=0 mappings child p report=$work/forks.json
  for ((round = 1; round <= attach_rounds; round++)); do
    progress "attach to $1 forked processes, round $round of $attach_rounds"
    mkfifo "$work/forks.$round"
    exec {held}<> "$work/forks.$round"
    start env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site" bash -c 'exec "$@" < '"$work/forks.$round" - \
      "$torch_root/python3" "$repository/testdata/realtorch/forks.py" --processes "$1" --libraries "$work/libraries"
    p=$pid
    expect "$p" "ready *" 120
    read -r _ mappings child <<< "$line"
    begin=$(now_us)
    start "$vramprof" leaks --json --name '^forks$'
    attached=$pid
    expect "$attached" "vramprof: tracing*" 120
    all+="$(($(now_us) - begin))"$'\n'
    kill -USR1 "$child"
    sleep 3
    end_leaks "$report"
    exec {held}<&-
    pkill -KILL -g "$p" || true
    end "$p" TERM
    rm "$work/forks.$round"
    worst=$((worst + $(field "$report" losses.truncated) + $(field "$report" losses.without_stack)))
    lost=$((lost + $(field "$report" losses.lost_events))) stacks=$((stacks + $(field "$report" losses.stacks)))
  done
  local us
  us=$(median <<< "${all%$'\n'}")
  section "attach to $1 forked processes of PyTorch with $mappings mappings of code, of which the last trains"
  if [ -n "$2" ]; then
    row "start until its first stack is whole" "≤ $2 s" "$(awk -v u="$us" 'BEGIN {printf "%.2f s", u / 1e6}')" "" "$us <= $2 * 1000000"
  else
    row "start until its first stack is whole" "" "$(awk -v u="$us" 'BEGIN {printf "%.2f s", u / 1e6}')" "" -
  fi
  row "stacks truncated or missing" "0" "$worst of $stacks" "" "$worst == 0 && $stacks > 0"
  row "events lost" "0" "$lost" "" "$lost == 0"
}

measure_idle() {
  progress "idle for $idle_seconds s"
  local p before us ticks rss
  program py_cudart 1
  p=$pid
  attach_vramprof vramprof-first "$p"
  sleep 3
  before=$(cpu_ticks "$attached") us=$(now_us)
  sleep "$idle_seconds"
  ticks=$(($(cpu_ticks "$attached") - before)) us=$(($(now_us) - us))
  rss=$(memory_kib "$attached" VmRSS)
  end "$attached"
  end "$p" TERM
  section "idle, attached to one Python process"
  row "tracer, of one core" "< 0.5 %" "$(awk -v t=$ticks -v u=$us 'BEGIN {printf "%.2f %%", t * 1e6 / u}')" "" "$ticks * 2000000 < $us"
  row "tracer's RSS" "< 150 MB" "$(mib "$rss") MB" "" "$rss < 150 * 1000000 / 1024"
}

# The kernel counts a tail call for the program that was entered: alloc_enter includes the unwinder.
profile_programs() {
  command -v bpftool > /dev/null || { echo "bench.sh: --profile needs bpftool" >&2; exit 1; }
  stats_before=$(< /proc/sys/kernel/bpf_stats_enabled)
  echo 1 > /proc/sys/kernel/bpf_stats_enabled
  local name p
  printf '%-12s %-14s %10s %8s\n' program "BPF program" calls "ns/call"
  for name in $all_programs; do
    program "$name" "$pairs"
    p=$pid
    attach_vramprof vramprof "$p"
    # The counts must be read before the process ends, because the programs end with it.
    bpf_counts "$attached" > "$work/before"
    kill -USR1 "$p"
    expect "$p" "pairs *" 60
    bpf_counts "$attached" > "$work/after"
    awk -v name="$name" 'NR == FNR {n[$1] = $3; ns[$1] = $4; next}
      $3 > n[$1] {printf "%-12s %-14s %10d %8.0f\n", name, $2, $3 - n[$1], ($4 - ns[$1]) / ($3 - n[$1])}' \
      "$work/before" "$work/after"
    end "$attached"
    finish "$p" > /dev/null
    unset "output[$p]"
  done
}

# bpf_counts PID: prints "ID NAME CALLS NS" for each program that the process holds and that has
# run.
bpf_counts() {
  { sed -n 's/^prog_id:[^0-9]*//p' /proc/"$1"/fdinfo/*; bpftool prog show; } | awk '
    NF == 1 {own[$1 ":"] = 1}
    /run_time_ns/ && own[$1] {
      for (i = 1; i < NF; i++) {
        if ($i == "name") name = $(i + 1)
        if ($i == "run_time_ns") ns = $(i + 1)
        if ($i == "run_cnt") calls = $(i + 1)
      }
      print $1, name, calls, ns
    }'
}
