{{/* The spec of a RayCluster. Arguments: `root`, `component`, `workers`, `gpuWorkers`, `serving`. */}}
{{- define "rag.clusterSpec" -}}
rayVersion: {{ index .root.Chart.Annotations "rag-on-ray/ray-version" | quote }}
enableInTreeAutoscaling: true
autoscalerOptions:
  version: v2
  idleTimeoutSeconds: 300
  upscalingMode: Default
  securityContext: {{- include "rag.containerSecurity" .root | nindent 4 }}
  resources:
    requests: {cpu: 500m, memory: 1Gi}
    limits: {cpu: 500m, memory: 1Gi}
  env:
    - {name: HOME, value: /tmp}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: kubernetes-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
authOptions:
  mode: token
  secretName: {{ .root.Values.rayToken.existingSecret }}
headGroupSpec:
  rayStartParams:
    num-cpus: "0"
    dashboard-host: 0.0.0.0
    object-store-memory: "268435456"
  template: {{- include "rag.nodePod" (merge (dict "group" "head" "pool" .root.Values.head) .) | nindent 4 }}
workerGroupSpecs:
  {{- include "rag.workerGroup" (merge (dict "group" "cpu" "pool" .workers) .) | nindent 2 }}
  {{- if .gpuWorkers.maxReplicas }}
  {{- include "rag.workerGroup" (merge (dict "group" "gpu" "pool" .gpuWorkers) .) | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
The bytes of a node's object store. By default Ray takes 30 % of the memory, and stores objects on the disk if this does
not fit into /dev/shm. Gateways and models pass small objects only.
*/}}
{{- define "rag.objectStore" -}}
{{- if .serving -}}
268435456
{{- else -}}
{{- $size := .pool.sharedMemory -}}
{{- $unit := ternary 1073741824 1048576 (hasSuffix "Gi" $size) -}}
{{- div (mul (regexFind "^[0-9]+" $size | int64) $unit 9) 10 -}}
{{- end -}}
{{- end }}

{{- define "rag.workerGroup" -}}
{{- if gt (int .pool.minReplicas) (int .pool.maxReplicas) -}}
{{- fail (printf "minReplicas must be at most maxReplicas, got %d and %d for the group %s of %s" (int .pool.minReplicas) (int .pool.maxReplicas) .group .component) -}}
{{- end -}}
- groupName: {{ .group }}
  replicas: {{ .pool.minReplicas }}
  minReplicas: {{ .pool.minReplicas }}
  maxReplicas: {{ .pool.maxReplicas }}
  rayStartParams:
    object-store-memory: {{ include "rag.objectStore" . | quote }}
  template: {{- include "rag.nodePod" . | nindent 4 }}
{{- end }}

{{/*
The pod of a Ray node. Only the autoscaler beside the head can call Kubernetes: the token is mounted in its container.
A pod never restarts in place: autoscaler v2 starts another node instead.
*/}}
{{- define "rag.nodePod" -}}
{{- $volumes := dict "root" .root "settings" true "sharedMemory" .pool.sharedMemory -}}
{{- $gpu := eq .group "gpu" -}}
{{- $head := eq .group "head" -}}
metadata:
  labels:
    {{- include "rag.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    rag-on-ray/group: {{ .group }}
  {{- if and .serving .root.Values.serve.rollout }}
  annotations: {rag-on-ray/rollout: {{ .root.Values.serve.rollout | quote }}}
  {{- end }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "rag.name" .root }}{{ if $head }}-head{{ end }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 120
  {{- include "rag.pullSecrets" .root | nindent 2 }}
  securityContext: {{- include "rag.podSecurity" .root | nindent 4 }}
  {{- with .pool.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pool.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if not $head }}
  topologySpreadConstraints:
    {{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "rag.selector" $.root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
          rag-on-ray/group: {{ $.group }}
    {{- end }}
  {{- end }}
  containers:
    - name: ray-{{ .group }}
      image: {{ include (ternary "rag.cudaImage" "rag.image" $gpu) .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      securityContext: {{- include "rag.containerSecurity" .root | nindent 8 }}
      resources:
        {{- range tuple "requests" "limits" }}
        {{ . }}:
          {{- toYaml $.pool.resources | nindent 10 }}
          {{- if $gpu }}
          {{ $.pool.gpuResource }}: {{ $.pool.gpus }}
          {{- end }}
        {{- end }}
      env: {{- include "rag.environment" .root | nindent 8 }}
      {{- with include "rag.environmentFrom" .root }}
      envFrom: {{- . | nindent 8 }}
      {{- end }}
      ports:
        {{- if $head }}
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        {{- end }}
        {{- if .serving }}{{/* KubeRay reads the port of the service from the head */}}
        - {name: serve, containerPort: 8000}
        {{- end }}
        - {name: metrics, containerPort: 8080}
      livenessProbe:
        httpGet: {path: /api/healthz, port: 52365}
        initialDelaySeconds: 30
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 12
      readinessProbe:
        {{- if and .serving (not $head) }}
        httpGet: {path: /-/healthz, port: serve}
        {{- else }}
        httpGet: {path: /api/healthz, port: 52365}
        {{- end }}
        initialDelaySeconds: 10
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ ternary 1 10 (and .serving (not $head)) }}
      lifecycle:
        preStop: {exec: {command: [ray, stop]}}
      volumeMounts: {{- include "rag.mounts" $volumes | nindent 8 }}
  volumes:
    {{- include "rag.volumes" $volumes | nindent 4 }}
    {{- if $head }}
    - name: kubernetes-token
      projected:
        defaultMode: 0440
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
          - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
    {{- end }}
{{- end }}
