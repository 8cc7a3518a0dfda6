{{- define "gpu.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* KubeRay makes names of its own of it, so it is short */ -}}
{{- define "gpu.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "gpu.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gpu.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpu.labels" -}}
app.kubernetes.io/name: {{ include "gpu.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* labels that KubeRay gives the pods */ -}}
{{- define "gpu.pods" -}}
ray.io/cluster: {{ include "gpu.fullname" . }}
{{- end -}}

{{- define "gpu.head" -}}
{{ include "gpu.pods" . }}
ray.io/node-type: head
{{- end -}}

{{- define "gpu.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "gpu.tokens" -}}
{{- default (printf "%s-tokens" (include "gpu.fullname" .)) .Values.tokens.existingSecret -}}
{{- end -}}

{{- define "gpu.gatewayUrl" -}}
{{- printf "%s://127.0.0.1:%d" (ternary "https" "http" (ne .Values.gateway.tlsSecret "")) (int .Values.gateway.port) -}}
{{- end -}}

{{- /* KubeRay's service for the head: another pod of it has another address. It names a pod that is not ready, too */ -}}
{{- define "gpu.headService" -}}
{{- printf "%s-head-svc" (include "gpu.fullname" .) -}}
{{- end -}}

{{- /* What Ray keeps of the head, with the gateway as it was started: another image or other settings begin anew */ -}}
{{- define "gpu.headMemory" -}}
{{- $settings := omit .Values.gateway "queues" "resources" -}}
{{- $all := printf "%s %s %s" (include "gpu.image" .) (toYaml $settings) (toYaml .Values.ingress) -}}
{{- printf "/jupyter-gpu/ledger/ray-head/%s" (sha256sum $all | trunc 12) -}}
{{- end -}}

{{- /* names by which the gateway is asked for: it refuses others, against DNS rebinding */ -}}
{{- define "gpu.allowedHosts" -}}
{{- $service := printf "%s-gateway" (include "gpu.fullname" .) -}}
{{- $inside := printf "%s.%s" $service .Release.Namespace -}}
{{- $names := list (include "gpu.headService" .) $service $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- concat $names .Values.gateway.allowedHosts | join "," -}}
{{- end -}}

{{- define "gpu.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user.uid }}
runAsGroup: {{ .Values.user.gid }}
fsGroup: {{ .Values.user.gid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "gpu.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- /* of every container: how Ray's processes know each other */ -}}
{{- define "gpu.rayToken" -}}
- { name: RAY_AUTH_MODE, value: token }
- { name: RAY_AUTH_TOKEN_PATH, value: /jupyter-gpu/ray/ray-token }
- { name: HOME, value: /jupyter-gpu/home }
{{- end -}}

{{- /* of containers that know the store: by it `doctor` knows what to look at */ -}}
{{- define "gpu.podEnv" -}}
{{ include "gpu.rayToken" . }}
- { name: JUPYTER_GPU_POD_HEAD, value: {{ printf "%s:6379" (include "gpu.headService" .) | quote }} }
- { name: JUPYTER_GPU_STORE, value: {{ printf "%s/gpu-runs" .Values.store.mountPath | quote }} }
{{- end -}}

{{- /* of Ray's containers: docs/operate/ray-cluster.md */ -}}
{{- define "gpu.rayEnv" -}}
{{ include "gpu.podEnv" . }}
- { name: RAY_raylet_report_resources_period_milliseconds, value: "2" }
- { name: RAY_health_check_period_ms, value: "1000" }
- { name: RAY_memory_monitor_refresh_ms, value: "0" } # it would end the gateway rather than the cell
- { name: RAY_USAGE_STATS_ENABLED, value: "0" }
- { name: RAY_gcs_storage, value: rocksdb }
- { name: RAY_gcs_storage_path, value: {{ include "gpu.headMemory" . }} }
- { name: RAY_gcs_rpc_server_reconnect_timeout_s, value: "600" } # nodes wait so long for the head's next pod
- { name: JUPYTER_GPU_IMAGE, value: {{ include "gpu.image" . | quote }} }
{{- end -}}

{{- /* writable places of every container, and what it may know; the gateway's token is not among it */ -}}
{{- define "gpu.mounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: shm, mountPath: /dev/shm }
- { name: home, mountPath: /jupyter-gpu/home }
- { name: spool, mountPath: /var/tmp }
- { name: ray-token, mountPath: /jupyter-gpu/ray, readOnly: true }
- { name: store, mountPath: {{ .Values.store.mountPath | quote }} }
{{- end -}}

{{- define "gpu.volumes" -}}
- { name: tmp, emptyDir: {} }
- { name: home, emptyDir: {} }
- { name: spool, emptyDir: {} }
- name: ray-token
  secret:
    secretName: {{ include "gpu.tokens" . }}
    defaultMode: 0440
    items: [{ key: ray-token, path: ray-token }]
- name: store
  persistentVolumeClaim: { claimName: {{ default (printf "%s-store" (include "gpu.fullname" .)) .Values.store.existingClaim }} }
{{- end -}}

{{- /* a standard gRPC health check, which Ray's GCS and raylets answer */ -}}
{{- define "gpu.rayProbes" -}}
startupProbe: { grpc: { port: {{ . }} }, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 90 }
readinessProbe: { grpc: { port: {{ . }} }, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 3 }
livenessProbe: { grpc: { port: {{ . }} }, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 }
{{- end -}}

{{- /* ports that are the same on each node: of Ray's, only these have to be known */ -}}
{{- define "gpu.rayParams" -}}
block: "true"
disable-usage-stats: "true"
node-manager-port: "6380"
object-manager-port: "6381"
object-store-memory: "200000000" # our values take other ways
{{- end -}}

{{- /* files that the gateway reads, so both its own container and Ray's have them */ -}}
{{- define "gpu.gatewayFiles" -}}
{{- if .Values.gateway.queues }}
- { name: queues, mountPath: /jupyter-gpu/queues, readOnly: true }
{{- end }}
{{- if .Values.gateway.tlsSecret }}
- { name: tls, mountPath: /jupyter-gpu/tls, readOnly: true }
{{- end }}
{{- end -}}

{{- define "gpu.workerResources" -}}
{{- $gpus := dict -}}
{{- if .gpus }}{{ $gpus = dict (default "nvidia.com/gpu" .gpuResource) (toString .gpus) }}{{ end -}}
{{- toYaml (dict "requests" (merge (dict) .resources.requests $gpus) "limits" (merge (dict) .resources.limits $gpus)) -}}
{{- end -}}
