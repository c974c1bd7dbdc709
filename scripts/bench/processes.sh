# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: start, await and end processes. The output of each is on a file descriptor, so
# nothing needs polling.

declare -A output=() # pid → file descriptor of its output

# start COMMAND…: sets $pid. expect and finish read stdout and stderr.
start() {
  local fd
  exec {fd}< <(exec "$@" 2>&1 < /dev/null)
  pid=$!
  output[$pid]=$fd
}

# expect PID PATTERN SECONDS: reads lines until one matches the glob and sets $line.
expect() {
  local fd=${output[$1]} seen=""
  while IFS= read -r -t "$3" line <&"$fd"; do
    case $line in $2) return 0 ;; esac
    seen+="$line"$'\n'
  done
  printf 'bench.sh: no line "%s" within %s s, only:\n%s\n' "$2" "$3" "$seen" >&2
  exit 1
}

# finish PID: prints the rest of its output on stdout and waits for its exit.
finish() {
  local fd=${output[$1]}
  cat <&"$fd"
  exec {fd}<&-
  wait "$1" 2>/dev/null || true
}

# end PID [SIGNAL]: signals the process and forgets it. The shell makes background processes ignore
# SIGINT; tracers restore it, programs need TERM.
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

# cpu_ticks PID: prints user and system time in ticks of 10 ms.
cpu_ticks() {
  local stat
  stat=$(< "/proc/$1/stat")
  set -- ${stat##*) } # a name may contain spaces
  echo $((${12} + ${13}))
}

# memory_kib PID FIELD: prints VmRSS or VmHWM.
memory_kib() {
  local name value rest
  while read -r name value rest; do
    [ "$name" != "$2:" ] || { echo "$value"; return; }
  done < "/proc/$1/status"
}
