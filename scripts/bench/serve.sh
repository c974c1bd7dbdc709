# SPDX-License-Identifier: Apache-2.0
# Part of bench.sh: what "vramprof serve" costs: idle, beside "record", and for its clients.

measure_serve() {
  serve_idle
  serve_clients
  serve_torch
}

# start_serve ARGUMENTS…: starts serve without an archive of the machine, and sets $attached and
# $serve_url.
start_serve() {
  local port
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  serve_url=http://127.0.0.1:$port
  rm -rf "$work/archive" "$work/run"
  start "$@" "$vramprof" serve --web.listen-address "127.0.0.1:$port" --archive "$work/archive" --run-dir "$work/run"
  attached=$pid
}

serve_idle() {
  progress "serve without CUDA for $serve_seconds s"
  local before
  start_serve env -u LD_LIBRARY_PATH
  expect "$attached" '*waiting for a process that uses CUDA*' 60
  sleep 2
  before=$(cpu_ticks "$attached")
  sleep "$serve_seconds"
  section "serve on a machine without CUDA, for $serve_seconds s"
  local ticks=$(($(cpu_ticks "$attached") - before)) rss
  rss=$(memory_kib "$attached" VmRSS)
  row "of a core" "≤ 0.1 %" "$(awk -v t=$ticks -v s="$serve_seconds" 'BEGIN {printf "%.2f %%", t / s}')" "" "$ticks <= 0.1 * $serve_seconds"
  row "RSS" "≤ 60 MB" "$(mib "$rss") MB" "" "$rss < 60 * 1000000 / 1024"
  end "$attached" TERM
}

# serve_clients: 100 processes with 100 sites each.
serve_clients() {
  progress "clients of serve"
  local p processes=() i
  local -x FAKECUDA_SHM=$work/serve-shm FAKECUDA_MEMORY=256G
  start_serve env
  expect "$attached" '*"msg":"tracing"*' 60
  for ((i = 0; i < 100; i++)); do
    start "$fake/bench_c" cudart 20 100 --wait --late --hold --live 100 --sites 100
    processes+=("$pid")
    expect "$pid" "ready *" 60
  done
  sleep 5 # until all are probed
  for p in "${processes[@]}"; do
    kill -USR1 "$p"
    expect "$p" "done" 60
  done
  sleep 5
  section "100 processes with $(clients_sites) sites"
  local scrape profile
  scrape=$(ask /metrics) profile=$(ask /debug/pprof/gpu)
  row "scrape of the metrics, median of 11" "≤ 50 ms" "$scrape ms" "" "$scrape <= 50"
  row "profile, median of 11" "≤ 1000 ms" "$profile ms" "" "$profile <= 1000"
  row "serve's RSS" "" "$(mib "$(memory_kib "$attached" VmRSS)") MB" "" -
  for p in "${processes[@]}"; do end "$p" TERM; done
  end "$attached" TERM
}

clients_sites() {
  "$python" - "$serve_url" <<'END'
import json, sys, urllib.request
print(len(json.load(urllib.request.urlopen(sys.argv[1] + "/api/v1/leaks?top=10000"))["sites"]))
END
}

# ask PATH: prints the median time of 11 answers in ms.
ask() {
  "$python" - "$serve_url$1" <<'END'
import sys, time, urllib.request
times = []
for _ in range(11):
    begin = time.monotonic()
    urllib.request.urlopen(sys.argv[1]).read()
    times.append(time.monotonic() - begin)
    time.sleep(1.2)  # the next one is of another moment of the books
print("%.1f" % (1000 * sorted(times)[5]))
END
}

# serve_torch: eight training loops of the real PyTorch, with record and with serve.
serve_torch() {
  local answer round variant
  answer=$("$repository/scripts/real-torch.sh") || exit 1
  case $answer in skipped:*) section "serve and PyTorch"; echo "  $answer"; return ;; esac
  { read -r torch_root; read -r torch_cuda; } <<< "$answer"
  for ((round = 1; round <= torch_rounds; round++)); do
    for variant in none record serve; do
      progress "eight PyTorch, round $round of $torch_rounds: $variant"
      serve_torch_run "$variant"
    done
  done
  section "eight training loops of PyTorch 2.6 with 200 ms a step, medians of $torch_rounds rounds"
  local alone record serve
  alone=$(of serve-none 8 steps) record=$(of serve-record 8 steps) serve=$(of serve-serve 8 steps)
  row "alone, steps/s" "" "$alone" "" -
  row "  record" "" "$record" "$(ratio "$alone" "$record")" -
  row "  serve" "≤ 1.02 of record" "$serve" "$(ratio "$alone" "$serve")" "$record <= 1.02 * $serve"
}

# serve_torch_run VARIANT: adds the sum of the steps per second of all eight to the samples.
serve_torch_run() {
  local i p processes=() sum=0
  local -x FAKECUDA_SHM=$work/serve-shm FAKECUDA_MEMORY=256G
  attached=""
  case $1 in
    record) start "$vramprof" record -a --force -o "$work/serve.vram"; attached=$pid; expect "$attached" "vramprof: *(Ctrl-C to end)" 60 ;;
    serve) start_serve env; expect "$attached" '*"msg":"tracing"*' 60 ;;
  esac
  for ((i = 0; i < 8; i++)); do
    start env LD_LIBRARY_PATH="$torch_cuda:$fake" PYTHONPATH="$repository/testdata/realtorch/site" \
      "$torch_root/python3" "$repository/testdata/realtorch/train.py" --warm 12 --seconds "$serve_torch_seconds" --sleep 0.2
    processes+=("$pid")
  done
  for p in "${processes[@]}"; do
    expect "$p" "* steps/s*" 120
    sum=$(awk -v a="$sum" -v b="${line%% *}" 'BEGIN {print a + b}')
    end "$p" TERM
  done
  [ -z "$attached" ] || end "$attached"
  echo "serve-$1 8 steps $sum" >> "$samples"
}
