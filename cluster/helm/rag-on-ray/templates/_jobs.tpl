{{/* A shell word. */}}
{{- define "rag.quote" -}}
'{{ . | replace "'" "'\\''" }}'
{{- end }}

{{/*
The limit of a job itself. Kubernetes and KubeRay end only the pod that follows a job on the standing cluster. `timeout`
asks the job to stop, and ends it after five minutes if it does not.
*/}}
{{- define "rag.timeout" -}}
{{- with .activeDeadlineSeconds -}}
timeout --foreground --kill-after=300 {{ int . }} {{ end -}}
{{- end }}

{{/* The shell line of a job. Arguments: `command`, `args`, `activeDeadlineSeconds`. */}}
{{- define "rag.entrypoint" -}}
{{ include "rag.timeout" . }}python -m jobs.{{ .command }}{{ range .args }} {{ include "rag.quote" . }}{{ end }} --config /etc/rag/settings.yaml --runner ray
{{- end }}

{{- define "rag.standingClusterSpec" -}}
{{- include "rag.clusterSpec" (dict "root" . "component" "jobs" "serving" false "workers" .Values.jobs.workers "gpuWorkers" .Values.jobs.gpuWorkers) -}}
{{- end }}

{{/* The cluster of a single run has all its workers from the beginning: a job uses what it finds when it starts. */}}
{{- define "rag.runClusterSpec" -}}
{{- $workers := merge (dict "minReplicas" .Values.jobs.workers.maxReplicas) .Values.jobs.workers -}}
{{- $gpuWorkers := merge (dict "minReplicas" .Values.jobs.gpuWorkers.maxReplicas) .Values.jobs.gpuWorkers -}}
{{- include "rag.clusterSpec" (dict "root" . "component" "jobs" "serving" false "workers" $workers "gpuWorkers" $gpuWorkers) -}}
{{- end }}
