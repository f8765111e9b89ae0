{{- define "rag.serveConfig" -}}
{{- $deployments := list -}}
{{- range $name, $options := .Values.serve.deployments -}}
{{- $deployments = append $deployments (merge (dict "name" $name) $options) -}}
{{- $gpus := dig "ray_actor_options" "num_gpus" 0 $options -}}
{{- if and (gt (float64 $gpus) 0.0) (not $.Values.serve.gpuWorkers.maxReplicas) -}}
{{- fail (printf "serve.deployments.%s needs a GPU: set serve.gpuWorkers.maxReplicas" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serve.args.generator (not .Values.serve.gpuWorkers.maxReplicas) -}}
{{- fail "serve.args.generator needs a GPU: set serve.gpuWorkers.maxReplicas" -}}
{{- end -}}
proxy_location: EveryNode
http_options:
  host: 0.0.0.0
  port: 8000
  keep_alive_timeout_s: 75
logging_config: {encoding: JSON, log_level: INFO, enable_access_log: false}
applications:
  - name: rag
    route_prefix: /
    import_path: serve.app:build
    args: {{- merge (dict "config" "/etc/rag/settings.yaml") .Values.serve.args | toYaml | nindent 6 }}
    deployments: {{- toYaml $deployments | nindent 6 }}
{{- end }}
