{{/* KubeRay limits the name of a RayJob, which has 22 further characters, to 47. */}}
{{- define "rag.name" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,23})$" .Release.Name) -}}
{{- fail (printf "the name of the release must begin with a letter and have at most 24 characters, got %s" .Release.Name) -}}
{{- end -}}
{{- .Release.Name -}}
{{- end }}

{{/* The metadata of a manifest after its name. Labels come last, so that a template can add some. */}}
{{- define "rag.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  {{- include "rag.selector" . | nindent 2 }}
{{- end }}

{{/* Not app.kubernetes.io/name: KubeRay selects the pods of its services by it. */}}
{{- define "rag.selector" -}}
app.kubernetes.io/part-of: rag-on-ray
app.kubernetes.io/instance: {{ include "rag.name" . }}
{{- end }}

{{- define "rag.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "rag.cudaImage" -}}
{{ .Values.image.repository }}:{{ .Values.image.cudaTag | default (printf "%s-cuda" (.Values.image.tag | default .Chart.AppVersion)) }}
{{- with .Values.image.cudaDigest }}@{{ . }}{{ end }}
{{- end }}

{{- define "rag.jobsCluster" -}}
{{ include "rag.name" . }}-jobs
{{- end }}

{{- define "rag.serveService" -}}
{{ include "rag.name" . }}-serve-svc
{{- end }}

{{- define "rag.sourcesClaim" -}}
{{- if .Values.sources.existingClaim -}}
{{ .Values.sources.existingClaim }}
{{- else if .Values.sources.size -}}
{{ include "rag.name" . }}-sources
{{- end -}}
{{- end }}
