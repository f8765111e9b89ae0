"""Routes under the names that existing clients use."""

import pytest

from serve.http.aliases import resolve_alias


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/ingest", "/v1/ingest"),
        ("/query", "/v1/retrieve"),
        ("/v1/query", "/v1/retrieve"),
        ("/api/answer", "/v1/answer"),
        ("/jobs/0b0e/events", "/v1/jobs/0b0e/events"),
        ("/jobs/0b0e", "/jobs/0b0e"),
        ("/query/more", "/query/more"),
        ("/v1/retrieve", "/v1/retrieve"),
        ("/", "/"),
    ],
)
def test_an_alias_is_the_whole_path(path: str, route: str) -> None:
    assert resolve_alias(path) == route
