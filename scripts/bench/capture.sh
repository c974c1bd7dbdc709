# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: the cost of a capture in bytes and CPU time.

# Measures writing and reading with the package's own benchmarks, and capturing with the fake
# PyTorch.
measure_capture() {
  local figures bytes read replay
  progress "captures: bytes and reading"
  figures=$(go test -run '^$' -bench '^Benchmark(Write|Read|Replay)$' -benchtime 5x ./tracer/capture)
  bytes=$(benchmark Write bytes/event) read=$(benchmark Read Mevents/s) replay=$(benchmark Replay Mevents/s)
  section "capture of a training of 1,000,000 events"
  row "bytes per event" "≤ 12" "$bytes" "" "$bytes <= 12"
  row "read, million events/s" "≥ 2" "$read" "" "$read >= 2"
  row "  into the books" "≥ 2" "$replay" "" "$replay >= 2"
  local sample round what
  for sample in 1MiB 0; do
    for ((round = 1; round <= rounds; round++)); do
      for what in pb.gz vram; do
        progress "capturing $what, --sample $sample, round $round of $rounds"
        record_rate "$what" "$sample"
      done
    done
    what="a sample of the tensors"
    [ "$sample" != 0 ] || what="every tensor"
    capture_rows "$what" "$sample"
  done
}

# benchmark NAME UNIT: prints a figure of "BenchmarkNAME-2  5  8.014 bytes/event".
benchmark() { awk -v name="^Benchmark$1(-|\$)" -v unit="$2" '$1 ~ name {for (i = 2; i <= NF; i++) if ($i == unit) print $(i - 1)}' <<< "$figures"; }

# record_rate ENDING SAMPLE: adds "capture-ENDING SAMPLE cpu SECONDS", vramprof's total CPU time,
# and "… bytes", the file's size, to the samples. The fake PyTorch makes 200,000 tensor events per
# second.
record_rate() {
  local target file=$work/rate.$1 cpu
  toy "rate 2 $seconds 200000"
  target=$pid
  start "$python" -c 'import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("cpu", used.ru_utime + used.ru_stime, code)' "$vramprof" record --force --sample "$2" -d $((seconds + 2)) -p "$target" -o "$file"
  attached=$pid
  expect "$attached" "vramprof: tracing*" 60
  kill -USR1 "$target"
  expect "$target" "rate *" $((seconds + 60))
  expect "$attached" "cpu *" 60
  cpu=$line
  finish "$attached" > /dev/null
  unset "output[$attached]"
  end "$target" TERM
  [ "${cpu##* }" = 0 ] || { echo "bench.sh: record ended with status ${cpu##* }" >&2; exit 1; }
  cpu=${cpu#cpu }
  { echo "capture-$1 $2 cpu ${cpu% *}"; echo "capture-$1 $2 bytes $(stat -c %s "$file")"; } >> "$samples"
}

capture_rows() { # WHAT SAMPLE
  local profile capture
  profile=$(of capture-pb.gz "$2" cpu) capture=$(of capture-vram "$2" cpu)
  section "capturing 200,000 tensor events/s for $seconds s, $1, medians of $rounds rounds"
  row "CPU of vramprof, pprof only" "" "$(printf '%.2f s' "$profile")" "" -
  row "  to a capture" "≤ 1.10" "$(printf '%.2f s' "$capture")" "$(awk -v a="$profile" -v b="$capture" 'BEGIN {printf "%.3f", b / a}')" "$capture <= $profile * 1.1"
  row "  its size" "" "$(of capture-vram "$2" bytes) bytes" "" -
}

# A report of 10 million events and 10,000 sites: time and peak memory of vramprof.
measure_report() {
  local file=$work/big.vram view result budget
  progress "reports of 10 million events"
  go test -count=1 -run WriteBigCapture ./tracer/capture -big "$file" > /dev/null
  section "capture of 10 million events, 10,000 sites: $(stat -c %s "$file") bytes"
  for view in summary tree timeline html moment; do
    result=$("$python" -c 'import resource, subprocess, sys, time
begin = time.monotonic()
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, code)' "$vramprof" report "$file" $(
      case $view in
        html) echo "--html $work/big.html --force" ;;
        moment) echo "--at 25s" ;; # the middle
        *) echo "--view $view" ;;
      esac))
    set -- $result
    [ "$3" = 0 ] || { echo "bench.sh: the report ended with status $3" >&2; exit 1; }
    budget=15
    [ $view != moment ] || { view="one moment, in the middle" budget=2; }
    row "$view, time" "≤ $budget s" "$(printf '%.1f s' "$1")" "" "$1 <= $budget"
    row "  memory" "≤ 500 MB" "$(mib "$2") MB" "" "$2 <= 500000000 / 1024"
  done
  row "the page's size" "≤ 5 MB" "$(awk -v b="$(stat -c %s "$work/big.html")" 'BEGIN {printf "%.1f MB", b / 1e6}')" "" "$(stat -c %s "$work/big.html") <= 5000000"
}
