# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: how right vramprof is.

# measure_accuracy: the table of cmd/vramprof/test/accuracy, in Markdown. Asked for alone, and without --quick, it is the long form, of half an hour.
measure_accuracy() {
  local long="" out
  if [ "$only" = accuracy ] && [ "$rounds" -ge 5 ]; then long=-accuracy.long; fi
  progress "accuracy: random programs, PyTorch, lost events"
  section "accuracy"
  out=$(VRAMPROF=$vramprof go test -count=1 -timeout 90m -v ./cmd/vramprof/test/accuracy -args $long) || {
    echo "$out" | grep -E '^ *--- FAIL|want ' >&2
    echo "bench.sh: something is less right than stated" >&2
  }
  progress_end
  echo "$out" | grep '^|' | tee -a "$results/$kind.rows"
}
