{{/* A shell word. */}}
{{- define "rag.quote" -}}
'{{ . | replace "'" "'\\''" }}'
{{- end }}

{{/* The shell line of a job. Arguments: `command`, `args`. */}}
{{- define "rag.entrypoint" -}}
python -m jobs.{{ .command }}{{ range .args }} {{ include "rag.quote" . }}{{ end }} --config /etc/rag/settings.yaml --runner ray
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
