# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: threads and processes that hit the same probes at once.

contended="threads-1 threads-2 threads-4 threads-8 processes-2 processes-4 processes-8"

measure_contention() {
  local round variant group
  for ((round = 1; round <= rounds; round++)); do
    for variant in none floor vramprof; do
      progress "contention, round $round of $rounds: $variant"
      contend $variant
    done
  done
  section "pairs of \`cuMemAlloc_v2\` and \`cuMemFree_v2\` at once, $depth frames, $contend_seconds s each, medians of $rounds rounds"
  table_line "at once" "alone, median ns" "empty probes" "vramprof" "to empty probes" "99.9 %, µs: alone" "empty probes" "vramprof" "pairs/s of all: empty probes" "vramprof"
  table_line "---" "---:" "---:" "---:" "---:" "---:" "---:" "---:" "---:" "---:"
  for group in $contended; do
    local count=${group#*-} what=${group%-*}
    [ "$count" != 1 ] || what=thread
    table_line "$count $what" "$(thousands "$(pair none p50)")" "$(thousands "$(pair floor p50)")" "$(thousands "$(pair vramprof p50)")" "$(ratio "$(pair vramprof p50)" "$(pair floor p50)")" \
      "$(micro "$(pair none p999)")" "$(micro "$(pair floor p999)")" "$(micro "$(pair vramprof p999)")" \
      "$(thousands "$(of contention-floor "$group" pairs_per_s)")" "$(thousands "$(of contention-vramprof "$group" pairs_per_s)")"
  done
}

thousands() { printf '%.0f' "$1" | sed -E ':a; s/([0-9])([0-9]{3})($|,)/\1,\2\3/; ta'; }

pair() { of "contention-$1" "$group" "pair_$2"; }

micro() { awk -v n="$1" 'BEGIN {printf "%.1f", n / 1000}'; }

# table_line CELL…: prints a line of a Markdown table, and stores it.
table_line() {
  local cell line="|"
  for cell in "$@"; do line+=" $cell |"; done
  echo "$line" | tee -a "$results/$kind.rows"
}

# contend VARIANT: starts the programs of all groups, attaches, and runs one group after the other.
# The processes of a group map the same file; each reports its own median and tail, of which the
# median is taken.
contend() {
  local group count p key value threads
  local -x FAKECUDA_SHM=$work/contention-shm FAKECUDA_MEMORY=256G # each process has a context
  local -A members=()
  local -a pids=() all=()
  for group in $contended; do
    count=${group#*-} threads=$count
    if [ "${group%-*}" = processes ]; then threads=1; else count=1; fi
    while ((count-- > 0)); do
      program c_cuda 0 --threads "$threads" --seconds "$contend_seconds" --tails
      members[$group]+="$pid "
      all+=("$pid")
    done
  done
  "attach_$1" "$1" "${all[@]}"
  for group in $contended; do
    read -ra pids <<< "${members[$group]}"
    kill -USR1 "${pids[@]}"
    : > "$work/contended"
    for p in "${pids[@]}"; do
      finish "$p" >> "$work/contended"
      unset "output[$p]"
    done
    for key in pair_p50 pair_p999; do
      echo "contention-$1 $group $key $(awk -v k=$key '$1 == k {print $2}' "$work/contended" | median)"
    done >> "$samples"
    echo "contention-$1 $group pairs_per_s $(awk '$1 == "pairs_per_s" {n += $2} END {print n}' "$work/contended")" >> "$samples"
  done
  [ -z "$attached" ] || end "$attached"
}
