"""Gateways that are replaced one after the other under load: no request fails."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from benchmarks.idempotent_clients import Summary
from benchmarks.rolling_restart import Change, gateway_processes, measure, restart
from benchmarks.tcp_servers import run_over_tcp

pytestmark = [pytest.mark.chaos, pytest.mark.ray, pytest.mark.postgres, pytest.mark.timeout(600)]

CLIENTS = 8
LOAD = Namespace(clients=CLIENTS, seconds=10.0, pause=0.1)


def run_changes(urls: list[str], changes: Mapping[str, Change]) -> Mapping[str, Summary]:
    summaries = asyncio.run(measure(LOAD, urls, changes))
    assert all(summary.requests > CLIENTS for summary in summaries.values()), summaries
    return summaries


def test_two_gateways_behind_a_load_balancer_are_restarted_without_a_failed_request(short_folder: Path) -> None:
    folder = short_folder / f"gateways-{uuid4().hex[:6]}"
    folder.mkdir()
    with run_over_tcp(folder / "postgres") as store, gateway_processes(folder, store, 2) as gateways:
        restarts = {gateway.url: restart(gateway) for gateway in gateways}
        summaries = run_changes([gateway.url for gateway in gateways], restarts)
    assert {name: summary.errors for name, summary in summaries.items() if summary.failed} == {}
    logs = [gateway.log.read_text() for gateway in gateways]
    assert all("draining: /readyz responds with 503; the gateway stops in 5 s" in log for log in logs)
    assert not any("Traceback" in log for log in logs)
