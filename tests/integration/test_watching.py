"""A gateway and its jobs under load, with failures, as a real Prometheus sees them through our rules and dashboards."""

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import psycopg
import pytest
import yaml
from hosts import RAG, with_interrupts
from pdfs import pdf
from prometheus import Prometheus, publish_files, run_prometheus
from promql import panel_expressions, read_rules, read_runbook, with_bool
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier
from trees import HASHING, write

from benchmarks.free_port import find_free_port
from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.ray, pytest.mark.chaos, pytest.mark.timeout(3600)]

PROMETHEUS = Path(__file__).parents[2] / "cluster" / "prometheus"
PATIENCE = 900.0
"""Seconds in which a busy machine has done a job, or in which Prometheus has seen what happened."""
STEP = 5.0
"""Seconds between two values of an expression: the interval of scrapes."""
QUESTION = "How often are the signing keys replaced?"
# They are due tomorrow, so that no runner takes them, and have waited for an hour.
BACKLOG = """
insert into jobs (tenant, id, sources, profile, settings, status, same, request, created_at, run_at)
select 'default-tenant', gen_random_uuid(), '{}', 'default', '{}', 'queued', 0, '{"collection": "default"}',
  now() - interval '1 hour', now() + interval '1 day' from generate_series(1, 10001)"""
LOCK = "lock table rag.vectors in access exclusive mode"
INJECTED = {
    "OrchestrationAuditRowsDropped",
    "OrchestrationCircuitBreakerOpen",
    "OrchestrationDocumentsFailing",
    "OrchestrationEvaluationGateFailed",
    "OrchestrationHighErrorRate",
    "OrchestrationJobBacklog",
    "OrchestrationJobBacklogOld",
    "OrchestrationJobsFailed",
    "OrchestrationStageTimeout",
    "OrchestrationStoreUnavailable",
}


@dataclass(frozen=True)
class Watched:
    """A running gateway, and the Prometheus that scrapes it."""

    url: str
    prometheus: Prometheus
    begun: float
    """Seconds of the monotonic clock when Prometheus had started."""

    def find_values(self, expression: str) -> set[float]:
        """The values of the expression's series since Prometheus started, except NaN: a ratio without any traffic."""
        series = self.prometheus.query_range(expression, time.monotonic() - self.begun, STEP)
        return {value for _, values in series for value in values if not math.isnan(value)}


