"""The queue of ingest jobs, and the documents that pass it."""

from tools.dashboards.expressions import JOBS, PROFILE, RATE, STAGE, TENANT, increase_of
from tools.dashboards.grafana import Dashboard, Panel, Query, Row

BATCHES = "orchestration_batch_documents_total"
BATCH_LABELS = f'{JOBS},profile=~"$profile"'

INGESTION = Dashboard(
    "rag-ingestion",
    "RAG / Ingestion",
    (TENANT, PROFILE),
    (
        Row(
            "Queue",
            (
                Panel(
                    title="Jobs that wait or run",
                    description="All runners report the same queue, so this is the maximum over them. More than 1,000 "
                    "waiting jobs warn, more than 10,000 page.",
                    unit="none",
                    limit=1000,
                    queries=(
                        Query(
                            "sum by (pipeline_stage) (max by (pipeline_stage, tenant_id) "
                            f"(orchestration_job_queue_depth{{{JOBS}}}))",
                            "{{pipeline_stage}}",
                        ),
                    ),
                ),
                Panel(
                    title="Age of the oldest job",
                    description="A job that waits for more than 10 minutes fires OrchestrationJobBacklogOld.",
                    unit="s",
                    limit=600,
                    queries=(
                        Query(
                            f"max by (pipeline_stage) (orchestration_job_oldest_age_seconds{{{JOBS}}})",
                            "{{pipeline_stage}}",
                        ),
                    ),
                ),
                Panel(
                    title="Jobs that failed in the last 24 hours",
                    description="Jobs that will not be tried again. `rag jobs retry` processes their documents anew.",
                    unit="none",
                    kind="stat",
                    limit=1,
                    queries=(
                        Query('max by (tenant_id) (orchestration_failed_jobs{tenant_id=~"$tenant"})', "{{tenant_id}}"),
                    ),
                ),
            ),
        ),
        Row(
            "Documents",
            (
                Panel(
                    title="Documents per second by stage",
                    description="Documents in the batches of the last five minutes. The target is 100 published "
                    "documents per second. Small jobs run without batches.",
                    unit="cps",
                    queries=(
                        Query(
                            f"sum by (pipeline_stage) ({increase_of(BATCHES, BATCH_LABELS, '5m')}) / 300",
                            "{{pipeline_stage}}",
                        ),
                    ),
                ),
                Panel(
                    title="Documents by outcome",
                    description="Documents of the jobs that ended in the last hour.",
                    unit="none",
                    queries=(
                        Query(
                            "sum by (outcome) (tenant_profile_outcome:orchestration_documents:increase1h"
                            '{tenant_id=~"$tenant",profile=~"$profile"})',
                            "{{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    title="Failed documents",
                    description="Share of the last hour's new and changed documents that failed or are in quarantine.",
                    unit="percentunit",
                    limit=0.05,
                    queries=(Query("orchestration_documents_failed:ratio_increase1h", "failed"),),
                ),
                Panel(
                    title="Duration of batches, 95th percentile",
                    description="By stage, of the last five minutes. The highest bucket ends at 10 s.",
                    unit="s",
                    queries=(
                        Query(
                            "histogram_quantile(0.95, sum by (le, pipeline_stage) "
                            f"({increase_of(f'{STAGE}_bucket', BATCH_LABELS, '5m')}))",
                            "{{pipeline_stage}}",
                        ),
                    ),
                ),
                Panel(
                    title="Jobs by status",
                    description="Jobs and requests for jobs that ended, per second.",
                    unit="cps",
                    queries=(
                        Query(
                            f"sum by (status) (rate(orchestration_operations_total{{{BATCH_LABELS}}}{RATE}))",
                            "{{status}}",
                        ),
                    ),
                ),
                Panel(
                    title="Time since the last sync",
                    description="Since a source of the tenant was last listed completely. 26 hours warn.",
                    unit="s",
                    limit=26 * 3600,
                    queries=(
                        Query(
                            'max by (tenant_id) (orchestration_last_listing_age_seconds{tenant_id=~"$tenant"})',
                            "{{tenant_id}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
