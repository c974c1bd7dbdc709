# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: how long "vramprof explain -p" of a real PyTorch takes, and a replay of whatif.

measure_explain() {
  local answer count processes
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "explain"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  section "explain -p of PyTorch 2.6 with so many live tensors: medians of $explains runs"
  for processes in 1 8; do
    for count in 1000 20000 100000; do
      measure_explained "$count" "$processes"
    done
  done
}

# measure_explained COUNT PROCESSES: the wall time of explain -p, and of the walk for holders that it
# waits for.
measure_explained() {
  local p list=() i figures whole cpu walk in
  local -x FAKECUDA_SHM=$work/explain-shm-$1-$2 FAKECUDA_MEMORY=64G
  progress "explain -p of one of $2 processes with $1 tensors"
  rm -f "$work/explained"
  mkfifo "$work/explained"
  exec {in}<> "$work/explained"
  for ((i = 0; i < $2; i++)); do
    local fd
    exec {fd}< <(exec env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site" \
      "$torch_root/python3" "$repository/testdata/realtorch/many.py" $(($1 * 4 / 3)) 2>&1 < "$work/explained") # it keeps 3 of 4
    list+=($!)
    output[$!]=$fd
  done
  for p in "${list[@]}"; do expect "$p" "point*" 300; done
  figures=$("$python" - "$explains" "$vramprof" "${list[0]}" <<'PY'
import json, resource, statistics, subprocess, sys, time
walls, walks = [], []
used = resource.getrusage(resource.RUSAGE_CHILDREN)
for _ in range(int(sys.argv[1])):
    begin = time.monotonic()
    subprocess.run([sys.argv[2], "explain", "-p", sys.argv[3]], stdout=subprocess.DEVNULL, check=True)
    walls.append(time.monotonic() - begin)
now = resource.getrusage(resource.RUSAGE_CHILDREN)
for _ in walls:
    walks.append(json.loads(subprocess.run([sys.argv[2], "holders", "--json", "-p", sys.argv[3]], stdout=subprocess.PIPE, check=True).stdout)["took_ns"] / 1e9)
print("%.3f %.3f %.3f" % (statistics.median(walls), (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) / len(walls), statistics.median(walks)))
PY
)
  for p in "${list[@]}"; do end "$p" TERM; done
  exec {in}>&-
  read -r whole cpu walk <<< "$figures"
  row "$1 tensors, one of $2 processes" "≤ 1 s" "$whole s" "$(ratio "$whole" "$walk")" "$whole <= 1"
  row "  its processor time" "" "$cpu s" "" -
  row "  the walk for holders" "" "$walk s" "" -
}

# measure_replay: whatif's replays of a training, one order of addresses each.
measure_replay() {
  local figures settings pattern wall
  progress "replays"
  figures=$(go test -run '^$' -bench '^BenchmarkReplay$' -benchtime 10x ./internal/allocsim)
  section "replay of 10 million operations of PyTorch's allocator, by 10 times 1 million"
  while read -r settings; do
    pattern=${settings//[()]/.} # benchmark takes a regular expression
    wall=$(benchmark "Replay/$pattern" s/10Mops)
    row "$settings" "≤ 5 s" "$(printf '%.2f s' "$wall")" "" "$wall <= 5"
    row "  its processor time" "" "$(printf '%.2f s' "$(benchmark "Replay/$pattern" cpu-s/10Mops)")" "" -
  done < <(sed -n 's,^BenchmarkReplay/\([^ ]*\) .*,\1,p' <<< "$figures" | sed -E 's/-[0-9]+$//')
}
