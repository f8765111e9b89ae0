"""Requests, their stages, and the deployments that answer them."""

from tools.dashboards.expressions import (
    ACCEPTED,
    END_TO_END,
    OPERATION,
    PROFILE,
    RATE,
    REQUESTS,
    STAGE,
    TENANT,
    quantile_of,
)
from tools.dashboards.grafana import Dashboard, Panel, Query, Row, Variable

DEPLOYMENT = Variable("deployment", "ray_serve_deployment_replica_healthy", "deployment")

SERVING = Dashboard(
    "rag-serving",
    "RAG / Serving",
    (TENANT, PROFILE, OPERATION, DEPLOYMENT),
    (
        Row(
            "Requests",
            (
                Panel(
                    title="Requests by operation",
                    description="Requests that ended, per second. Refused and cancelled ones count.",
                    unit="reqps",
                    queries=(
                        Query(
                            f"sum by (operation) (rate(orchestration_operations_total{{{REQUESTS}}}{RATE}))",
                            "{{operation}}",
                        ),
                    ),
                ),
                Panel(
                    title="Requests by status",
                    description="ok, degraded (a stage failed, the rest answered), refused (the caller's mistake), "
                    "timeout, error, and cancelled (the client left).",
                    unit="reqps",
                    queries=(
                        Query(
                            f"sum by (status) (rate(orchestration_operations_total{{{REQUESTS}}}{RATE}))", "{{status}}"
                        ),
                    ),
                ),
                Panel(
                    title="Failed requests",
                    description="Share of the accepted requests that ended with an error or a timeout. Above 5 % the "
                    "alert OrchestrationHighErrorRate fires.",
                    unit="percentunit",
                    limit=0.05,
                    queries=(
                        Query(
                            "operation_profile:orchestration_operations_failed:ratio_rate5m"
                            '{operation=~"$operation",profile=~"$profile"}',
                            "{{operation}} {{profile}}",
                        ),
                    ),
                ),
                Panel(
                    title="Duration of requests",
                    description="Median, 95th and 99th percentile from the first byte to the last. The highest bucket "
                    "ends at 10 s.",
                    unit="s",
                    queries=tuple(
                        Query(quantile_of(quantile, END_TO_END, ACCEPTED, "operation"), f"{{{{operation}}}} p{name}")
                        for quantile, name in ((0.5, "50"), (0.95, "95"), (0.99, "99"))
                    ),
                ),
                Panel(
                    title="Retrieval, 95th percentile",
                    description="Legs, fusion and reranking. The target is 200 ms.",
                    unit="s",
                    limit=0.2,
                    queries=(
                        Query(
                            'profile:orchestration_retrieval_duration_seconds:p95_5m{profile=~"$profile"}',
                            "{{profile}}",
                        ),
                    ),
                ),
                Panel(
                    title="Degraded requests",
                    description="Share of the accepted requests in which a stage failed and the rest answered.",
                    unit="percentunit",
                    queries=(
                        Query(
                            f"(sum by (operation) (rate(orchestration_operations_total"
                            f'{{{REQUESTS},status="degraded"}}{RATE})) '
                            f"or 0 * sum by (operation) (rate(orchestration_operations_total{{{ACCEPTED}}}{RATE}))) "
                            f"/ sum by (operation) (rate(orchestration_operations_total{{{ACCEPTED}}}{RATE}))",
                            "{{operation}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Stages",
            (
                Panel(
                    title="Duration of stages, 95th percentile",
                    description="The slowest stage is where a slow request spends its time.",
                    unit="s",
                    queries=(
                        Query(
                            quantile_of(0.95, STAGE, f'{REQUESTS},operation!="ingest"', "pipeline_stage"),
                            "{{pipeline_stage}}",
                        ),
                    ),
                ),
                Panel(
                    title="Errors of stages",
                    description="Errors per second by stage and type, even if the request could continue.",
                    unit="cps",
                    queries=(
                        Query(
                            "sum by (pipeline_stage, error_type) "
                            f"(rate(orchestration_errors_total{{{REQUESTS}}}{RATE}))",
                            "{{pipeline_stage}} {{error_type}}",
                        ),
                    ),
                ),
                Panel(
                    title="Timeouts of stages",
                    description="Share of the runs of a stage that exceed its limit. Above 10 % the alert "
                    "OrchestrationStageTimeout fires.",
                    unit="percentunit",
                    limit=0.1,
                    queries=(
                        Query(
                            "operation_stage_profile:orchestration_stage_timeouts:ratio_rate5m"
                            '{operation=~"$operation",profile=~"$profile"}',
                            "{{operation}} {{pipeline_stage}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Objectives",
            (
                Panel(
                    title="Burn rate of the error budget",
                    description="1 means that the 0.1 % of failures that 30 days allow are used up after 30 days. "
                    "14.4 over an hour pages.",
                    unit="none",
                    limit=14.4,
                    width=12,
                    queries=tuple(
                        Query(f"slo:orchestration_questions_failed:ratio_rate{window} / 0.001", window)
                        for window in ("5m", "1h", "6h", "3d")
                    ),
                ),
                Panel(
                    title="Burn rate of the latency budget",
                    description="1 means that the 1 % of retrievals above 500 ms that 30 days allow are used up after "
                    "30 days. 14.4 over an hour pages.",
                    unit="none",
                    limit=14.4,
                    width=12,
                    queries=tuple(
                        Query(f"slo:orchestration_retrievals_slow:ratio_rate{window} / 0.01", window)
                        for window in ("5m", "1h", "6h", "3d")
                    ),
                ),
            ),
        ),
        Row(
            "Deployments",
            (
                Panel(
                    title="Circuit breakers",
                    description="The worst state over all processes: 0 closed, 1 half-open, 2 open.",
                    unit="none",
                    limit=1,
                    queries=(Query("max by (service) (orchestration_circuit_breaker_state)", "{{service}}"),),
                ),
                Panel(
                    title="Healthy replicas",
                    description="Replicas whose last health check passed.",
                    unit="none",
                    queries=(
                        Query(
                            'sum by (deployment) (ray_serve_deployment_replica_healthy{deployment=~"$deployment"})',
                            "{{deployment}}",
                        ),
                    ),
                ),
                Panel(
                    title="Requests in progress",
                    description="Requests that replicas work on now.",
                    unit="none",
                    queries=(
                        Query(
                            'sum by (deployment) (ray_serve_replica_processing_queries{deployment=~"$deployment"})',
                            "{{deployment}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
