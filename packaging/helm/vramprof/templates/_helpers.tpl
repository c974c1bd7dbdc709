{{- define "vramprof.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "vramprof.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "vramprof.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "vramprof.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "vramprof.selector" -}}
app.kubernetes.io/name: {{ include "vramprof.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vramprof.labels" -}}
{{ include "vramprof.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: profiler
{{- end }}

{{- define "vramprof.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "vramprof.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "vramprof.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- /* Fails unless something decides who may connect. */ -}}
{{- define "vramprof.protected" -}}
{{- if not (or (and .Values.webConfig.secret .Values.webConfig.basicAuth) (and .Values.networkPolicy.enabled .Values.networkPolicy.from) .Values.unprotected) }}
{{- fail "whoever can connect to vramprof sees the processes of all pods of the node: set webConfig.secret and webConfig.basicAuth, or networkPolicy.enabled and networkPolicy.from (who may connect), or unprotected=true if something else protects the port (docs/kubernetes.md)" }}
{{- end }}
{{- end }}

{{- define "vramprof.scheme" -}}
{{- if and .Values.webConfig.secret .Values.webConfig.tls }}https{{ else }}http{{ end }}
{{- end }}

{{- /* With basic authentication the kubelet, which has no password, can only connect. */ -}}
{{- define "vramprof.probe" -}}
{{- if and .root.Values.webConfig.secret .root.Values.webConfig.basicAuth -}}
tcpSocket:
  port: http
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "vramprof.scheme" .root | upper }}
{{- end }}
{{- end }}

{{- /* How Prometheus scrapes. The labels pod, namespace and container are those of the traced processes, not of vramprof. */ -}}
{{- define "vramprof.endpoint" -}}
port: http
path: /metrics
interval: {{ .interval }}
scheme: {{ include "vramprof.scheme" .root }}
honorLabels: true
{{- with .root.Values.webConfig }}
{{- if and .secret .tls .insecureSkipVerify }}
tlsConfig:
  insecureSkipVerify: true
{{- end }}
{{- if and .secret .basicAuth }}
basicAuth:
  username:
    name: {{ required "webConfig.scrapeSecret is needed with webConfig.basicAuth" .scrapeSecret }}
    key: username
  password:
    name: {{ .scrapeSecret }}
    key: password
{{- end }}
{{- end }}
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
{{- end }}
