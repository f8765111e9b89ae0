{{/* A shell word. */}}
{{- define "rag.quote" -}}
'{{ . | replace "'" "'\\''" }}'
{{- end }}

{{/* The shell line of a job. Arguments: `command`, `args`. */}}
{{- define "rag.entrypoint" -}}
python -m jobs.{{ .command }}{{ range .args }} {{ include "rag.quote" . }}{{ end }} --config /etc/rag/settings.yaml --runner ray
{{- end }}

{{- define "rag.jobsClusterSpec" -}}
{{- include "rag.clusterSpec" (dict "root" . "component" "jobs" "serving" false "workers" .Values.jobs.workers "gpuWorkers" .Values.jobs.gpuWorkers) -}}
{{- end }}
