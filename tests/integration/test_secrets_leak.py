"""No secret of a configuration is in a log, a message, a problem, a span, a row or a process title, whatever fails."""

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path

import gateways
import httpx2
import psutil
import pytest
from commands import Ran, rag_in_process
from fakes.openai_endpoint import error_response, run_endpoint
from mistakes import MISTAKES, make, prepare
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg.conninfo import make_conninfo
from waiting import wait_until
from workers import run_worker

from rag_core.scopes import SCOPES
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, Queue
from rag_core.telemetry.logs import configure_logs, disable_logs
from rag_core.telemetry.traces import install_tracer
from rag_core.types import DEFAULT_TENANT
from serve.authentication.caller import Caller
from serve.services import Services

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(600)]

STEM = "Leak7Q"
"""A part of every secret."""
ENCRYPTION_KEY = f"{STEM}key{'A' * 34}="
KEY = f"sk-{STEM}-endpoint-0123456789"
VARIABLES = {
    "MODEL_KEY": KEY,
    "OPENAI_API_KEY": f"sk-{STEM}-openai-0123456789",
    "AWS_ACCESS_KEY_ID": f"AKIA{STEM}",
    "AWS_SECRET_ACCESS_KEY": f"{STEM}-aws",
    "VAULT_ADDR": f"http://me:{STEM}@127.0.0.1:1",
    "VAULT_TOKEN": f"{STEM}-vault",
    "RAG_API_KEY": f"rk_12345678_{STEM}",
    "HTTPS_PROXY": f"http://me:{STEM}@127.0.0.1:1",
}
TABLES = """
select relname from pg_class
where relnamespace = 'rag'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1"""
OPEN_JOBS = "select count(*) from jobs where finished_at is null"
MODEL = "{{type: openai, model: m, base_url: '{url}', api_key: '{key}', attempts: 1, fallback: none}}"
UNUSABLE_STORES = (
    f"postgresql://me:{STEM}@127.0.0.1:1/rag",
    f"host=127.0.0.1 port=1 user=me password={STEM} connect_timeout=1",
    f"postgresql://me:{STEM}%zz@host/rag",
    f"host=h {STEM}",
    f"mysql://me:{STEM}@host/rag",
    "env:NO_SUCH_VARIABLE",
    "file:/no/such/file",
    "env:BROKEN_DSN",
    "vault:secret/rag#dsn",
)
CREDENTIALS = (
    f"Bearer rk_12345678_{STEM}",
    f"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiI{STEM}In0.",
    f"Basic {STEM}",
    f"{STEM}",
)


