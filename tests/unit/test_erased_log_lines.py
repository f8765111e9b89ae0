"""Lines that are erased from log files."""

import json
from pathlib import Path

import pytest

from jobs.log_lines import erase_lines, find_log_files, mark_tenant, mark_texts
from rag_core.telemetry.logs import query_hash

QUESTION = 'who said "hello there"?'
LINES = [
    json.dumps({"tenant": "acme", "query": QUESTION}),
    json.dumps({"tenant": "acme", "query": query_hash(QUESTION)}),
    json.dumps({"tenant": "acme", "query": "who?"}),
    json.dumps({"tenant": "acme-2", "query": "another"}),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.log"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_lines_that_quote_a_text_or_its_hash_are_erased(log: Path) -> None:
    count = erase_lines(log, mark_texts({QUESTION}), dry_run=False)
    assert (count.found, count.left) == (2, 0)
    assert log.read_text().splitlines() == LINES[2:]


def test_a_short_text_is_recognized_by_its_hash_only(log: Path) -> None:
    assert erase_lines(log, mark_texts({"who?"}), dry_run=False).found == 0


def test_the_lines_of_a_tenant_are_not_those_of_a_tenant_with_a_longer_name(log: Path) -> None:
    assert erase_lines(log, mark_tenant("acme"), dry_run=False).found == 3
    assert log.read_text().splitlines() == LINES[3:]


def test_a_dry_run_only_counts(log: Path) -> None:
    count = erase_lines(log, mark_tenant("acme"), dry_run=True)
    assert (count.found, count.left) == (3, 3)
    assert log.read_text().splitlines() == LINES


def test_a_process_that_has_the_file_open_appends_after_the_lines_that_are_left(log: Path) -> None:
    with log.open("a") as writer:
        erase_lines(log, mark_tenant("acme"), dry_run=False)
        writer.write("the next line\n")
    assert log.read_text().splitlines() == [LINES[3], "the next line"]


def test_log_files_are_those_of_the_store_and_of_all_sessions_of_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    session = tmp_path / "ray" / "session_1"
    names = ["home/logs/ray-driver.log", "home/postgres/log", "ray/session_1/logs/serve/access-7.log.1"]
    for name in [*names, "home/postgres/base/1", "ray/session_1/logs/note.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "ray" / "session_latest").symlink_to(session)
    (tmp_path / "other.log").write_text("")
    (session / "logs" / "link.log").symlink_to(tmp_path / "other.log")
    assert [str(file.relative_to(tmp_path)) for file in find_log_files()] == names
