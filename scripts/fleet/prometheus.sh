#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# prometheus.sh: has a real Prometheus scrape vramprof serve beside a program that leaks, one with
# PyTorch's allocator and one that runs out of memory. Each query of the dashboard and each rule
# must have a result.
. "$(dirname "$0")/common.sh"
command -v prometheus >/dev/null && command -v promtool >/dev/null || skip "no prometheus"
build

address=localhost:19836 server=localhost:19090
export FAKECUDA_SHM=$work/gpu FAKECUDA_GPUS=2 LD_LIBRARY_PATH=$cuda PYTHONDONTWRITEBYTECODE=1

pod() { # NAME COMMAND…
  local name=$1
  shift
  background env KUBERNETES_SERVICE_HOST=10.0.0.1 POD_NAMESPACE=ml POD_NAME="$name" "$@" >"$work/$name.log" 2>&1
}

cat >"$work/torch.txt" <<'END'
sleep 6000
repeat 8
alloc keep 20000000
end
repeat 20000
alloc a 3000000
sleep 20
free a
sleep 20
end
END
cat >"$work/fail.txt" <<'END'
malloc a 10000000
managed b 5000000
sleep 15000
fail 60000000000
sleep 600000
END
cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$PWD/packaging/prometheus/vramprof.rules.yml]
scrape_configs:
  - job_name: vramprof
    static_configs: [{targets: ["$address"]}]
END

background vramprof serve --web.listen-address "$address" --archive "$work/archive" --run-dir "$work/run" 2>"$work/serve.log"
until_true 30 curl -sf "http://$address/-/ready" || { cat "$work/serve.log" >&2; fail "vramprof does not get ready"; }
background prometheus --config.file "$work/prometheus.yml" --storage.tsdb.path "$work/tsdb" --web.listen-address "$server" 2>"$work/prometheus.log"
until_true 30 curl -sf "http://$server/-/ready" || { cat "$work/prometheus.log" >&2; fail "Prometheus does not get ready"; }
pod train-0 python3 testdata/programs/train.py --step-ms 50 --leak-bytes 1048576
pod big-0 "$cuda/alloc_c" "$work/fail.txt"
background env SLURM_JOB_ID=4242 SLURM_JOB_NAME=tune CUDA_VISIBLE_DEVICES=1 LD_LIBRARY_PATH="$cuda/torch-2.6:$cuda" "$cuda/tensors_c" "$work/torch.txt" >"$work/torch.log" 2>&1

echo "scraping for ${SECONDS_OF_SCRAPES:=60} seconds"
sleep "$SECONDS_OF_SCRAPES"
curl -sf "http://$address/metrics" >"$work/metrics.txt"
problems=$(promtool check metrics <"$work/metrics.txt" 2>&1) && [ -z "$problems" ] || fail "promtool check metrics: $problems"
python3 scripts/fleet/prometheus.py "http://$server" || { tail -n 5 "$work"/*.log >&2; exit 1; }
