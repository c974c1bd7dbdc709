# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: the table, at most 80 columns wide.

progress() { [ ! -t 2 ] || printf '\r\033[K%s' "$1" >&2; }
progress_end() { progress ""; }

median() { sort -g | awk '{v[NR] = $1} END {if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

mib() { echo $((($1 * 1024 + 500000) / 1000000)); } # KiB → MB

# of VARIANT PROGRAM METRIC: prints the median of the samples in ns, or nothing.
of() { awk -v a="$1" -v b="$2" -v c="$3" '$1 == a && $2 == b && $3 == c {print $4}' "$samples" | median; }

# lost VARIANT PROGRAM METRIC: prints what the variant adds to the program without probes.
lost() {
  local with without
  with=$(of "$1" "$2" "$3") without=$(of none "$2" "$3")
  [ -z "$with" ] || [ -z "$without" ] || awk -v a="$with" -v b="$without" 'BEGIN {printf "%.0f", a - b}'
}

ratio() { [ -z "$1" ] || [ -z "$2" ] || awk -v a="$1" -v b="$2" 'BEGIN {if (b > 0) printf "%.2f", a / b}'; }

# pad WIDTH TEXT: pads by characters; printf counts bytes in some locales.
pad() { printf '%s%*s' "$2" $(($1 - ${#2} > 0 ? $1 - ${#2} : 0)) ""; }
lpad() { printf '%*s%s' $(($1 - ${#2} > 0 ? $1 - ${#2} : 0)) "" "$2"; }

# revision: prints what was measured. The results themselves do not count as a change.
revision() {
  local commit changed
  commit=$(git describe --always 2>/dev/null) || { echo unknown; return; }
  changed=$(git status --porcelain --untracked-files=no -- . ':!scripts/bench/results' ':!BENCHMARKS.md' ':!docs/benchmarks')
  echo "$commit${changed:+-dirty}"
}

# describe: prints what the figures depend on, one word and a text per line.
describe() {
  local virtual cpu
  virtual=$(systemd-detect-virt --vm 2>/dev/null) || true
  [ -n "$virtual" ] || virtual=$(grep -qw hypervisor /proc/cpuinfo && echo yes || echo none)
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  cat <<END
machine    ${cpu:-$(uname -m)}, $(nproc) CPUs, virtual: $virtual
kernel     $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)
date       $(date -u '+%Y-%m-%d %H:%M UTC'), vramprof $(revision)
versions   $("$python" --version), $(go env GOVERSION), $(bpftrace --version 2>/dev/null || echo "no bpftrace")
END
}

# about SECONDS: prints the same for BENCHMARKS.md, which contains it for each kind of result.
about() {
  describe | sed 's/, load .*//'
  cat <<END
date $(date -u '+%Y-%m-%d %H:%M UTC')
vramprof $(revision)
load $load, after $(cut -d' ' -f1 /proc/loadavg)
rounds $rounds
seconds $1
mitigations $(cd /sys/devices/system/cpu/vulnerabilities 2>/dev/null && grep -H . ./* | sed -E 's,^\./,,; s,:, ,' |
    grep -vE ' Not affected$' | awk '{n = $1; $1 = ""; printf "%s%s:%s", (NR > 1 ? "; " : ""), n, $0}')
END
  echo "versions $("$python" --version), $(go env GOVERSION), $(bpftrace --version 2>/dev/null || echo "no bpftrace")$(
    dpkg-query -W -f ', ${Package} ${Version}' bpfcc-tools heaptrack 2>/dev/null)"
}

table_calls() {
  progress_end
  cat <<END

What a thread loses to each tracer, in ns: medians of $rounds interleaved rounds of
$pairs pairs, less the median without probes (first column); $depth frames deep,
one call path unless it says 64; frame pointers: on C that has them.

                            no           frame                         vramprof
                        probe   floor pointers vramprof bpftrace       to floor
END
  local metric name lib none
  for metric in pair alloc free; do
    for name in $all_programs p64_cuda; do
      [ "$name-$metric" = p64_cuda-pair ] || [ "$name" != p64_cuda ] || continue
      lib=${name#*_}
      none=$(of none "$name" ns_per_$metric)
      pad 22 "$(title "$name" $metric)"
      lpad 7 "$(awk -v n="$none" 'BEGIN {printf "%.0f", n}')"
      lpad 8 "$(lost floor "$name" ns_per_$metric)"
      lpad 9 "$(lost frames-"$lib" fp_"$lib" ns_per_$metric)"
      lpad 9 "$(lost vramprof "$name" ns_per_$metric)"
      lpad 9 "$(lost bpftrace-"$lib" "$name" ns_per_$metric)"
      lpad 15 "$(ratio "$(lost vramprof "$name" ns_per_$metric)" "$(lost floor "$name" ns_per_$metric)")"
      echo
    done
  done
  have_bpftrace || echo "bpftrace is not installed: its column and rows are empty"
}

title() { # c_cuda alloc → C, cuMemAlloc
  local language=C functions
  [ "${1%_*}" != py ] || language=Python
  case $1-$2 in
    *_cuda-pair) functions="cuMem pair" ;; *_cuda-alloc) functions=cuMemAlloc ;; *_cuda-free) functions=cuMemFree ;;
    *_cudart-pair) functions="cudaMalloc pair" ;; *_cudart-alloc) functions=cudaMalloc ;; *_cudart-free) functions=cudaFree ;;
  esac
  case $1 in p64_*) echo "C, cuMem, 64 stacks" ;; *) echo "$language, $functions" ;; esac
}

table_budget_head() {
  progress_end
  printf '\n'
  printf '%s' "$(pad 39 "Budget")$(pad 10 target)$(pad 18 measured)ratio"
  echo
}

# section TEXT: prints the title of rows, and stores it in the results for BENCHMARKS.md.
section() {
  progress_end
  echo "$1"
  printf 'section\t%s\n' "$1" >> "$results/$kind.rows"
}

# row WHAT TARGET MEASURED RATIO CONDITION [FLOOR]: CONDITION is an awk expression, or "-" without a
# target. FLOOR is the same condition for the empty probes: no tool with these probes can meet a
# target that they miss.
row() {
  local verdict=-
  [ "$5" = - ] || verdict=$(awk "BEGIN {print ($5) ? \"met\" : (${6:-1}) ? \"missed\" : \"missed, so do empty probes\"}")
  echo "$(pad 39 "  $1")$(pad 10 "$2")$(pad 18 "$3")$(pad 7 "$4")$verdict"
  printf 'row\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$verdict" >> "$results/$kind.rows"
}

# The targets are for pairs that follow a warm one: the stack is known.
table_call_budget() {
  local name lib mine floor peer
  section "pairs of allocation and free, ns that the thread loses, $depth frames, medians of $rounds rounds"
  for name in $all_programs; do
    mine=$(lost vramprof "$name" ns_per_pair) floor=$(lost floor "$name" ns_per_pair)
    row "$(title "$name" pair), empty probes" "" "$floor" "" -
    if [ "${name#*_}" = cuda ]; then
      row "  vramprof, over the empty probes" "≤ 2000" "$((mine - floor))" "$(ratio "$mine" "$floor")" "$mine - $floor <= 2000"
    else
      row "  vramprof, over the empty probes" "" "$((mine - floor))" "$(ratio "$mine" "$floor")" -
    fi
    [ "${name%_*}" = py ] || row "  99.9 % of pairs: alone, empty, vramprof" "" "$(of none "$name" pair_p999), $(of floor "$name" pair_p999), $(of vramprof "$name" pair_p999)" \
      "$(ratio "$(of vramprof "$name" pair_p999)" "$(of floor "$name" pair_p999)")" -
  done
  mine=$(lost vramprof-first c_cudart ns_per_pair)
  row "$(title c_cudart pair), the first seconds" "" "$mine" "$(ratio "$mine" "$(lost vramprof c_cudart ns_per_pair)")" -
  have_bpftrace || { echo "  bpftrace: not installed"; return; }
  for name in $all_programs; do
    lib=${name#*_}
    mine=$(lost vramprof "$name" ns_per_pair) floor=$(lost floor "$name" ns_per_pair) peer=$(lost bpftrace-"$lib" "$name" ns_per_pair)
    if [ "$lib" = cuda ]; then
      row "bpftrace to vramprof, $(title "$name" pair)" "≥ 3" "$peer" "$(ratio "$peer" "$mine")" "$peer >= 3 * $mine"
    else
      row "bpftrace to vramprof, $(title "$name" pair)" "≥ 1" "$peer" "$(ratio "$peer" "$mine")" "$peer >= $mine" "$peer >= $floor"
    fi
  done
}

table_foot() {
  cat <<END
The floor: empty programs on the instructions that vramprof probes. bpftrace:
size and stack by frame pointers, on the functions' first instructions, for
cudart only on the runtime's functions.
END
}
