# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: walks of a process for its holders, and their effect on it.

measure_holders() {
  local answer
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "holders"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  measure_walk 250000 400 150 0.4
  measure_walk 5000000 8000 1000 8
  measure_walk_effect
}

# steps OBJECTS: starts a training that keeps at least as many objects, on the first CPU that this
# shell may use, and sets $p. A line to $steps_in makes it print its steps.
steps() {
  rm -f "$work/steps"
  mkfifo "$work/steps"
  local fd
  exec {steps_in}<> "$work/steps"
  exec {fd}< <(exec env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site" \
    taskset -c "$target_cpu" "$torch_root/python3" "$repository/testdata/holders/steps.py" "$1" 2>&1 < "$work/steps")
  p=$!
  output[$p]=$fd
  expect "$p" "ready *" 120
}

# cpus: sets the CPU of the target, and those of walks: all others, if there are any.
cpus() {
  local all
  mapfile -t all < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
  target_cpu=${all[0]} walk_cpus=$(IFS=,; echo "${all[*]:1}")
  walk_cpus=${walk_cpus:-$target_cpu}
}

# measure_walk OBJECTS MS MB SECONDS: walks of a process with that many objects.
measure_walk() {
  progress "walk of $1 objects"
  local p target_cpu walk_cpus figures ms mb cpu objects copied stated
  cpus
  steps $(($1 - 150000 > 0 ? $1 - 150000 : 0)) # the modules of PyTorch have 150,000
  figures=$("$python" - "$vramprof" "$p" "$walks" <<'PY'
import json, resource, statistics, subprocess, sys
ms, objects, problems = [], 0, []
for _ in range(int(sys.argv[3])):
    r = json.loads(subprocess.run([sys.argv[1], "holders", "--json", "-p", sys.argv[2]], stdout=subprocess.PIPE, check=True).stdout)
    ms.append(r["took_ns"] / 1e6)
    objects, problems = r["objects"], [s for s in r["problems"] if s.startswith("stopped")]
used = resource.getrusage(resource.RUSAGE_CHILDREN)
copied = next(int(line.split()[1]) for line in open("/proc/%s/smaps_rollup" % sys.argv[2]) if line.startswith("Anonymous:"))
print("%.0f %.0f %.2f %d %.0f %s" % (statistics.median(ms), used.ru_maxrss * 1024 / 1e6, (used.ru_utime + used.ru_stime) / len(ms), objects, copied * 1024 / 1e6, "; ".join(problems)))
PY
)
  read -r ms mb cpu objects copied stated <<< "$figures"
  exec {steps_in}>&-
  end "$p" TERM
  section "holders of a training with $objects Python objects, which goes on: medians of $walks walks"
  row "walk" "≤ $4 s" "$(awk -v m="$ms" 'BEGIN {printf "%.2f s", m / 1000}')" "" "$ms <= $2"
  row "  its processor time" "" "$cpu s" "" -
  row "highest resident set of vramprof" "≤ $3 MB" "$mb MB" "$(ratio "$mb" "$copied")" "$mb <= $3"
  row "  the process's own memory, which a walk copies" "" "$copied MB" "" -
  [ -z "$stated" ] || echo "    $stated"
}

# measure_walk_effect compares the steps of a training alone and while it is walked again and again.
# Walks have CPUs of their own: what is left are the memory map's lock, caches and bandwidth. A loop
# that reads nothing, on the same CPUs, shows what any program there would do.
measure_walk_effect() {
  local p target_cpu walk_cpus round count=0 loop
  cpus
  steps 100000
  for ((round = 1; round <= walk_rounds; round++)); do
    progress "walks in a loop, round $round of $walk_rounds"
    window "$p" none 0
    taskset -c "$walk_cpus" "$python" -c "while True: pass" & loop=$!
    window "$p" busy 0
    kill "$loop" && wait "$loop" 2>/dev/null || true
    : > "$work/walking"
    walk_loop "$p" & loop=$!
    window "$p" walked 0
    rm "$work/walking"
    wait "$loop" || true
    [ ! -s "$work/walks" ] || count=$((count + $(wc -l < "$work/walks")))
  done
  exec {steps_in}>&-
  end "$p" TERM
  local alone walked busy used used_walked slow slow_walked slow_busy
  alone=$(of holders-none 0 steps) walked=$(of holders-walked 0 steps)
  used=$(of holders-none 0 processor) used_walked=$(of holders-walked 0 processor)
  slow=$(of holders-none 0 slowest) slow_walked=$(of holders-walked 0 slowest)
  busy=$(of holders-busy 0 steps) slow_busy=$(of holders-busy 0 slowest)
  section "training that is walked in a loop: $count walks, $walk_rounds windows of $walk_seconds s in turn, walks on CPUs of their own: $([ "$walk_cpus" = "$target_cpu" ] && echo no || echo yes)"
  row "steps/s, to those without walks" "≥ 0.99" "$walked" "$(ratio3 "$walked" "$alone")" "$walked >= 0.99 * $alone"
  row "  beside a loop that reads nothing" "" "$busy" "$(ratio3 "$busy" "$alone")" -
  row "  processor ms of a step" "" "$used_walked" "$(ratio3 "$used_walked" "$used")" -
  row "slowest step of a second, µs" "≤ 1.05" "$slow_walked" "$(ratio3 "$slow_walked" "$slow")" "$slow_walked <= 1.05 * $slow"
  row "  beside a loop that reads nothing" "" "$slow_busy" "$(ratio3 "$slow_busy" "$slow")" -
}

ratio3() { awk -v a="$1" -v b="$2" 'BEGIN {if (b > 0) printf "%.3f", a / b}'; }

# window PID VARIANT KEY: lets a training run for $walk_seconds and adds its steps/s, and the
# slowest step of a second, to the samples.
window() {
  local steps time slowest used
  sleep 0.3
  echo begin >&"$steps_in"
  expect "$1" "begin *" 30
  sleep "$walk_seconds"
  echo end >&"$steps_in"
  expect "$1" "end *" 30
  read -r _ steps time slowest used <<< "$line"
  awk -v v="holders-$2 $3" -v n="$steps" -v t="$time" -v s="$slowest" -v u="$used" \
    'BEGIN {printf "%s steps %.1f\n%s slowest %d\n%s processor %.3f\n", v, n / t, v, s, v, 1000 * u / n}' >> "$samples"
}

# walk_loop PID: walks while $work/walking exists, and writes a line for each walk.
walk_loop() {
  : > "$work/walks"
  while [ -e "$work/walking" ] && taskset -c "$walk_cpus" "$vramprof" holders --json -p "$1" > /dev/null 2>> "$work/walks.err"; do echo; done >> "$work/walks"
}
