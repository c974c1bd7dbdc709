#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# helm.sh: checks the Helm chart: helm lint, and strict decoding of what helm template prints with
# several values.
. "$(dirname "$0")/common.sh"
go_tool helm helm.sh/helm/v3/cmd/helm@v3.22.0
(cd scripts/fleet/decode && go build -o "$bin/decode" .) || skip "the types of k8s.io/api are not available"
chart=packaging/helm/vramprof

# objects NAME VERSION OPTION…: renders the chart for a release of Kubernetes and decodes it.
objects() {
  local name=$1 version=$2
  shift 2
  helm template node-profiler "$chart" --namespace gpu --kube-version "$version" "$@" >"$work/$name.yaml" || fail "helm template $name"
  decode <"$work/$name.yaml" >"$work/$name.kinds" || fail "$name"
  echo "$name ($version): $(paste -sd, "$work/$name.kinds")"
}

helm lint --strict --kube-version 1.30 --set unprotected=true "$chart" | tail -n 1
objects default 1.30 --set unprotected=true
contains "$work/default.yaml" "appArmorProfile:" "hostPID: true" "readOnlyRootFilesystem: true" "allowPrivilegeEscalation: false"
! grep -q 'SYS_ADMIN\|^ *- SYSLOG\|privileged: true\|runtimeClassName' "$work/default.yaml" || fail "too many rights by default"

objects older 1.28 --set sysAdmin=true --set syslog=true --set unprotected=true
contains "$work/older.yaml" "container.apparmor.security.beta.kubernetes.io/vramprof: unconfined" "- SYS_ADMIN"
grep -q '^ *- SYSLOG$' "$work/older.yaml" || fail "no SYSLOG, which was asked for"
! grep -q appArmorProfile: "$work/older.yaml" || fail "a field that Kubernetes 1.28 does not know"

cat >"$work/all.yml" <<END
runtimeClassName: nvidia
nodeSelector: {gpu: h100}
tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}]}}}
priorityClassName: system-node-critical
imagePullSecrets: [{name: registry}]
image: {repository: registry.example/vramprof, digest: "sha256:$(printf 0%.0s {1..64})"}
podAnnotations: {a: b}
podLabels: {c: d}
maxMemory: 1GiB
extraArgs: ["--sample=4MiB", "--name=^python"]
extraEnv: [{name: TZ, value: UTC}]
runHostPath: /run/vramprof
webConfig: {secret: web, tls: true, basicAuth: true, scrapeSecret: scrape, insecureSkipVerify: true}
serviceAccount: {annotations: {e: f}}
podMonitor: {enabled: true, labels: {release: prometheus}}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true, annotations: {folder: GPUs}}
networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
END
objects all 1.34 --values "$work/all.yml"
contains "$work/all.kinds" DaemonSet PodMonitor ServiceMonitor PrometheusRule ConfigMap NetworkPolicy Service ServiceAccount
contains "$work/all.yaml" "--web.external-host=node-profiler-vramprof.gpu.svc" "runtimeClassName: nvidia" "--web.config.file=/etc/vramprof/web/web.yml" "scheme: https" "tcpSocket:" "--max-memory=1GiB" '"--name=^python"'
# The rules and the dashboard arrive whole: a template could cut or indent them wrongly.
[ "$(grep -c '^ *- alert:' "$work/all.yaml")" = "$(grep -c '^ *- alert:' packaging/prometheus/vramprof.rules.yml)" ] || fail "rules are missing"

objects little 1.24 --set unprotected=true --set archive.enabled=false --set podLogs.enabled=false --set serviceAccount.create=false --set-json 'resources={}' --set-json 'tolerations=[]' --set appArmorProfile= --set-json 'seccompProfile={"type":"RuntimeDefault"}'
! grep -q 'hostPath\|kind: ServiceAccount' "$work/little.yaml" || fail "what was switched off is there"
contains "$work/little.yaml" "- --archive="

if helm template x "$chart" --kube-version 1.30 --set webConfig.secret=s --set webConfig.basicAuth=true --set podMonitor.enabled=true >"$work/out" 2>&1; then
  fail "a PodMonitor without the password that it needs"
fi
contains "$work/out" "webConfig.scrapeSecret is needed"
# It asks who may connect.
for options in "" "--set networkPolicy.enabled=true" "--set webConfig.secret=web" "--set webConfig.basicAuth=true"; do
  # shellcheck disable=SC2086 # several words
  if helm template x "$chart" --kube-version 1.30 $options >"$work/out" 2>&1; then
    fail "it installs with nothing that protects its port: $options"
  fi
  contains "$work/out" "networkPolicy.from" "webConfig.basicAuth" "unprotected=true"
done
objects policy 1.30 --set networkPolicy.enabled=true --set-json 'networkPolicy.from=[{"podSelector":{}}]'
objects password 1.30 --set webConfig.secret=web --set webConfig.basicAuth=true
if helm template x "$chart" --kube-version 1.30 --set podmonitor.enabled=true >"$work/out" 2>&1; then
  fail "a value with a typing mistake"
fi
contains "$work/out" podmonitor
# The decoder itself finds mistakes.
if sed 's/hostPID/hostPid/' "$work/default.yaml" | decode >"$work/out" 2>&1; then
  fail "an unknown field is not found"
fi
contains "$work/out" hostPid
