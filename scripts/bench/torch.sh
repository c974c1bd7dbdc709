# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: the real PyTorch on the fake GPU, and the fake PyTorch at a given rate and
# number of tensors.

# The training loop: launch-bound like no real job, and with 20 ms per step, as with a busy GPU. All
# variants take turns in one training, each just after a window alone: two processes differ by more
# than what is measured.
measure_torch() {
  local p train_in round sleep variant
  start_training "PyTorch"
  [ -n "$p" ] || return 0
  for ((round = 1; round <= torch_rounds; round++)); do
    for variant in floor sampled every; do
      progress "PyTorch, round $round of $torch_rounds: $variant"
      local -A alone=()
      for sleep in 0 0.02; do
        train "$torch_seconds" $sleep
        alone[$sleep]=$per_second
        echo "torch-none $sleep steps $per_second" >> "$samples"
      done
      "attach_torch_$variant" "$p"
      train 1 0 # it sees each stack for the first time
      for sleep in 0 0.02; do
        train "$torch_seconds" $sleep
        echo "torch-$variant $sleep steps $per_second" >> "$samples"
        awk -v a="${alone[$sleep]}" -v s="$per_second" -v what="torch-$variant $sleep" 'BEGIN {print what, "ratio", a / s}' >> "$samples"
      done
      end "$attached"
    done
  done
  end_training
  section "training loop of PyTorch 2.6, 441 tensors a step, medians of $torch_rounds rounds"
  torch_row "alone, steps/s" none 0
  torch_row "  empty probe" floor 0
  torch_row "  default sample" sampled 0 "≤ 1.05 × the empty probe" 1.05 floor
  torch_row "  every tensor's stack" every 0 "≤ 1.4" 1.4
  torch_row "20 ms a step: alone, steps/s" none 0.02
  torch_row "  empty probe" floor 0.02
  torch_row "  default sample" sampled 0.02 "≤ 1.02" 1.02
  torch_row "  every tensor's stack" every 0.02
}

# start_training SECTION: starts the training $p, or prints why there is none, and $p is empty.
start_training() {
  local answer fd torch_root torch_cuda
  p=''
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "$1"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  torch_c10=$(find "$torch_root/usr/lib" -name 'libc10.so.2*' -type f | head -n 1)
  mkfifo "$work/train"
  exec {train_in}<> "$work/train"
  exec {fd}< <(exec env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site" \
    "$torch_root/python3" "$repository/testdata/realtorch/train.py" --serve 2>&1 < "$work/train")
  p=$!
  output[$p]=$fd
  train "$torch_warm" 0
}

end_training() {
  exec {train_in}>&-
  end "$p" TERM
  rm "$work/train"
}

# train SECONDS SLEEP: lets the training $p run, and sets $per_second to its steps.
train() {
  echo "run $1 $2" >&"$train_in"
  expect "$p" "served *" 120
  per_second=$(awk '{printf "%.1f", $2 / $3}' <<< "$line") # "served STEPS SECONDS ALLOCATIONS"
}

attach_torch_floor() {
  start "$cache/floor" "$torch_c10"
  attached=$pid
  expect "$attached" "floor: ready" 30
}

attach_torch_sampled() { attach_record "$1"; }
attach_torch_every() { attach_record "$1" --sample 0; }

attach_record() { # PID FLAGS…
  start "$vramprof" record --force -o "$work/torch.pb.gz" -p "$@"
  attached=$pid
  expect "$attached" "vramprof: tracing*" 60
}

# torch_row WHAT VARIANT SLEEP [TARGET LIMIT [BESIDE]]: prints steps/s, and how much longer a step takes
# than alone. The limit is one of this ratio, or of it to that of another variant.
torch_row() {
  local steps ratio=1.000 beside=1
  steps=$(of "torch-$2" "$3" steps)
  [ "$2" = none ] || ratio=$(awk -v r="$(of "torch-$2" "$3" ratio)" 'BEGIN {printf "%.3f", r}')
  [ -z "${6:-}" ] || beside=$(of "torch-$6" "$3" ratio)
  if [ -n "${4:-}" ]; then
    row "$1" "$4" "$steps" "$ratio" "$ratio <= $5 * $beside" "$(of torch-floor "$3" ratio) <= $5 * $beside"
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
