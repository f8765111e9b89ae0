"""The door over HTTP: when it sends a search again, and what it raises otherwise."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
import stamina

import integrations.doors
from integrations.doors import HttpDoor, Search, open_door
from rag_core.errors import UnavailableError, UsageError
from rag_core.wire.responses import API_KEY_VARIABLE

EMPTY = {
    "id": "ret_1",
    "object": "retrieval",
    "query": "keys",
    "standalone_query": "keys",
    "results": [],
    "profile": {"name": "default", "selected_by": "default"},
    "partial": True,
    "degraded": ["bm25"],
    "degraded_reasons": {"bm25": "too slow"},
    "timings_ms": {},
    "next_cursor": None,
    "pipeline_version": "default:v1+00000000",
}
KEYS = Search(question="keys", k=3)


@pytest.fixture(autouse=True)
def no_waits() -> Iterator[None]:
    """Retries without waiting, and with as many attempts as the door has."""
    with stamina.set_testing(True, attempts=4):
        yield


def script_door(*steps: httpx2.Response | Exception, key: str = "") -> tuple[HttpDoor, list[httpx2.Request]]:
    """A door whose gateway takes one step after the other, and the requests that it receives."""
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        step = steps[len(requests) - 1]
        if isinstance(step, Exception):
            raise step
        return step

    return HttpDoor("http://gateway", key, transport=httpx2.MockTransport(respond)), requests


def busy(status: int, seconds: int) -> httpx2.Response:
    return httpx2.Response(status, json={"detail": "busy"}, headers={"Retry-After": str(seconds)})


def test_a_search_is_sent_again_after_a_lost_connection_and_while_the_gateway_is_busy() -> None:
    lost = httpx2.ConnectError("refused")
    door, requests = script_door(lost, busy(503, 1), busy(429, 60), httpx2.Response(200, json=EMPTY), key="rk_1")
    assert door.search(KEYS) == []
    assert len(requests) == 4
    assert {request.headers["Authorization"] for request in requests} == {"Bearer rk_1"}
    assert {request.content for request in requests} == {b'{"query":"keys","top_k":3,"collection":"default"}'}


@pytest.mark.parametrize(
    ("step", "error", "attempts"),
    [
        (busy(503, 61), UnavailableError, 1),
        (busy(503, 1), UnavailableError, 4),
        (httpx2.Response(502, json={"detail": "no model"}), UnavailableError, 1),
        (httpx2.Response(422, json={"detail": "query must not be empty"}), UsageError, 1),
        (httpx2.ReadTimeout("slow"), UnavailableError, 1),
        (httpx2.ConnectError("refused"), UnavailableError, 4),
    ],
)
def test_a_search_that_cannot_succeed_is_not_sent_again(
    step: httpx2.Response | Exception, error: type[Exception], attempts: int
) -> None:
    door, requests = script_door(*[step] * 4)
    with pytest.raises(error):
        door.search(KEYS)
    assert len(requests) == attempts


def test_stages_that_failed_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    script_door(httpx2.Response(200, json=EMPTY))[0].search(KEYS)
    assert "the search went on without stage bm25: too slow" in caplog.text


@pytest.mark.parametrize(
    ("open_invalid", "message"),
    [
        (lambda: HttpDoor("http://[::"), "url must be a URL"),
        (lambda: HttpDoor("http://gateway", "rk_\u20ac"), "the API key must have printable ASCII"),
        (lambda: Search(question="keys", k=101), r"k must be in \[1, 100\], got 101"),
    ],
)
def test_a_wrong_value_is_an_error_at_once(open_invalid: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_invalid()


def test_a_source_is_opened_by_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "rk_environment")
    door = script_door()[0]
    assert open_door(door) is door
    with patch.object(integrations.doors, "HttpDoor") as opened:
        open_door("https://gateway")
        open_door("https://gateway", "rk_given")
    assert [call.kwargs["api_key"] for call in opened.call_args_list] == ["rk_environment", "rk_given"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "module", "extra"),
    [
        ("langchain_core", "integrations.langchain", "langchain"),
        ("llama_index", "integrations.llamaindex", "llamaindex"),
        ("haystack", "integrations.haystack", "haystack"),
    ],
)
def test_a_missing_library_is_an_error_that_names_the_extra(library: str, module: str, extra: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; import {module}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.strip().splitlines()[-1] == (
        f"rag_core.errors.MissingExtraError: the extra [{extra}] is not installed: pip install 'rag-on-ray[{extra}]'"
    )
