# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: starting, awaiting and ending processes. Each has its output
# on a file descriptor of ours, so that nothing has to be polled.

declare -A output=() # pid → file descriptor of its output

# start COMMAND…: its pid is in $pid, stdout and stderr are read by expect and finish.
start() {
  local fd
  exec {fd}< <(exec "$@" 2>&1 < /dev/null)
  pid=$!
  output[$pid]=$fd
}

# expect PID PATTERN SECONDS: reads lines until one matches the glob; the line is in $line.
expect() {
  local fd=${output[$1]} seen=""
  while IFS= read -r -t "$3" line <&"$fd"; do
    case $line in $2) return 0 ;; esac
    seen+="$line"$'\n'
  done
  printf 'bench.sh: no line "%s" within %s s, only:\n%s\n' "$2" "$3" "$seen" >&2
  exit 1
}

# finish PID: everything it still prints goes to stdout; waits for its end.
finish() {
  local fd=${output[$1]}
  cat <&"$fd"
  exec {fd}<&-
  wait "$1" 2>/dev/null || true
}

# end PID [SIGNAL]: asks it to end, and forgets it. The shell has it ignore SIGINT, which only
# tracers undo; programs want TERM.
end() {
  kill -"${2:-INT}" "$1" 2>/dev/null || true
  finish "$1" > "$work/last_output"
  unset "output[$1]"
}

kill_all() {
  local p
  for p in "${!output[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
  for p in "${!output[@]}"; do wait "$p" 2>/dev/null || true; done
}

now_us() { echo "${EPOCHREALTIME/[.,]/}"; }

# cpu_ticks PID: user and system time in ticks of 10 ms.
cpu_ticks() {
  local stat
  stat=$(< "/proc/$1/stat")
  set -- ${stat##*) } # a name may hold blanks
  echo $((${12} + ${13}))
}

# memory_kib PID FIELD: VmRSS or VmHWM.
memory_kib() {
  local name value rest
  while read -r name value rest; do
    [ "$name" != "$2:" ] || { echo "$value"; return; }
  done < "/proc/$1/status"
}
