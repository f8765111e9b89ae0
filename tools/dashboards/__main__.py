"""Writes the dashboards: `python -m tools.dashboards`."""

from pathlib import Path

from tools.dashboards import DASHBOARDS
from tools.dashboards.grafana import render_dashboard

if __name__ == "__main__":
    for name, dashboard in DASHBOARDS.items():
        Path(f"cluster/grafana/dashboards/{name}.json").write_text(render_dashboard(dashboard), encoding="utf-8")