@pytest.fixture(scope="module")
def watched(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    environment = {
        **os.environ,
        **dict(map(_variable, HASHING)),
        "RAG_STORE__URL": module_store.dsn,
        "RAG_HOME": str(folder / "home"),
        "RAG_AUDIT__READS": "always",
        "RAG_INGESTION__ALLOWED_LOCATIONS": json.dumps([f"file://{folder}"]),
        "RAG_INGESTION__RAY_FROM_CPUS": "1",
        "RAG_INGESTION__INLINE_DOCUMENTS": "1",
        "RAY_metrics_report_interval_ms": "3000",  # Ray drops a gauge after two; they are set every 5 s
        "RAY_worker_niceness": "0",
    }
    with _serve(environment, folder) as (url, metrics), publish_files(folder) as files:
        configuration = write_configuration(folder, metrics, files)
        with run_prometheus(configuration, folder) as prometheus, _ask_all_the_time(url):
            watched = Watched(url, prometheus, time.monotonic())
            ingest(watched, folder)
            evaluate(environment, folder)
            time_a_stage_out(watched, module_store)
            with module_store.connect("rag_worker") as connection:
                connection.execute(BACKLOG)
            take_the_store_away(watched, module_store)
            yield watched


def eventually(is_true: Callable[[], bool]) -> None:
    """Waits for the condition. It asks a server, so it is checked only once a second."""
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline, f"the condition was not met within {PATIENCE:g} s"
        time.sleep(1)


def _variable(setting: str) -> tuple[str, str]:
    """The environment variable of a setting, and its value."""
    key, _, value = setting.partition("=")
    return f"RAG_{key.upper().replace('.', '__')}", value


@contextmanager
def _serve(environment: dict[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the URL of the gateway and the address of its metrics."""
    port, metrics = find_free_port(), find_free_port()
    command = [*RAG, "serve", "--port", str(port), "--set", f"telemetry.metrics_port={metrics}", "--json"]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            with_interrupts(command), env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        with process:
            assert process.stdout
            assert process.stdout.readline(), (folder / "serve.log").read_text()
            try:
                yield f"http://127.0.0.1:{port}", f"127.0.0.1:{metrics}"
            finally:
                process.send_signal(signal.SIGINT)


def write_configuration(folder: Path, metrics: str, files: str) -> Path:
    """The configuration of cluster/prometheus, with the addresses of this test and shorter intervals."""
    configuration = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    discovery = folder / "prom_metrics_service_discovery.json"
    discovery.write_text(json.dumps([{"labels": {"job": "ray"}, "targets": [metrics]}]))
    jobs["ray"]["file_sd_configs"] = [{"files": [str(discovery)]}]
    jobs["node"]["static_configs"] = [{"targets": [files]}]
    configuration["scrape_configs"] = [jobs["ray"], jobs["node"]]
    configuration["global"] = {"scrape_interval": f"{STEP:g}s", "scrape_timeout": "5s", "evaluation_interval": "2s"}
    configuration["rule_files"] = [str(PROMETHEUS / "rules" / "*.yaml")]
    del configuration["alerting"]
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(configuration))
    return path


@contextmanager
def _ask_all_the_time(url: str) -> Iterator[None]:
    """Sends requests of each kind in turns during the block, whatever their outcome."""
    ended = Event()

    def ask() -> None:
        with httpx2.Client(base_url=url, timeout=60) as client:
            while not ended.wait(0.5):
                client.post("/v1/retrieve", json={"query": QUESTION})
                client.post("/v1/answer", json={"question": QUESTION})
                client.get("/v1/jobs")

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            yield
        finally:
            ended.set()
        asking.result(60)


def ingest(watched: Watched, folder: Path) -> None:
    """Runs two jobs on Ray: one in which 3 of 43 documents fail, and one whose folder is missing."""
    documents = {f"{n}.md": f"# Key {n}\n\nSigning keys are replaced every {n} days." for n in range(40)}
    source = write(folder / "documents", documents)
    for n in range(3):
        (source / f"truncated{n}.pdf").write_bytes(pdf(["Keys"], ["Keys"], [f"{n}"])[:1000])
    assert run_job(watched, source.as_uri())["failed"] == 3
    assert run_job(watched, (folder / "missing").as_uri())["status"] == "failed"


def run_job(watched: Watched, location: str) -> Any:
    """The job when it has ended, as the list of jobs shows it."""
    body = {"source": {"type": "files", "locations": [location]}}
    with httpx2.Client(base_url=watched.url, timeout=60) as client:
        id = client.post("/v1/ingest", json=body).raise_for_status().json()["job_id"]

        def find() -> Any:
            return next(job for job in client.get("/v1/jobs").json()["data"] if job["job_id"] == id)

        eventually(lambda: find()["status"] in ("completed", "failed"))
        return find()


def evaluate(environment: dict[str, str], folder: Path) -> None:
    """Evaluates the profile, refuses the run at its gate, and measures the drift of the answers."""
    texts = ("Signing keys are replaced every 45 days.", "Boats wait at the pontoon.", "The crane is painted in May.")
    corpus = [CorpusDocument(id=f"{n}", title=f"{n}", text=text) for n, text in enumerate(texts)]
    questions = [Question(id=f"q{n}", text=text, grades={f"{n}": 1}) for n, text in enumerate(texts)]
    write_dataset(folder / "harbour", corpus, questions)
    (folder / "gate.yaml").write_text("measures: {ndcg@10: {floor: 1.01}}\n")
    run, gate = folder / "run", folder / "gate.yaml"

    def rag(*arguments: object) -> int:
        command = [*RAG, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode

    assert rag("evaluate", folder / "harbour", "--answers", "--runner", "inline", "--out", run) == 0
    assert rag("gate", run, "--gate", gate, "--metrics", folder / "gate.prom") == 1
    assert rag("feedback", "drift", run, "--metrics", folder / "drift.prom") == 0


def time_a_stage_out(watched: Watched, store: Postgres) -> None:
    """Locks the vectors, for which the stage `dense` waits, until Prometheus has seen its timeouts."""
    timeouts = 'sum(orchestration_stage_duration_seconds_count{pipeline_stage="dense",status="timeout"})'
    with psycopg.connect(store.dsn) as connection:
        connection.execute(LOCK)
        eventually(lambda: any(value > 2 for _, value in watched.prometheus.query(timeouts)))


def take_the_store_away(watched: Watched, store: Postgres) -> None:
    """Refuses connections to the store until Prometheus has seen lost rows of the audit and an open breaker."""
    name = conninfo_to_dict(store.dsn)["dbname"]
    seen = (
        "min(orchestration_store_up) == 0",
        'max(orchestration_circuit_breaker_state{service="store"}) == 2',
        "sum(orchestration_audit_rows_dropped_total) > 0",
        'sum(rate(orchestration_operations_total{operation="retrieve",status="error"}[1m])) > 0',
    )
    with psycopg.connect(make_conninfo(store.dsn, dbname="postgres"), autocommit=True) as server:
        allow = SQL("alter database {} with allow_connections {}")
        server.execute(allow.format(Identifier(str(name)), SQL("false")))
        try:
            server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
            eventually(lambda: all(watched.prometheus.query(expression) for expression in seen))
        finally:
            server.execute(allow.format(Identifier(str(name)), SQL("true")))
    eventually(lambda: bool(watched.prometheus.query("min(orchestration_store_up) == 1")))


def expressions() -> dict[str, str]:
    """The expressions of rules, dashboards and the runbook by their place. Comparisons return 0 or 1."""
    places = {
        f"{rule.file} {rule.record or rule.alert} {rule.labels.get('severity', '')}": rule.expression
        for rule in read_rules()
    }
    places |= panel_expressions() | read_runbook()
    return {place: with_bool(text) for place, text in places.items()}


def test_every_expression_has_had_a_value(watched: Watched) -> None:
    empty = dict(expressions())

    def drop_answered() -> bool:
        for place in [place for place, expression in empty.items() if watched.find_values(expression)]:
            del empty[place]
        return not empty

    with suppress(AssertionError):
        eventually(drop_answered)
    assert empty == {}


def test_the_failures_raise_their_alerts(watched: Watched) -> None:
    """An alert with a delay is pending at first. `count_over_time` also finds those that have ended."""

    def names() -> set[str]:
        return {labels["alertname"] for labels, _ in watched.prometheus.query("count_over_time(ALERTS[1h])")}

    eventually(lambda: names() >= INJECTED)


def test_annotations_name_the_values(watched: Watched) -> None:
    alerts = watched.prometheus.get("alerts")["alerts"]
    described = {alert["labels"]["alertname"]: alert["annotations"]["description"] for alert in alerts}
    assert "ingest jobs wait in the queue" in described["OrchestrationJobBacklog"]
    assert not any("<no value>" in text or "error" in text.lower().split(":")[0] for text in described.values())


def test_the_program_s_metrics_have_no_prefix_and_no_labels_of_ray_s_session(watched: Watched) -> None:
    assert watched.prometheus.query('count({__name__=~"ray_orchestration_.*"})') == []
    names = {name for labels, _ in watched.prometheus.query("orchestration_operations_total") for name in labels}
    assert {"operation", "pipeline_stage", "tenant_id", "profile", "status", "WorkerId"} <= names
    assert names & {"SessionName", "Version", "otel_scope_name"} == set()


def test_targets_are_scraped_without_an_error(watched: Watched) -> None:
    targets = watched.prometheus.get("targets")["activeTargets"]
    assert {target["labels"]["job"]: target["lastError"] for target in targets} == {"ray": "", "node": ""}


def test_rules_are_evaluated_without_an_error(watched: Watched) -> None:
    groups = watched.prometheus.get("rules")["groups"]
    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")] == []
