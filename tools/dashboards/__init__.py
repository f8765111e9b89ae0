"""Grafana's dashboards in cluster/grafana/dashboards. `python -m tools.dashboards` writes them.

They read recorded series of cluster/prometheus/rules where these have the labels of a dashboard's variables.
"""

from collections.abc import Mapping

from tools.dashboards.evaluation import EVALUATION
from tools.dashboards.grafana import Dashboard
from tools.dashboards.ingestion import INGESTION
from tools.dashboards.serving import SERVING
from tools.dashboards.store import STORE

DASHBOARDS: Mapping[str, Dashboard] = {
    "serving": SERVING,
    "ingestion": INGESTION,
    "evaluation": EVALUATION,
    "store": STORE,
}
