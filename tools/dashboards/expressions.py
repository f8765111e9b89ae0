"""Parts of PromQL expressions, and the variables that they name."""

from tools.dashboards.grafana import Variable

TENANT = Variable("tenant", "orchestration_operations_total", "tenant_id")
PROFILE = Variable("profile", "orchestration_operations_total", "profile")
OPERATION = Variable("operation", "orchestration_operations_total", "operation")
REQUESTS = 'operation=~"$operation",profile=~"$profile",tenant_id=~"$tenant"'
ACCEPTED = f'{REQUESTS},status!~"cancelled|refused"'
JOBS = 'operation="ingest",tenant_id=~"$tenant"'
RATE = "[$__rate_interval]"
END_TO_END = "orchestration_end_to_end_duration_seconds"
STAGE = "orchestration_stage_duration_seconds"


def quantile_of(quantile: float, histogram: str, selector: str, labels: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le, {labels}) (rate({histogram}_bucket{{{selector}}}{RATE})))"


def increase_of(counter: str, selector: str, window: str) -> str:
    """The increase of a counter, with the first value of a series that is new in the window.

    `increase` misses that value, which is all of a short job: its processes count and end between two scrapes.
    """
    series = f"{counter}{{{selector}}}"
    return f"({series} unless {series} offset {window} or increase({series}[{window}]))"
