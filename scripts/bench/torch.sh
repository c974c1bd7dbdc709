# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: the real PyTorch on the fake GPU, and the fake PyTorch at a given rate and
# number of tensors.

# The training loop: launch-bound like no real job, and with 20 ms per step, as with a busy GPU.
measure_torch() {
  local answer
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "PyTorch"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  torch_c10=$(find "$torch_root/usr/lib" -name 'libc10.so.2*' -type f | head -n 1)
  local round sleep variant
  for ((round = 1; round <= torch_rounds; round++)); do
    for sleep in 0 0.02; do
      for variant in none floor sampled every; do
        progress "PyTorch, round $round of $torch_rounds: $variant"
        torch_run "$variant" "$sleep"
      done
    done
  done
  section "training loop of PyTorch 2.6, 441 tensors a step, after its first $torch_warm s, medians of $torch_rounds rounds"
  torch_row "alone, steps/s" none 0
  torch_row "  empty probe" floor 0
  torch_row "  default sample" sampled 0 "≤ 1.05 × the empty probe" floor 1.05
  torch_row "  every tensor's stack" every 0 "≤ 1.4" none 1.4
  torch_row "20 ms a step: alone, steps/s" none 0.02
  torch_row "  empty probe" floor 0.02
  torch_row "  default sample" sampled 0.02 "≤ 1.02" none 1.02
  torch_row "  every tensor's stack" every 0.02
}

# torch_run VARIANT SLEEP: adds "VARIANT SLEEP steps VALUE" to the samples.
torch_run() {
  local steps train=(env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site"
    "$torch_root/python3" "$repository/testdata/realtorch/train.py" --warm "$torch_warm" --seconds "$torch_seconds" --sleep "$2")
  attached=""
  case $1 in
    floor) attach_torch_floor ;;
    sampled) train=("$vramprof" record --force -o "$work/torch.pb.gz" -- "${train[@]}") ;;
    every) train=("$vramprof" record --sample 0 --force -o "$work/torch.pb.gz" -- "${train[@]}") ;;
  esac
  steps=$("${train[@]}" 2> "$work/torch.err" < /dev/null | sed -n 's/^\([0-9.]*\) steps\/s.*/\1/p')
  [ -z "$attached" ] || end "$attached"
  [ -n "$steps" ] || { echo "bench.sh: the training printed no figure:" >&2; tail -n 5 "$work/torch.err" >&2; exit 1; }
  echo "torch-$1 $2 steps $steps" >> "$samples"
}

attach_torch_floor() {
  start "$cache/floor" "$torch_c10"
  attached=$pid
  expect "$attached" "floor: ready" 30
}

# torch_row WHAT VARIANT SLEEP [TARGET BESIDE LIMIT]: prints steps/s, and how much longer a step takes
# than alone. The target is a limit beside another variant.
torch_row() {
  local steps alone ratio beside
  steps=$(of "torch-$2" "$3" steps) alone=$(of torch-none "$3" steps)
  ratio=$(awk -v a="$alone" -v s="$steps" 'BEGIN {printf "%.3f", a / s}')
  if [ -n "${4:-}" ]; then
    beside=$(of "torch-$5" "$3" steps)
    row "$1" "$4" "$steps" "$ratio" "$beside <= $6 * $steps" "$beside <= $6 * $(of torch-floor "$3" steps)"
  else
    row "$1" "" "$steps" "$ratio" -
  fi
}

# Two threads of the fake PyTorch: 200,000 tensor events per second, of which a sample is sent.
measure_tensor_rate() {
  progress "200,000 tensor events/s for $seconds s"
  local p before begin report=$work/tensors.json
  toy "rate 2 $seconds 200000"
  p=$pid
  attach_leaks "$p"
  before=$(cpu_ticks "$attached") begin=$(now_us)
  kill -USR1 "$p"
  expect "$p" "rate *" $((seconds + 60))
  local events ticks=$(($(cpu_ticks "$attached") - before)) us=$(($(now_us) - begin))
  events=$(awk '{printf "%.0f", $2 / $3 * 1e9}' <<< "$line") # "rate EVENTS NANOSECONDS"
  end_leaks "$report"
  end "$p" TERM
  local lost
  lost=$(field "$report" losses.lost_events)
  section "$events tensor events/s for $seconds s, two threads"
  row "events lost" "0" "$lost" "" "$lost == 0"
  row "tracer, of one core" "< 100 %" "$(awk -v t=$ticks -v u=$us 'BEGIN {printf "%.1f %%", t * 1e6 / u}')" "" "$ticks * 10000 < $us"
}

# A process with two million live tensors, all in the sample.
measure_tensor_live() {
  progress "2,000,000 live tensors"
  local p rss
  toy "live 2000000
print filled"
  p=$pid
  start "$vramprof" leaks --json --sample 0 -p "$p"
  attached=$pid
  expect "$attached" "vramprof: tracing*" 60
  kill -USR1 "$p"
  expect "$p" filled 300
  sleep 2
  rss=$(memory_kib "$attached" VmRSS)
  end_leaks "$work/tensors.json"
  end "$p" TERM
  section "2,000,000 live tensors, each with its stack"
  row "tracer's RSS" "< 400 MB" "$(mib "$rss") MB" "" "$rss < 400 * 1000000 / 1024"
  row "events lost" "0" "$(field "$work/tensors.json" losses.lost_events)" "" "$(field "$work/tensors.json" losses.lost_events) == 0"
}

# toy SCRIPT: starts the fake PyTorch, which waits before it runs the script.
toy() {
  printf 'ready\nwait\n%s\nwait\n' "$1" > "$work/toy"
  start env LD_LIBRARY_PATH="$fake/torch-2.6:$fake" "$fake/tensors_c" "$work/toy"
  expect "$pid" "ready *" 30
}
