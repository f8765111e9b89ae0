"""The server of the store, its tables, and the disks of the nodes."""

from tools.dashboards.grafana import Dashboard, Panel, Query, Row, Variable

STORE = Dashboard(
    "rag-store",
    "RAG / Store",
    (Variable("table", "orchestration_store_table_bytes", "table"),),
    (
        Row(
            "Server",
            (
                Panel(
                    title="Store",
                    description="1 if all ingest runners reach the store.",
                    unit="none",
                    kind="stat",
                    floor=1,
                    queries=(Query("min(orchestration_store_up)", "reachable"),),
                ),
                Panel(
                    title="Connections",
                    description="Share of the server's max_connections that are in use. 80 % warn.",
                    unit="percentunit",
                    limit=0.8,
                    queries=(Query("orchestration_store_connections:ratio", "connections"),),
                ),
                Panel(
                    title="Size of the database",
                    description="On the disk of the database server.",
                    unit="bytes",
                    queries=(Query("max(orchestration_store_bytes)", "database"),),
                ),
                Panel(
                    title="Lost rows of the audit",
                    description="Rows of read requests that could not be written in 10 minutes.",
                    unit="none",
                    limit=1,
                    queries=(Query("sum(tenant:orchestration_audit_rows_dropped:increase10m) or vector(0)", "rows"),),
                ),
                Panel(
                    title="Circuit breaker of the store",
                    description="The worst state over all gateways: 0 closed, 1 half-open, 2 open.",
                    unit="none",
                    limit=1,
                    queries=(Query('max(orchestration_circuit_breaker_state{service="store"})', "store"),),
                ),
                Panel(
                    title="Disks of Ray's nodes",
                    description="Used share of the disk. Ray starts no task above 95 %.",
                    unit="percent",
                    limit=90,
                    queries=(Query("max by (instance) (ray_node_disk_utilization_percentage)", "{{instance}}"),),
                ),
            ),
        ),
        Row(
            "Tables",
            (
                Panel(
                    title="Size of tables",
                    description="With their indexes. The ten largest.",
                    unit="bytes",
                    queries=(
                        Query(
                            'topk(10, max by (table) (orchestration_store_table_bytes{table=~"$table"}))', "{{table}}"
                        ),
                    ),
                ),
                Panel(
                    title="Rows of tables",
                    description="As Postgres' statistics count them. The ten largest.",
                    unit="none",
                    queries=(
                        Query(
                            'topk(10, max by (table) (orchestration_store_table_rows{table=~"$table"}))', "{{table}}"
                        ),
                    ),
                ),
                Panel(
                    title="Dead rows",
                    description="Share of a table, after an allowance of 100,000 rows. 40 % for an hour warn.",
                    unit="percentunit",
                    limit=0.4,
                    queries=(
                        Query(
                            'topk(10, table:orchestration_store_table_dead_rows:ratio{table=~"$table"})', "{{table}}"
                        ),
                    ),
                ),
            ),
        ),
    ),
)
