{{- /* The name of every object: that of the release, short enough for a suffix. */ -}}
{{- define "samplegate.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* The labels that select pods. Takes a list: the root, and the component. */ -}}
{{- define "samplegate.selector" -}}
app.kubernetes.io/name: samplegate
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "samplegate.labels" -}}
{{ include "samplegate.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: samplegate-{{ (index . 0).Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "samplegate.image" -}}
{{- $image := .Values.image -}}
{{- $image.repository -}}:{{- $image.tag | default .Chart.AppVersion -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* What the pod security standard "restricted" requires of a container, and a read-only root. */ -}}
{{- define "samplegate.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- end -}}

{{- define "samplegate.ownSecurity" -}}
{{ include "samplegate.containerSecurity" . }}
runAsUser: 10001
runAsGroup: 10001
{{- end -}}

{{- /* The members of every pod's spec. */ -}}
{{- define "samplegate.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* libpq ignores a password file that others than its owner can read, and the files of a Secret belong to root and are
       readable by the pod's group. So the password file is copied, for the gate's user alone. */ -}}
{{- define "samplegate.passwordFile" -}}
- name: password-file
  image: {{ include "samplegate.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [install, -m, "0600", /run/secrets/samplegate/{{ .Values.passwordFile }}, /run/pgpass/pgpass]
  securityContext: {{- include "samplegate.ownSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: secrets, mountPath: /run/secrets/samplegate, readOnly: true}
    - {name: pgpass, mountPath: /run/pgpass}
{{- end -}}

{{- /* The volumes of secrets. Takes a list: the root, and the name of the Secret. */ -}}
{{- define "samplegate.secretVolumes" -}}
- name: secrets
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
{{- if (index . 0).Values.passwordFile }}
- name: pgpass
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
{{- end -}}

{{- define "samplegate.secretMounts" -}}
- {name: secrets, mountPath: /run/secrets/samplegate, readOnly: true}
{{- if .Values.passwordFile }}
- {name: pgpass, mountPath: /run/pgpass, readOnly: true}
{{- end }}
{{- end -}}

{{- /* The spec of a Job that migrates the database, as the role that owns the tables. Takes a list: the root, and further
       arguments of the command. */ -}}
{{- define "samplegate.migration" -}}
{{- $root := index . 0 -}}
backoffLimit: 3
activeDeadlineSeconds: 900
template:
  metadata:
    labels: {{- include "samplegate.selector" (list $root "migrations") | nindent 6 }}
  spec:
    {{- include "samplegate.pod" $root | nindent 4 }}
    restartPolicy: Never
    {{- if $root.Values.passwordFile }}
    initContainers: {{- include "samplegate.passwordFile" $root | nindent 6 }}
    {{- end }}
    containers:
      - name: migrate
        image: {{ include "samplegate.image" $root }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args:
          - database
          - migrate
          - --database
          - {{ $root.Values.migrations.database | quote }}
          {{- with $root.Values.migrations.gates }}
          - --gates
          - {{ . | quote }}
          {{- end }}
          {{- with $root.Values.migrations.readers }}
          - --readers
          - {{ . | quote }}
          {{- end }}
          {{- range index . 1 }}
          - {{ . | quote }}
          {{- end }}
        securityContext: {{- include "samplegate.ownSecurity" $root | nindent 10 }}
        resources:
          requests: {cpu: 100m, memory: 128Mi}
          limits: {memory: 512Mi}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          {{- include "samplegate.secretMounts" $root | nindent 10 }}
    volumes:
      - name: tmp
        emptyDir: {sizeLimit: 64Mi}
      {{- include "samplegate.secretVolumes" (list $root $root.Values.migrations.secret) | nindent 6 }}
{{- end -}}
