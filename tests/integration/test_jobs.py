"""Jobs that are cancelled, watched and tried again, as another process sees them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from drafts import TENANT, draft
from rich.console import Console
from targets import begin, wait_until_unlocked
from trees import hashing_settings, read_tree, violations, write
from typer.testing import CliRunner

from rag_cli.app import app
from rag_cli.terminal.progress import JobProgress
from rag_core.config import Settings
from rag_core.errors import ConfigError, DocumentError, FencedError
from rag_core.ingestion.report import Plan, RunTimes, SyncReport
from rag_core.ingestion.sync import Sync
from rag_core.ingestion.watch import Check
from rag_core.protocols import Source
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import CANCELLED, Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import DEFAULT_TENANT, Draft, Entry
from rag_core.wiring.ingestion import (
    build_inline_runner,
    build_retry_sync,
    build_sync,
    open_files_source,
    settings_from_job,
)

pytestmark = pytest.mark.postgres

TREE = {f"{n}.md": f"# Gate {n}\n\nGate {n} is {n} metres wide.\n" for n in range(6)}
ONE_AT_A_TIME = hashing_settings("ingestion.group=1")


@dataclass
class Failing:
    """A source that fails for some files until `mended` is set."""

    inner: Source
    failing: frozenset[str]
    mended: bool = False

    @property
    def uri(self) -> str:
        return self.inner.uri

    def listing(self) -> list[Entry]:
        return list(self.inner.listing())

    def read(self, entry: Entry) -> bytes:
        if entry.uri.rpartition("/")[2] in self.failing and not self.mended:
            raise DocumentError("read", "the network is down", True)
        return self.inner.read(entry)


@dataclass(frozen=True)
class CancelledMidway:
    """A runner in this process. The job is cancelled after its first half."""

    store: Postgres
    settings: Settings

    def run(
        self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
    ) -> RunTimes:
        half, runner = len(drafts) // 2, build_inline_runner(self.settings)
        runner.run(target, sources, drafts[:half], check)
        with self.store.connect() as connection:
            Ledger(connection, DEFAULT_TENANT).end(target.job, "cancelled", "by a test")
        return runner.run(target, sources, drafts[half:], check)


def build_source_sync(store: Postgres, source: Source, settings: Settings = ONE_AT_A_TIME) -> Sync:
    (template,) = [build_sync(settings, store, [])]
    return Sync(
        postgres=store, tenant=template.tenant, collection="default", sources=[source], recipe=template.recipe,
        settings=template.settings,
    )  # fmt: skip


def ledger_row(store: Postgres, job: UUID) -> dict[str, object]:
    with store.connect() as connection:
        return Ledger(connection, DEFAULT_TENANT).job(str(job))


@pytest.mark.slow
def test_a_cancelled_job_writes_nothing_more_and_the_next_sync_does_the_rest(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    begun: list[UUID] = []

    def record_begun(job: UUID, plan: Plan) -> None:
        begun.append(job)

    work = build_sync(ONE_AT_A_TIME, store, [str(folder)])
    with pytest.raises(FencedError, match="was cancelled, or another worker has taken over"):
        work.run(CancelledMidway(store, ONE_AT_A_TIME), record_begun)
    assert ledger_row(store, begun[0])["status"] == "cancelled"
    with store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        counts = ledger.progress(begun[0])
        unreached = ledger.failures(begun[0], "cancelled")
        assert ledger.dead_letters(begun[0]) == sorted(failure["uri"] for failure in unreached)
    assert {name: counts[name] for name in ("completed", "cancelled", "failed", "queued")} == {
        "completed": 3, "cancelled": 3, "failed": 0, "queued": 0,
    }  # fmt: skip
    assert {failure["reason"] for failure in unreached} == {CANCELLED}
    assert len(read_tree(store).documents) == 3
    assert violations(store) == []
    report = build_sync(ONE_AT_A_TIME, store, [str(folder)]).run(build_inline_runner(ONE_AT_A_TIME))
    assert (report.documents["added"], report.documents["completed"]) == (3, 3)
    assert violations(store) == []


@pytest.mark.slow
def test_a_retry_does_only_what_failed(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    flaky = Failing(open_files_source(ONE_AT_A_TIME, str(folder)), frozenset({"1.md", "4.md"}))
    report = build_source_sync(store, flaky).run(build_inline_runner(ONE_AT_A_TIME))
    assert (report.documents["completed"], report.documents["failed"]) == (4, 2)

    again = build_retry_sync(
        ONE_AT_A_TIME, store, ledger_row(store, report.job_id), [f["uri"] for f in report.failures]
    )
    second: SyncReport = again.run(build_inline_runner(ONE_AT_A_TIME))
    assert (second.documents["listed"], second.documents["completed"], second.documents["failed"]) == (2, 2, 0)
    assert read_tree(store).statuses() == dict.fromkeys(TREE, "completed")
    assert violations(store) == []


@pytest.mark.slow
def test_the_command_retries_the_dead_letters_and_nothing_that_failed_for_good(
    rag: CliRunner, store: Postgres, tmp_path: Path
) -> None:
    folder = write(tmp_path / "docs", TREE | {"broken.pdf": "%PDF-1.7\n"})
    flaky = Failing(open_files_source(ONE_AT_A_TIME, str(folder)), frozenset({"1.md", "4.md"}))
    report = build_source_sync(store, flaky).run(build_inline_runner(ONE_AT_A_TIME))
    assert (report.documents["failed"], report.dead_letters) == (3, 2)
    job = str(report.job_id)
    assert json.loads(rag.invoke(app, ["jobs", "show", job, "--json"]).stdout)["counts"]["dead_letters"] == 2

    retried = rag.invoke(app, ["jobs", "retry", job, "--json"])
    assert retried.exit_code == 0
    second = json.loads(retried.stdout)
    assert (second["documents"]["listed"], second["documents"]["completed"], second["dead_letters"]) == (2, 2, 0)
    assert read_tree(store).statuses() == {**dict.fromkeys(TREE, "completed"), "broken.pdf": "failed"}

    again = rag.invoke(app, ["jobs", "retry", job])
    assert again.exit_code == 2
    assert "has no failed documents to retry" in again.stderr


@pytest.mark.slow
def test_a_dead_letter_that_fails_again_stays_one(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    flaky = Failing(open_files_source(ONE_AT_A_TIME, str(folder)), frozenset({"1.md"}))
    first = build_source_sync(store, flaky).run(build_inline_runner(ONE_AT_A_TIME))
    second = build_source_sync(store, flaky).run(build_inline_runner(ONE_AT_A_TIME))
    for report in (first, second):
        with store.connect() as connection:
            letters = Ledger(connection, DEFAULT_TENANT).dead_letters(report.job_id)
        assert letters == [(folder / "1.md").as_uri()]


@pytest.mark.slow
def test_a_retry_does_what_a_cancelled_job_did_not_reach(
    rag: CliRunner, store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, begun = write(tmp_path / "docs", TREE), list[UUID]()
    with pytest.raises(FencedError):
        build_sync(ONE_AT_A_TIME, store, [str(folder)]).run(
            CancelledMidway(store, ONE_AT_A_TIME), lambda job, _: begun.append(job)
        )
    monkeypatch.setenv("RAG_EMBEDDING__MODEL", "no-model-of-that-job")  # today's configuration is not its
    retried = rag.invoke(app, ["jobs", "retry", str(begun[0]), "--json"])
    assert (retried.exit_code, json.loads(retried.stdout)["documents"]["completed"]) == (0, 3)
    assert len(read_tree(store).documents) == len(TREE)


@pytest.mark.slow
def test_a_retry_runs_with_the_configuration_that_the_job_had(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    flaky = Failing(open_files_source(ONE_AT_A_TIME, str(folder)), frozenset({"1.md"}))
    report = build_source_sync(store, flaky).run(build_inline_runner(ONE_AT_A_TIME))
    frozen = settings_from_job(ledger_row(store, report.job_id), hashing_settings("chunking.tokens=17"))
    assert frozen.chunking.tokens == ONE_AT_A_TIME.chunking.tokens != 17


def test_a_job_of_before_a_section_of_settings_is_done_with_todays(store: Postgres) -> None:
    recorded = ONE_AT_A_TIME.model_dump(mode="json", exclude={"guard", "store"})
    frozen = settings_from_job({"id": UUID(int=1), "settings": recorded}, hashing_settings("chunking.tokens=17"))
    assert frozen.chunking.tokens == ONE_AT_A_TIME.chunking.tokens != 17
    assert frozen.guard == hashing_settings().guard
    with pytest.raises(ConfigError, match=r"the settings of job .* break the current rules"):
        settings_from_job({"id": UUID(int=1), "settings": {"chunking": {"type": "none"}}}, hashing_settings())


@pytest.fixture
def rag(store: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    return CliRunner()


@pytest.mark.slow
def test_watching_a_job_that_has_ended_says_how(rag: CliRunner, store: Postgres, tmp_path: Path) -> None:
    report = build_sync(ONE_AT_A_TIME, store, [str(write(tmp_path / "docs", TREE))]).run(
        build_inline_runner(ONE_AT_A_TIME)
    )
    watched = rag.invoke(app, ["jobs", "watch", str(report.job_id)[:8]])
    assert (watched.exit_code, watched.stdout) == (0, "completed\n")


@pytest.mark.slow
def test_a_killed_job_is_interrupted_until_the_next_sync(rag: CliRunner, store: Postgres, tmp_path: Path) -> None:
    work = build_sync(ONE_AT_A_TIME, store, [str(write(tmp_path / "docs", TREE))])
    with store.connect() as connection:  # which goes with its process
        catalog, ledger = Catalog(connection, DEFAULT_TENANT), Ledger(connection, DEFAULT_TENANT)
        collection = catalog.ensure_collection(work.collection)
        sources = catalog.ensure_sources(collection, [source.uri for source in work.sources])
        ledger.claim(collection.id, sources)
        job = ledger.begin(collection.id, sources, work.profile, work.settings, 0, []).id
        assert list_jobs(rag) == [("running", None)]
    wait_until_unlocked(store)
    assert list_jobs(rag) == [("interrupted", None)]
    watched = rag.invoke(app, ["jobs", "watch", str(job)])
    assert (watched.exit_code, watched.stdout) == (1, "interrupted\n")
    work.run(build_inline_runner(ONE_AT_A_TIME))
    assert list_jobs(rag) == [("completed", None), ("failed", "interrupted")]


def list_jobs(rag: CliRunner) -> list[tuple[str, str | None]]:
    rows = json.loads(rag.invoke(app, ["jobs", "list", "--json"]).stdout)
    return [(row["status"], row["reason"]) for row in rows]


@pytest.mark.slow
def test_cancelling_a_job_that_has_ended_changes_nothing(rag: CliRunner, store: Postgres, tmp_path: Path) -> None:
    report = build_sync(ONE_AT_A_TIME, store, [str(write(tmp_path / "docs", TREE))]).run(
        build_inline_runner(ONE_AT_A_TIME)
    )
    cancelled = rag.invoke(app, ["jobs", "cancel", str(report.job_id)])
    assert (cancelled.exit_code, cancelled.stdout) == (0, "completed\n")


@pytest.mark.slow
def test_retrying_a_job_without_failures_ends_with_2(rag: CliRunner, store: Postgres, tmp_path: Path) -> None:
    report = build_sync(ONE_AT_A_TIME, store, [str(write(tmp_path / "docs", TREE))]).run(
        build_inline_runner(ONE_AT_A_TIME)
    )
    retried = rag.invoke(app, ["jobs", "retry", str(report.job_id)])
    assert retried.exit_code == 2
    assert "has no failed documents" in retried.stderr


@pytest.mark.slow
def test_a_job_is_shown_with_the_start_and_the_end_of_its_stages(
    rag: CliRunner, store: Postgres, tmp_path: Path
) -> None:
    report = build_sync(ONE_AT_A_TIME, store, [str(write(tmp_path / "docs", TREE))]).run(
        build_inline_runner(ONE_AT_A_TIME)
    )
    stages = json.loads(rag.invoke(app, ["jobs", "show", str(report.job_id), "--json"]).stdout)["stages"]
    names = [stage["stage"] for stage in stages]
    assert names == ["listing", "working", "finishing", "read", "parse", "scan", "split", "embed"]
    times = {stage["stage"]: (stage["started_at"], stage["finished_at"]) for stage in stages}
    assert all(start <= end for start, end in times.values())
    assert times["listing"][1] <= times["working"][0] <= times["read"][0]
    assert times["embed"][1] <= times["working"][1] <= times["finishing"][0]
    assert [stage["done"] for stage in stages[3:]] == [6] * 5
    lines = rag.invoke(app, ["jobs", "show", str(report.job_id)]).stdout.splitlines()
    assert [line.split()[0] for line in lines[-8:]] == names
    assert lines[-8].split()[2] == "to"
    assert lines[-1].endswith(" s for 6 documents")


@pytest.mark.parametrize(("status", "phase"), [("completed", "done"), ("cancelled", "cancelled"), ("failed", "failed")])
def test_the_last_progress_of_a_job_is_how_it_ended(store: Postgres, tmp_path: Path, status: str, phase: str) -> None:
    target = begin(store, [draft("file:///a.md", "one")])
    terminal = StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    with JobProgress(store, TENANT, console) as progress:
        progress.follow(target.job, 1)
        with store.connect() as connection:
            Ledger(connection, TENANT).end(target.job, status, "by a test")
    phases = {word for word in ("done", "cancelled", "failed") if word in terminal.getvalue()}
    assert phases == {phase}
