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

{{/* Pod fields that every process shares. */}}
{{- define "penstock.pod" -}}
serviceAccountName: {{ include "penstock.fullname" .root }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
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
{{- end -}}

{{/* Container fields that every process shares. */}}
{{- define "penstock.container" -}}
image: {{ include "penstock.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
env:
  - name: PENSTOCK_DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: {{ .Values.database.secretName | quote }}
        key: {{ .Values.database.secretKey | quote }}
  - name: PENSTOCK_PIPELINES
    value: {{ join "," .Values.pipelines | quote }}
  - name: PENSTOCK_DRAIN
    value: {{ printf "%ds" (int (sub .Values.terminationGracePeriodSeconds 5)) | quote }}
{{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
{{- end }}
{{- with .Values.secretEnvironment }}
envFrom:
  - secretRef:
      name: {{ . | quote }}
{{- end }}
{{- end -}}
