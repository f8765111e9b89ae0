"""`/v1/evaluations`: the runs in RAG_HOME, by tenant."""

import os
from pathlib import Path
from typing import Any

import gateways
import httpx2
import pytest
from fakes.serving import scripted_graph
from run_folders import write_run_folder

from jobs.promotion import promote_run
from serve.authentication.caller import Caller

PAGE = "<!doctype html><title>harbour</title>"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAG_HOME", str(tmp_path))
    return tmp_path


def get(path: str, who: Caller | None = None, **headers: str) -> httpx2.Response:
    graph = scripted_graph()
    return gateways.run_with_gateway(graph, lambda client: client.get(path, headers=headers), who)


def write_run(home: Path, id: str, seconds: int, **description: Any) -> Path:
    """A run that was finished at this number of seconds."""
    folder = write_run_folder(home / "runs" / id, [0.5], **description)
    os.utime(folder / "report.json", (seconds, seconds))
    return folder


def test_runs_are_listed_newest_first_and_page_by_page(home: Path) -> None:
    for n, id in enumerate(("nightly/harbour", "old", "nightly/quay")):
        write_run(home, id, 1_700_000_000 + n, questions=13, coverage=0.97, pipeline_version="v1")
    first = get("/v1/evaluations?limit=2").json()
    assert [run["id"] for run in first["data"]] == ["nightly/quay", "old"]
    second = get(f"/v1/evaluations?limit=2&cursor={first['next_cursor']}").json()
    assert second == {
        "data": [
            {
                "id": "nightly/harbour",
                "dataset": "seals",
                "split": "test",
                "profile": "default",
                "pipeline_version": "v1",
                "created_at": "2023-11-14T22:13:20Z",
                "questions": 13,
                "coverage": 0.97,
                "promoted": False,
            }
        ],
        "next_cursor": None,
        "has_more": False,
    }


def test_a_promoted_run_is_marked(home: Path) -> None:
    digest = promote_run(write_run(home, "candidate", 1_700_000_000))
    runs = {run["id"]: run["promoted"] for run in get("/v1/evaluations").json()["data"]}
    assert runs == {digest: True, "candidate": False}


def test_a_promoted_run_has_the_time_at_which_it_was_finished(home: Path) -> None:
    promote_run(write_run(home, "candidate", 1_700_000_000, finished="2026-11-01T06:00:00+00:00"))
    times = [run["created_at"] for run in get("/v1/evaluations").json()["data"]]
    assert times == ["2026-11-01T06:00:00Z", "2026-11-01T06:00:00Z"]


def test_an_unfinished_copy_of_a_promotion_is_not_a_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(home, "candidate", 1_700_000_000)
    monkeypatch.setattr(Path, "rename", lambda self, _target: self)
    promote_run(run)
    assert [run["id"] for run in get("/v1/evaluations").json()["data"]] == ["candidate"]


def test_a_run_has_its_report_without_places_of_the_server(home: Path) -> None:
    places = {"run": "/home/me/runs", "machine": "x86", "command": "rag evaluate /home/me/harbour"}
    write_run(home, "nightly/harbour", 1_700_000_000, lost={"store": 1}, **places)
    body = get("/v1/evaluations/nightly/harbour").json()
    assert (body["id"], body["report"]["lost"]) == ("nightly/harbour", {"store": 1})
    assert places.keys().isdisjoint(body["report"])


def test_a_browser_gets_the_page_of_a_run_if_it_has_one(home: Path) -> None:
    folder = write_run(home, "harbour", 1_700_000_000)
    assert get("/v1/evaluations/harbour", accept="text/html,*/*;q=0.8").headers["content-type"] == "application/json"
    (folder / "report.html").write_text(PAGE)
    page = get("/v1/evaluations/harbour", accept="text/html,*/*;q=0.8")
    assert page.text == PAGE
    assert "sandbox allow-scripts" in page.headers["content-security-policy"]
    assert get("/v1/evaluations/harbour").json()["id"] == "harbour"


def test_runs_of_other_tenants_and_other_places_do_not_exist(home: Path) -> None:
    write_run(home, "theirs", 1_700_000_000, tenant="other")
    (home / "runs" / "half").mkdir()
    (home / "runs" / "half" / "report.json").write_text('{"dataset":')
    (home / "report.json").write_text('{"dataset": "secret", "split": "test", "profile": "default"}')
    assert get("/v1/evaluations").json()["data"] == []
    assert [run["id"] for run in get("/v1/evaluations", Caller(tenant="other")).json()["data"]] == ["theirs"]
    for id in ("theirs", "half", "none", "..", "%2e%2e", ""):
        problem = get(f"/v1/evaluations/{id}") if id else get("/v1/evaluations/none/")
        assert (problem.status_code, problem.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(("path", "status"), [("/v1/evaluations?limit=0", 422), ("/v1/evaluations?cursor=x", 422)])
def test_other_requests_are_problems(home: Path, path: str, status: int) -> None:
    assert get(path).status_code == status
