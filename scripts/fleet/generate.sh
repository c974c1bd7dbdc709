#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate.sh [FOLDER]: writes packaging/kubernetes from the Helm chart, and the chart's copies of the rules and the
# dashboard. With FOLDER, it writes below that instead. Needs helm. chart.sum notes what the manifests were written from, so
# that a test without helm knows when they are stale.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
out=$(realpath -m "${1:-packaging}")
chart=packaging/helm/vramprof
mkdir -p "$out/kubernetes" "$out/helm/vramprof/files"
for pair in prometheus/vramprof.rules.yml:rules.yml grafana/vramprof.json:dashboard.json; do
  [ ! -e "packaging/${pair%:*}" ] || cp "packaging/${pair%:*}" "$out/helm/vramprof/files/${pair#*:}"
done

# manifest NAME TEMPLATE… [--set …]: writes a file with some templates of the chart.
manifest() {
  local file=$out/kubernetes/$1.yaml template only=()
  shift
  while [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; do
    only+=(--show-only "templates/$1.yaml")
    shift
  done
  {
    echo "# SPDX-License-Identifier: Apache-2.0"
    echo "# Generated from packaging/helm/vramprof by scripts/fleet/generate.sh."
    if [ "${file##*/}" = daemonset.yaml ]; then
      printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: vramprof\n  labels:\n    pod-security.kubernetes.io/enforce: privileged # hostPID, capabilities and a folder of the host\n'
    fi
    helm template vramprof "$chart" --namespace vramprof --kube-version 1.30 --set unprotected=true "${only[@]}" "$@" | sed '/^# Source: /d'
  } >"$file"
}
manifest daemonset serviceaccount daemonset
manifest podmonitor podmonitor --set podMonitor.enabled=true
manifest networkpolicy networkpolicy --set networkPolicy.enabled=true
LC_ALL=C sha256sum scripts/fleet/generate.sh "$chart"/{Chart,values}.yaml "$chart"/templates/{_helpers.tpl,serviceaccount.yaml,daemonset.yaml,podmonitor.yaml,networkpolicy.yaml} >"$out/kubernetes/chart.sum"
