{{- define "rag.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "rag.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Both `rag serve` and jobs set the variables of Ray for a Ray of their own; here Ray is started without them. */}}
{{- define "rag.environment" -}}
- {name: HOME, value: /var/lib/rag}
- {name: RAG_HOME, value: /var/lib/rag}
- {name: RAG_STORE__URL, value: "file:/run/secrets/rag/dsn"}
- {name: RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH, value: "serve.http.request_ids:serve_middlewares"}
- {name: RAY_SERVE_ENABLE_HA_PROXY, value: "0"}
- {name: RAY_SERVE_ENABLE_DIRECT_INGRESS, value: "0"}
- {name: RAY_SERVE_THROUGHPUT_OPTIMIZED, value: "0"}
- {name: RAY_worker_niceness, value: "0"}
- {name: RAY_idle_worker_killing_time_threshold_ms, value: "600000"}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
- {name: RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO, value: "0"}
- {name: RAY_task_oom_retries, value: "2"}
- {name: RAYLLM_ENABLE_REQUEST_PROMPT_LOGS, value: "0"}
{{- if .Values.models.existingClaim }}
- {name: HF_HOME, value: /srv/models}
{{- end }}
{{- if .Values.models.offline }}
- {name: HF_HUB_OFFLINE, value: "1"}
{{- end }}
{{- range $name, $value := .Values.environment }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "rag.environmentFrom" -}}
{{- range .Values.secretEnvironment }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{/* Arguments: `root`; whether to mount `settings` and Ray's `token`; the size of `sharedMemory`, or none. */}}
{{- define "rag.volumes" -}}
- {name: tmp, emptyDir: {}}
- {name: home, emptyDir: {}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .root.Values.store.existingSecret }}
          items: [{key: dsn, path: dsn}]
{{- if .token }}
      - secret:
          name: {{ .root.Values.rayToken.existingSecret }}
          items: [{key: auth_token, path: auth_token}]
{{- end }}
{{- range .root.Values.secretFiles }}
      - secret: {name: {{ . }}}
{{- end }}
{{- if .settings }}
- name: settings
  configMap: {name: {{ include "rag.name" .root }}-settings}
{{- end }}
{{- with .sharedMemory }}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ . }}}
{{- end }}
{{- with include "rag.sourcesClaim" .root }}
- name: sources
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- with .root.Values.models.existingClaim }}
- name: models
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- end }}

{{- define "rag.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/rag}
- {name: secrets, mountPath: /run/secrets/rag, readOnly: true}
{{- if .settings }}
- {name: settings, mountPath: /etc/rag, readOnly: true}
{{- end }}
{{- if .sharedMemory }}
- {name: shared-memory, mountPath: /dev/shm}
{{- end }}
{{- if include "rag.sourcesClaim" .root }}
- {name: sources, mountPath: {{ .root.Values.sources.path }}, readOnly: true}
{{- end }}
{{- if .root.Values.models.existingClaim }}
- {name: models, mountPath: /srv/models}
{{- end }}
{{- end }}

{{- define "rag.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* A pod that runs one command and ends. Arguments: `root`, `component`, `command`, and the Ray `cluster` that it calls. */}}
{{- define "rag.commandPod" -}}
metadata:
  labels:
    {{- include "rag.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "rag.name" .root }}
  automountServiceAccountToken: false
  {{- include "rag.pullSecrets" .root | nindent 2 }}
  securityContext: {{- include "rag.podSecurity" .root | nindent 4 }}
  containers:
    - name: {{ .component }}
      image: {{ include "rag.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- with .command }}
      command: {{ toJson . }}
      {{- end }}
      securityContext: {{- include "rag.containerSecurity" .root | nindent 8 }}
      resources:
        requests: {cpu: 500m, memory: 2Gi}
        limits: {cpu: "1", memory: 2Gi}
      env:
        {{- include "rag.environment" .root | nindent 8 }}
        {{- with .cluster }}
        - {name: RAY_ADDRESS, value: "http://{{ . }}-head-svc:8265"}
        - {name: RAY_AUTH_MODE, value: token}
        - {name: RAY_AUTH_TOKEN_PATH, value: /run/secrets/rag/auth_token}
        {{- end }}
      volumeMounts: {{- include "rag.mounts" (dict "root" .root) | nindent 8 }}
  volumes: {{- include "rag.volumes" (dict "root" .root "token" .cluster) | nindent 4 }}
{{- end }}
