# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: how accurate vramprof is.

# measure_accuracy prints the table of cmd/vramprof/test/accuracy in Markdown. With --only accuracy
# and without --quick, it runs the long form, which takes half an hour.
measure_accuracy() {
  local long="" out
  if [ "$only" = accuracy ] && [ "$rounds" -ge 5 ]; then long=-accuracy.long; fi
  progress "accuracy: random programs, PyTorch, lost events"
  section "accuracy"
  out=$(VRAMPROF=$vramprof go test -count=1 -timeout 90m -v ./cmd/vramprof/test/accuracy -args $long) || {
    echo "$out" | grep -E '^ *--- FAIL|want ' >&2
    echo "bench.sh: a result is less accurate than stated" >&2
  }
  progress_end
  echo "$out" | grep '^|' | tee -a "$results/$kind.rows"
}
