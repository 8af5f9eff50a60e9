// The published types of custom resources. `test_chart.py` declares the chart's objects with them.
export type { IHTTPRoute as HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
export type { IPodMonitor as PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
export type { IPrometheusRule as PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