class Outputs:
    """Everything that others can read, by its place."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.log, self.spans = io.StringIO(), InMemorySpanExporter()

    def add(self, name: str, text: object) -> None:
        self.texts.setdefault(name, []).append(str(text))

    def leaks(self) -> dict[str, str]:
        """The text around the first secret of each place."""
        joined = {name: "\n".join(texts) for name, texts in self.texts.items()}
        places = {name: text.find(STEM) for name, text in joined.items()}
        return {name: joined[name][max(0, at - 300) : at + 100] for name, at in places.items() if at >= 0}


@pytest.fixture
def outputs() -> Iterator[Outputs]:
    """Yields the outputs. Adds the logs of all loggers and the spans at the end, and asserts that no secret leaks."""
    outputs, every = Outputs(), io.StringIO()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(outputs.spans))
    handler = logging.StreamHandler(every)
    logging.getLogger().addHandler(handler)
    configure_logs("gateway", "full", outputs.log)
    install_tracer(provider.get_tracer("test"))
    try:
        yield outputs
        outputs.add("logs", outputs.log.getvalue() + every.getvalue())
        outputs.add("spans", [span.to_json() for span in outputs.spans.get_finished_spans()])
        assert outputs.leaks() == {}
    finally:
        install_tracer(None)
        disable_logs()
        logging.getLogger().removeHandler(handler)


@pytest.fixture
def rag(
    store: Postgres,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    outputs: Outputs,
) -> Iterator[Callable[..., Ran]]:
    """The command in a folder of its own, with a secret wherever there can be one."""
    key = tmp_path / "key"
    key.write_text(ENCRYPTION_KEY)
    key.chmod(0o600)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAG_DSN", make_conninfo(store.dsn, password=STEM))
    monkeypatch.setenv("BROKEN_DSN", f"host=h {STEM}")
    monkeypatch.setenv("RAG_STORE__URL", "env:RAG_DSN")
    monkeypatch.setenv("RAG_STORE__PATIENCE_S", "0")
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "hashing")
    monkeypatch.setenv("RAG_ENCRYPTION__KEYS", f"{{k1: 'file:{key}'}}")
    monkeypatch.setenv("RAG_ENCRYPTION__ACTIVE", "k1")
    run = rag_in_process(capfd)

    def record(*arguments: object) -> Ran:
        ran = run(*arguments)
        outputs.add("terminal", ran.out + ran.err)
        outputs.add("processes", list_commands())
        return ran

    folder = tmp_path / "work"
    folder.mkdir()
    with chdir(folder):
        yield record


def list_commands() -> list[list[str]]:
    """The command lines of this process and all below it, such as workers, parsers and Postgres."""
    this_process = psutil.Process()
    commands = []
    for process in (this_process, *this_process.children(recursive=True)):
        with suppress(psutil.Error):
            commands.append(process.cmdline())
    return commands


def add_rows(outputs: Outputs, store: Postgres) -> None:
    with store.connect("rag_worker") as connection:
        for (table,) in connection.execute(TABLES).fetchall():
            if table != "migrations":
                rows = connection.execute(f"select t::text from rag.{table} t".encode()).fetchall()  # noqa: S608
                outputs.add(f"table {table}", rows)


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments:DeprecationWarning")  # an import of Ray Serve
def test_no_failure_of_a_command_shows_a_secret(
    rag: Callable[..., Ran], store: Postgres, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(rag)
    for mistake in MISTAKES:
        outcome = make(mistake, rag)
        # the table's own secrets are others
        assert STEM not in outcome.text, mistake.arguments
    for arguments in (("config", "show", "--json"), ("config", "show"), ("doctor", "--json"), ("store", "status")):
        assert rag(*arguments).code in (0, 3)
    with run_endpoint(*(error_response(status, {"message": f"wrong key {KEY}"}) for status in (401, 500))) as endpoint:
        for url in (endpoint.url, endpoint.url, "http://127.0.0.1:1/v1"):
            model = MODEL.format(url=url, key="env:MODEL_KEY")
            assert rag("ask", "keys?", "-v", "--set", f"generation={model}").code == 3
        assert {request.headers["authorization"] for request in endpoint.requests} == {f"Bearer {KEY}"}
    for location in (
        f"ftp://me:{STEM}@127.0.0.1:1/docs",
        f"https://me:{STEM}@127.0.0.1:1/docs",
        "s3://no-such-bucket-1",
    ):
        assert rag("ingest", location).code != 0
    Path("docs/broken.pdf").write_bytes(b"%PDF-1.7 broken")
    assert rag("ingest", "docs", "--json").code == 1
    for url in UNUSABLE_STORES:
        monkeypatch.setenv("RAG_STORE__URL", url)
        for arguments in (("search", "keys"), ("ingest", "docs"), ("doctor",), ("store", "status"), ("config", "show")):
            rag(*arguments)
    assert "cannot use the store at user=me" in "".join(outputs.texts["terminal"])
    add_rows(outputs, store)


def send_requests(services: Services, who: Caller | None = None) -> list[httpx2.Response]:
    async def send(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        question = {"question": "keys?", "stream": False, "conversation_id": "s"}
        return [
            await client.request(method, path, json=body, headers={"Authorization": credentials})
            for credentials in CREDENTIALS
            for method, path, body in (
                ("GET", "/v1/collections", None),
                ("POST", "/v1/answer", question),
                ("POST", "/v1/answer", {**question, "stream": True}),
                ("POST", "/v1/feedback", {"answer_id": "none", "rating": 1}),
                ("POST", "/v1/ingest", {"source": {"locations": [f"https://me:{STEM}@127.0.0.1/docs"]}}),
                ("GET", "/readyz", None),
            )
        ]

    return gateways.run_with_gateway(services, send, who)


def test_no_request_and_no_job_shows_a_secret(rag: Callable[..., Ran], store: Postgres, outputs: Outputs) -> None:
    prepare(rag)
    model = MODEL.format(url="http://127.0.0.1:1/v1", key="env:MODEL_KEY")
    settings = load_settings(overrides=[f"generation={model}", "auth.mode=keys", "answering.budget=none"])
    for who in (None, Caller(tenant=DEFAULT_TENANT, user="me", groups=(), scopes=SCOPES)):
        services = gateways.build_services(settings)
        outputs.add("representations", [settings, services.postgres, services.cipher])
        responses = send_requests(services, who)
        outputs.add("problems", [[response.headers, response.text] for response in responses])
        assert {response.status_code for response in responses} >= ({401} if who is None else {404, 502})
    with store.connect() as connection:
        request = IngestRequest(collection="default", profile="default", settings={}, locations=("/no/such/folder",))
        Queue(connection, DEFAULT_TENANT).enqueue(request)
    with run_worker(settings), store.connect("rag_worker") as connection:
        wait_until(lambda: connection.execute(OPEN_JOBS).fetchone() == (0,))
    add_rows(outputs, store)
    assert "cannot be reached" in outputs.log.getvalue()
    assert {span.name for span in outputs.spans.get_finished_spans()} >= {"answer", "generate"}
