{{- /* Values that cannot work together are refused with a sentence that says what to change. */ -}}
{{- define "pharos.validate" -}}
{{- $owned := list "listen" "admin_listen" "metrics_listen" "drain" "discovery" "peers" "state_file" "keys_file" -}}
{{- $instead := dict "listen" "service.port" "admin_listen" "nothing: `pharos doctor` in the pod needs it where it is" "metrics_listen" "metrics.port" "drain" "drain.graceSeconds and drain.timeoutSeconds" "discovery" "discovery.kubernetes" "peers" "peers" "state_file" "state" "keys_file" "keys" -}}
{{- range $field := $owned -}}
{{- if hasKey $.Values.config $field -}}
{{- fail (printf "config.%s is set by the chart: use the value %s" $field (get $instead $field)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.existingConfigMap .Values.config -}}
{{- fail "existingConfigMap and config are both set: the file of existingConfigMap is used whole, so move config into it" -}}
{{- end -}}
{{- if and .Values.keys.existingSecret .Values.keys.inline -}}
{{- fail "keys.existingSecret and keys.inline are both set: put the entries of keys.inline into that Secret" -}}
{{- end -}}
{{- if and .Values.keys.inline .Values.config.keys -}}
{{- fail "keys.inline and config.keys are both set: use keys.inline, which keeps them in a Secret" -}}
{{- end -}}
{{- $needed := include "pharos.drainSeconds" . | int -}}
{{- $given := include "pharos.terminationGracePeriodSeconds" . | int -}}
{{- if lt $given $needed -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but a drain takes up to %d (drain.preStopSleepSeconds %d + drain.graceSeconds %d + drain.timeoutSeconds %d + 15): the kubelet would cut streams; leave it null, or shorten drain.timeoutSeconds" $given $needed (int .Values.drain.preStopSleepSeconds) (int .Values.drain.graceSeconds) (int .Values.drain.timeoutSeconds)) -}}
{{- end -}}
{{- if and .Values.peers.enabled .Values.peers.gitops (not .Values.peers.existingSecret) -}}
{{- fail "peers.gitops is true, so no secret is generated (a rendering without a cluster would make another one each time): create one and name it in peers.existingSecret" -}}
{{- end -}}
{{- if not .Values.peers.enabled -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) -}}
{{- if or (ne (toJson (default list .Values.config.keys)) "[]") .Values.keys.inline .Values.keys.existingSecret -}}
{{- fail "peers.enabled is false with more than one instance: quotas of keys would count in each instance alone; turn peers on, or use one instance" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor are both on: every series would be scraped twice; choose one" -}}
{{- end -}}
{{- if and .Values.discovery.kubernetes.clusterWide .Values.discovery.kubernetes.namespaces -}}
{{- fail "discovery.kubernetes.clusterWide looks in all namespaces: leave discovery.kubernetes.namespaces empty" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- fail (printf "autoscaling.maxReplicas (%d) is below autoscaling.minReplicas (%d)" (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (kindIs "invalid" .Values.autoscaling.targetCPUUtilizationPercentage) (kindIs "invalid" .Values.autoscaling.queueWaiting) -}}
{{- fail "autoscaling.enabled needs a measure: set autoscaling.targetCPUUtilizationPercentage or autoscaling.queueWaiting" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled needs a Gateway: name it in httpRoute.parentRefs" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled needs at least one name in ingress.hosts" -}}
{{- end -}}
{{- if and .Values.lifecycle (gt (int .Values.drain.preStopSleepSeconds) 0) -}}
{{- fail "lifecycle and drain.preStopSleepSeconds are both set: put the sleep into lifecycle.preStop, or leave lifecycle empty" -}}
{{- end -}}
{{- $ports := list 8090 8091 (int .Values.metrics.port) (int .Values.peers.port) -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "metrics.port (%d) and peers.port (%d) must differ from each other and from 8090 and 8091" (int .Values.metrics.port) (int .Values.peers.port)) -}}
{{- end -}}
{{- end -}}
