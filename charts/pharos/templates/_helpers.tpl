{{- /* Names, labels, and the numbers and texts that more than one template needs. */ -}}
{{- define "pharos.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* 50 characters leave room for the longest suffix that objects add. */ -}}
{{- define "pharos.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "pharos.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pharos.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pharos.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "pharos.labels" -}}
{{ include "pharos.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: router
app.kubernetes.io/part-of: pharos
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pharos.image" -}}
{{- $name := .Values.image.repository -}}
{{- with .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "pharos.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pharos.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "pharos.configMapName" -}}
{{- default (include "pharos.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{- define "pharos.keysSecretName" -}}
{{- if .Values.keys.existingSecret -}}
{{- .Values.keys.existingSecret -}}
{{- else if .Values.keys.inline -}}
{{- include "pharos.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{- define "pharos.peersSecretName" -}}
{{- default (printf "%s-peer-secret" (include "pharos.fullname" .)) .Values.peers.existingSecret -}}
{{- end -}}

{{- /* The namespaces that are looked in, as a JSON list. */ -}}
{{- define "pharos.namespaces" -}}
{{- .Values.discovery.kubernetes.namespaces | default (list .Release.Namespace) | uniq | toJson -}}
{{- end -}}

{{- /* What the pod must be given to drain: each part as it is, and 15 s for the last delta, the state file and the end. */ -}}
{{- define "pharos.drainSeconds" -}}
{{- add (int .Values.drain.preStopSleepSeconds) (int .Values.drain.graceSeconds) (int .Values.drain.timeoutSeconds) 15 -}}
{{- end -}}

{{- define "pharos.terminationGracePeriodSeconds" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- include "pharos.drainSeconds" . -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- /* What the chart itself puts into pharos.yaml; `config` may set none of these. */ -}}
{{- define "pharos.ownConfig" -}}
listen: ":8090"
admin_listen: 127.0.0.1:8091
metrics_listen: ":{{ .Values.metrics.port }}"
drain:
  grace: {{ int .Values.drain.graceSeconds }}s
  timeout: {{ int .Values.drain.timeoutSeconds }}s
discovery:
  docker: {enabled: false}
  kubernetes:
    enabled: {{ .Values.discovery.kubernetes.enabled }}
    {{- if and .Values.discovery.kubernetes.enabled .Values.discovery.kubernetes.clusterWide }}
    cluster_wide: true
    {{- else if .Values.discovery.kubernetes.enabled }}
    namespaces: {{ include "pharos.namespaces" . }}
    {{- end }}
    {{- if and .Values.discovery.kubernetes.enabled .Values.discovery.kubernetes.podLogs }}
    pod_logs: true
    {{- end }}
{{- if include "pharos.keysSecretName" . }}
keys_file: /etc/pharos-keys/{{ .Values.keys.secretKey }}
{{- end }}
{{- if .Values.peers.enabled }}
peers:
  listen: ":{{ .Values.peers.port }}"
  secret_file: /etc/pharos-peers/{{ .Values.peers.secretKey }}
  dns: {{ include "pharos.fullname" . }}-peers.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}.:{{ .Values.peers.port }}
{{- end }}
{{- if .Values.state.enabled }}
state_file: /var/lib/pharos/state
{{- end }}
{{- end -}}

{{- /* The parts of the configuration that only a restart takes up: a change of these rolls the pods, others do not. */ -}}
{{- define "pharos.restartChecksum" -}}
{{- $own := include "pharos.ownConfig" . | fromYaml -}}
{{- $restart := pick $own "listen" "admin_listen" "metrics_listen" "peers" "state_file" "discovery" -}}
{{- $fields := list "policy" "log" "limits" "cors" "decision_log" "metrics" "usage" -}}
{{- range $field := $fields }}{{ if hasKey $.Values.config $field }}{{ $_ := set $restart $field (get $.Values.config $field) }}{{ end }}{{ end -}}
{{- $restart | toJson | sha256sum -}}
{{- end -}}
