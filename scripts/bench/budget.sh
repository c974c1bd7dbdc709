# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: what tracing costs a training under a budget.

# One training of the real PyTorch, in which windows alone and windows with vramprof take turns. The figure is how
# much longer a step takes by the processor time that tracing adds to it: other programs on the machine change that
# less than its duration. A window is long enough for several pauses of tracing.
measure_budget() {
  local p train_in round sleep variant alone
  start_training "PyTorch under a budget"
  [ -n "$p" ] || return 0
  for ((round = 1; round <= torch_rounds; round++)); do
    for variant in 1 2 10 off; do
      for sleep in 0 0.02; do
        case $variant-$sleep in 1-0 | 10-0.02 | off-0.02) continue ;; esac
        progress "PyTorch, round $round of $torch_rounds: budget $variant, $sleep s more a step"
        train_cpu "$budget_alone" "$sleep"
        alone=$cpu_per_step
        attach_record "$p" --budget "$variant"
        train "$budget_warm" "$sleep" # it sees each stack for the first time, and uses up what it has saved
        train_cpu "$budget_seconds" "$sleep"
        end "$attached"
        train_cpu "$budget_alone" "$sleep"
        echo "budget-none $sleep cpu $alone" >> "$samples"
        awk -v a="$alone" -v b="$cpu_per_step" -v s="$traced_cpu" -v more="$sleep" -v what="budget-$variant $sleep" \
          'BEGIN {more *= 1000; print what, "ratio", (s + more) / ((a + b) / 2 + more)}' >> "$samples"
      done
    done
  done
  end_training
  section "duration of a step of PyTorch 2.6, 441 tensors, by its processor time, medians of $torch_rounds rounds"
  row "alone, ms" "" "$(of budget-none 0 cpu)" "" -
  budget_row "  --budget 2" 2 0 1.03
  budget_row "  --budget 10" 10 0 1.10
  budget_row "  every tensor, no budget" off 0
  row "20 ms more a step: alone, ms" "" "$(awk -v a="$(of budget-none 0.02 cpu)" 'BEGIN {print 20 + a}')" "" -
  budget_row "  --budget 2" 2 0.02 1.01
  budget_row "  --budget 1" 1 0.02 1.01
}

# train_cpu SECONDS SLEEP: lets the training $p run, and sets $cpu_per_step to the ms of processor time of a step.
# $traced_cpu is that of the window before.
train_cpu() {
  traced_cpu=${cpu_per_step:-0}
  train "$1" "$2"
  cpu_per_step=$(awk '{printf "%.3f", 1000 * $5 / $2}' <<< "$line")
}

# budget_row WHAT VARIANT SLEEP [LIMIT]: prints how much longer a step takes than alone.
budget_row() {
  local value
  value=$(printf '%.3f' "$(of "budget-$2" "$3" ratio)")
  if [ -n "${4:-}" ]; then
    row "$1" "≤ $4" "" "$value" "$value <= $4"
  else
    row "$1" "" "" "$value" -
  fi
}
