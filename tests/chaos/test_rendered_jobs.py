"""The jobs of the rendered chart, run as its pods would run them: on a standing Ray cluster, with Postgres."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from containers import Container, needs_namespaces
from installed_release import HIDDEN, InstalledRelease, find_manifest, install_release, render_manifests
from kubernetes_pods import RayPods, start_ray_pods
from trees import read_tree, violations, write
from waiting import wait_until

from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.storage.postgres import Postgres

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.postgres,
    pytest.mark.timeout(900),
    needs_namespaces,
]

VALUES = """
settings:
  embedding: {type: hashing}
  answering: {budget: none}
  retrieval: {timeout_ms: 60000}
  store: {patience_s: 60}
jobs:
  runs:
    first-ingest: {command: ingest, args: [/srv/sources/docs, --collection, handbook]}
  schedules:
    nightly: {args: [/srv/sources/docs, --collection, handbook]}
"""
"""Changes of the example `jobs`: a volume in place of the bucket, no models, and time limits for any machine."""
DOCUMENTS, QUESTIONS = 20, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRelease:
    """A release with its cluster for jobs, and the folder of its volume."""

    installed: InstalledRelease
    sources: Path
    ray: RayPods

    @property
    def store(self) -> Postgres:
        return self.installed.store

    def run_schedule(self, name: str, **changes: Any) -> Container:
        """Starts the pod of a CronJob, as at its time. `changes`: of the values of the schedule."""
        manifests = render_manifests("jobs", VALUES, {"jobs": {"schedules": {name: changes}}})
        spec = find_manifest(manifests, "CronJob", f"rag-{name}")["spec"]
        return self.installed.namespace.run(name, spec["jobTemplate"]["spec"]["template"])

    def list_statuses(self) -> dict[str, str]:
        """The status of each document of the collection, by file name."""
        return read_tree(self.store, "handbook").statuses()

    @contextmanager
    def block_publishing(self) -> Iterator[None]:
        """Lets jobs read the store, but not write documents."""
        with psycopg.connect(self.store.dsn) as connection:
            connection.execute("lock table rag.documents in exclusive mode")
            yield

    def is_job_ending(self) -> bool:
        """True while a job that ends waits for the documents that it writes."""
        with psycopg.connect(self.store.dsn) as connection:
            waiting = "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'"
            return bool(connection.execute(waiting).fetchall())


@pytest.fixture(scope="module")
def release(short_folder: Path) -> Iterator[JobsRelease]:
    manifests = render_manifests("jobs", VALUES)
    folder = short_folder / f"pods-{uuid4().hex[:6]}"
    sources = write_sources(short_folder / f"sources-{uuid4().hex[:6]}")
    with install_release(folder, manifests, {"shared-documents": sources}) as installed:
        ray = start_ray_pods(installed.namespace, "rag-jobs", installed.find("RayCluster", "rag-jobs")["spec"])
        yield JobsRelease(installed=installed, sources=sources, ray=ray)


def write_sources(folder: Path) -> Path:
    write(folder / "docs", {f"{n}.md": f"# Gate {n}\n\nGate {n} opens at {n % 12}." for n in range(DOCUMENTS)})
    corpus = [
        CorpusDocument(id=f"gate-{n}", title=f"Gate {n}", text=f"Gate {n} opens at {n}.") for n in range(QUESTIONS)
    ]
    questions = [
        Question(id=f"q{n}", text=f"When does gate {n} open?", grades={f"gate-{n}": 1}) for n in range(QUESTIONS)
    ]
    write_dataset(folder / "questions", corpus, questions)
    return folder


def test_the_hook_of_an_upgrade_creates_the_tables(release: JobsRelease) -> None:
    hook = release.installed.find("Job", "rag-migrate")
    migrate = release.installed.namespace.run("migrate", hook["spec"]["template"])
    assert migrate.wait() == 0, migrate.read_log()
    assert violations(release.store) == []


def test_a_run_ingests_and_a_schedule_syncs_what_has_changed(release: JobsRelease) -> None:
    run = release.installed.find("RayJob", "rag-first-ingest-.*")
    submission, submitter = release.ray.submit(run)
    assert submitter.wait() == 0, submitter.read_log()
    assert release.ray.read_job(submission)["status"] == "SUCCEEDED"
    assert release.list_statuses() == {f"{n}.md": "completed" for n in range(DOCUMENTS)}
    write(release.sources / "docs", {"new.md": "# New\n\nThe new gate opens at 9."})
    nightly = release.run_schedule("nightly")
    assert nightly.wait() == 0, nightly.read_log()
    assert "1 added, 0 changed, 0 deleted, 20 unchanged" in nightly.read_log()
    assert len(release.list_statuses()) == DOCUMENTS + 1
    assert violations(release.store) == []


def test_a_submitter_that_starts_again_follows_the_job_that_it_had_submitted(release: JobsRelease) -> None:
    run = release.installed.find("RayJob", "rag-first-ingest-.*")
    submission, submitter = release.ray.submit(run)
    assert submitter.wait() == 0, submitter.read_log()
    _, again = release.ray.submit(run, submission)
    assert again.wait() == 0, again.read_log()
    assert "submitted successfully" not in again.read_log()
    assert f"'{submission}' succeeded" in again.read_log()


def test_the_schedule_of_an_evaluation_measures_again_and_again(release: JobsRelease) -> None:
    """The workers do not see the folder in which the head writes the corpus."""
    for _ in range(2):
        quality = release.run_schedule("quality")
        assert quality.wait() == 0, quality.read_log()
    report = json.loads(release.ray.head.execute("cat", "/tmp/quality/report.json").stdout)  # noqa: S108 - of the pod
    assert report["answers"]["questions"] == QUESTIONS
    assert report["answers"]["failures"] == report["failures"] == []
    assert report["stages"]["final"]["measures"]["success@5"]["mean"] > 0.9


def test_a_run_that_overlaps_with_another_ends_with_an_error_and_changes_nothing(release: JobsRelease) -> None:
    write(release.sources / "docs", {"overlap.md": "# Overlap\n\nThis gate opens at 10."})
    with release.block_publishing():
        first = release.run_schedule("nightly")
        wait_until(lambda: "1 added" in first.read_log(), 300)
        second = release.run_schedule("nightly")
        assert second.wait() == 1
        assert "error: another job is running on this source" in second.read_log()
        assert "failed with exit code 3" in second.read_log()
    assert first.wait() == 0, first.read_log()
    assert release.list_statuses()["overlap.md"] == "completed"


def test_a_job_that_fails_is_a_failure_of_its_pod(release: JobsRelease) -> None:
    nightly = release.run_schedule("nightly", args=["/srv/sources/absent"])
    assert nightly.wait() == 1
    assert "error: '/srv/sources/absent' cannot be used as a source" in nightly.read_log()


def test_a_run_that_fails_has_the_status_that_the_operator_reads(release: JobsRelease) -> None:
    """The pod of the submitter succeeds: it only prints the logs."""
    changes = {"jobs": {"runs": {"first-ingest": {"args": ["/srv/sources/absent"]}}}}
    run = find_manifest(render_manifests("jobs", VALUES, changes), "RayJob", "rag-first-ingest-.*")
    submission, submitter = release.ray.submit(run)
    submitter.wait()
    job = release.ray.read_job(submission)
    assert (job["status"], job["driver_exit_code"]) == ("FAILED", 2)


def test_a_deadline_ends_the_job_and_not_only_the_pod_that_follows_it(release: JobsRelease) -> None:
    write(release.sources / "docs", {"late.md": "# Late\n\nThis gate opens at 11."})
    with release.block_publishing():
        nightly = release.run_schedule("nightly", activeDeadlineSeconds=30)
        wait_until(release.is_job_ending, 300)
    assert nightly.wait() == 1
    assert "error: stopped by SIGTERM" in nightly.read_log()
    assert "Traceback" not in nightly.read_log()
    [job] = [job for job in release.ray.list_jobs() if " 30 python" in job["entrypoint"]]
    assert (job["status"], job["driver_exit_code"]) == ("FAILED", 124)
    assert release.run_schedule("nightly").wait() == 0
    assert release.list_statuses()["late.md"] == "completed"


def test_the_probes_of_all_nodes_succeed(release: JobsRelease) -> None:
    groups = [release.ray.spec["headGroupSpec"], *release.ray.spec["workerGroupSpecs"]]
    for group, pod in zip(groups, (release.ray.head, *release.ray.workers), strict=True):
        container = group["template"]["spec"]["containers"][0]
        for probe in ("livenessProbe", "readinessProbe"):
            request = container[probe]["httpGet"]
            assert pod.status(request["port"], request["path"]) == 200, (pod.name, probe)


def test_no_secret_is_in_a_command_line_a_job_or_a_log(release: JobsRelease) -> None:
    texts = {"jobs": json.dumps(release.ray.list_jobs())}
    for pod in (release.ray.head, *release.ray.workers):
        texts |= {f"processes of {pod.name}": "\n".join(pod.command_lines())}
    logs = [path for path in release.installed.namespace.network.folder.rglob("*") if path.is_file() and is_log(path)]
    texts |= {str(path): path.read_text(errors="replace") for path in logs}
    assert len(logs) > 30
    assert [(name, secret) for name, text in texts.items() for secret in HIDDEN if secret in text] == []


def is_log(path: Path) -> bool:
    """True for what pods print and for what Ray writes."""
    return path.name == "log" or "logs" in path.parts
