{{- define "penstock.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "penstock.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}

{{/* Labels and annotations of a pod. */}}
{{- define "penstock.podMetadata" -}}
labels:
{{ include "penstock.labels" . | indent 2 }}
{{- with .root.Values.podAnnotations }}
annotations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{/* The setting `drain`: the last 15 s of the grace period are for closing. */}}
{{- define "penstock.drain" -}}
{{- $seconds := int .Values.terminationGracePeriodSeconds -}}
{{- if lt $seconds 20 -}}
{{- fail "Set terminationGracePeriodSeconds to at least 20: 15 s for closing, and the rest for active runs" -}}
{{- end -}}
{{- printf "%ds" (int (sub $seconds 15)) -}}
{{- end -}}

{{/* Pod fields that every process shares. */}}
{{- define "penstock.pod" -}}
serviceAccountName: {{ include "penstock.fullname" .root }}
automountServiceAccountToken: false
# Kubernetes would describe every service of the namespace in variables. Those of a service penstock-api start with
# PENSTOCK_API_, and Penstock refuses settings that it does not know.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
terminationGracePeriodSeconds: {{ add .root.Values.terminationGracePeriodSeconds (default 0 .preStop) }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- if .root.Values.topologySpread }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
{{ include "penstock.selector" . | indent 8 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
{{- with .root.Values.extraVolumes }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{/* Refuse variables that the chart sets from its own values: the last of two would win, unnoticed. */}}
{{- define "penstock.variables" -}}
{{- $own := dict "PENSTOCK_DATABASE_URL" "database.secretName" "PENSTOCK_PIPELINES" "pipelines" "PENSTOCK_DRAIN" "terminationGracePeriodSeconds, which is 15 s longer" "PENSTOCK_METRICS_PORT" "metricsPort" "PENSTOCK_METRICS_HOST" "nothing: it is 0.0.0.0, for the probes" -}}
{{- $names := keys .Values.settings -}}
{{- range .Values.extraEnv -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- range $names | sortAlpha -}}
{{- if hasKey $own . -}}
{{- fail (printf "%s is set by the chart: remove it from settings and extraEnv, and set %s" . (get $own .)) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $names) (len ($names | uniq)) -}}
{{- fail "A variable is in settings and in extraEnv: remove it from one of them" -}}
{{- end -}}
{{- end -}}

{{/* Container fields that every process shares. role: owner or app, the database role that the process needs. */}}
{{- define "penstock.container" -}}
{{- $values := .root.Values -}}
{{- $secret := $values.database.secretName -}}
{{- $key := $values.database.secretKey -}}
{{- if and (eq .role "app") $values.database.appSecretName -}}
{{- $secret = $values.database.appSecretName -}}
{{- $key = $values.database.appSecretKey -}}
{{- end -}}
image: {{ include "penstock.image" .root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- with $values.extraVolumeMounts }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- include "penstock.variables" .root }}
env:
  - name: PENSTOCK_DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: {{ $secret | quote }}
        key: {{ $key | quote }}
  - name: PENSTOCK_PIPELINES
    value: {{ required "Set pipelines to the modules of your image that declare pipelines, for example --set pipelines={my_pipelines}" (join "," $values.pipelines) | quote }}
  - name: PENSTOCK_DRAIN
    value: {{ include "penstock.drain" .root | quote }}
  - name: PENSTOCK_METRICS_HOST
    value: 0.0.0.0
  - name: PENSTOCK_METRICS_PORT
    value: {{ $values.metricsPort | quote }}
{{- range $name, $value := $values.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $values.secretEnvironment }}
envFrom:
  - secretRef:
      name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Port and probes of a process without an API: its metrics respond while it works. */}}
{{- define "penstock.metrics" -}}
ports:
  - name: metrics
    containerPort: {{ .Values.metricsPort }}
startupProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}
