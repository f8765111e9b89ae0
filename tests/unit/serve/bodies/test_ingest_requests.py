"""What `/v1/ingest` takes and refuses, before anything is stored."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import httpx2
import pytest
from fakes.serving import NOWHERE, scripted_graph
from fastapi import FastAPI
from starlette.requests import Request

from rag_core.errors import DocumentError, SpaceError, UnavailableError, UsageError, error_from_reason
from serve.bodies.fields import MAX_TEXT_BYTES
from serve.bodies.ingest import MAX_DOCUMENTS
from serve.bodies.ingest_requests import (
    MAX_FILE_BYTES,
    ParsedIngest,
    UploadedFile,
    parse_ingest_form,
    parse_ingest_json,
)
from serve.gateway import build_fastapi
from serve.http.request_headers import read_idempotency_key, read_wait_seconds
from serve.profiles import ServedProfiles
from serve.routes.ingest import MAX_JSON_BYTES, MAX_UPLOAD_BYTES

JSON = {"Content-Type": "application/json"}
GOOD = {"id": "keys", "text": "Keys are replaced."}


@cache
def gateway() -> FastAPI:
    """A gateway whose store cannot be reached."""
    return build_fastapi(ServedProfiles(scripted_graph(postgres=NOWHERE)))


def post_ingest(**sent: Any) -> httpx2.Response:
    async def post() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=gateway(), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/ingest", **sent)

    return asyncio.run(post())


def parse_documents(*documents: object) -> ParsedIngest:
    return parse_ingest_json(json.dumps({"documents": documents}).encode())


def parse_upload(*files: tuple[str, bytes], size: int = 0, **fields: str) -> ParsedIngest:
    uploads = [UploadedFile(name=name, media_type="", size=size or len(body), body=body) for name, body in files]
    return parse_ingest_form(fields, uploads)


def pointers(response: httpx2.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


def refusal(document: object) -> tuple[str, str]:
    """Returns the place in the request, and the message."""
    (refused,) = parse_documents(GOOD, document).rejected
    return "/".join(map(str, refused.errors[0]["loc"])), refused.errors[0]["msg"]


def test_a_document_is_its_id_and_without_one_its_uri_and_without_that_its_text() -> None:
    by_id, by_uri, by_text = parse_documents(
        {"id": "keys", "uri": "https://example.org/a", "text": "x"},
        {"uri": "https://example.org/b", "text": "x"},
        GOOD | {"id": ""},
    ).accepted
    assert (by_id.document.id, by_id.document.url) == ("keys", "https://example.org/a")
    assert (by_uri.document.id, by_uri.document.url) == ("https://example.org/b", "https://example.org/b")
    assert by_text.document.id == f"sha256:{sha256(b'Keys are replaced.').hexdigest()}"


def test_a_document_is_taken_as_it_was_given() -> None:
    metadata = {"team": "locks", "pages": 3, "share": 0.5, "draft": False, "tags": ["a", "b"]}
    (taken,) = parse_documents({"text": "Grüße", "title": "A title", "metadata": metadata}).accepted
    assert (taken.document.body, taken.document.title) == ("Grüße".encode(), "A title")
    assert taken.document.metadata == metadata


@pytest.mark.parametrize(
    ("document", "place", "rule"),
    [
        (3, "body/documents/1", "valid dictionary"),
        ({}, "body/documents/1/text", "required"),
        ({"text": ""}, "body/documents/1/text", "must not be blank"),
        ({"text": " \n"}, "body/documents/1/text", "must not be blank"),
        ({"text": "a\x00b"}, "body/documents/1/text", "NUL or lone surrogates"),
        ({"text": "a\ud800b"}, "body/documents/1/text", "NUL or lone surrogates"),
        ({"text": 5}, "body/documents/1/text", "valid string"),
        ({"url": "https://example.org/a"}, "body/documents/1/url", "does not fetch a url"),
        ({"text": "x", "id": "a\x00"}, "body/documents/1/id", "NUL or lone surrogates"),
        ({"text": "x", "id": "a\nb"}, "body/documents/1/id", "single line"),
        ({"text": "x", "id": "é" * 1001}, "body/documents/1/id", "at most 2000 bytes, got 2002"),
        ({"text": "x", "uri": "keys.md"}, "body/documents/1/uri", "must have a scheme"),
        ({"text": "x", "uri": "JavaScript:alert(1)"}, "body/documents/1/uri", "must not be a javascript:"),
        ({"text": "x", "uri": "data:text/html,x"}, "body/documents/1/uri", "must not be a javascript:"),
        ({"text": "x", "uri": "https://a/" + "b" * 2048}, "body/documents/1/uri", "at most 2048"),
        ({"text": "x", "uri": "https://a/" + "é" * 1900}, "body/documents/1/uri", "at most 2000 bytes, got 3810"),
        ({"text": "x", "title": "a\ud800"}, "body/documents/1/title", "NUL or lone surrogates"),
        ({"text": "x", "title": "a" * 1001}, "body/documents/1/title", "at most 1000"),
        ({"text": "x", "name": "y"}, "body/documents/1/name", "Extra inputs"),
        ({"text": "x", "metadata": ["a"]}, "body/documents/1/metadata", "valid dictionary"),
        (
            {"text": "x", "metadata": {str(n): n for n in range(65)}},
            "body/documents/1/metadata",
            "at most 64 keys, got 65",
        ),
        ({"text": "x", "metadata": {"": 1}}, "body/documents/1/metadata", "1 to 128 characters, got 0"),
        ({"text": "x", "metadata": {"k" * 129: 1}}, "body/documents/1/metadata", "1 to 128 characters, got 129"),
        *(
            ({"text": "x", "metadata": {"key": value}}, "body/documents/1/metadata", "'key' of metadata must be")
            for value in (None, {"a": 1}, [1], [["a"]], "a" * 2001, ["a"] * 101, "a\x00", ["a\ud800"], 10**400)
        ),
        ({"text": "x", "metadata": {"k\x00": 1}}, "body/documents/1/metadata", "'k\\x00' of metadata"),
        ({"text": "x", "metadata": {"url": "javascript:x"}}, "body/documents/1/metadata", "address as uri"),
        (GOOD, "body/documents/1", "document 0 has this id too"),
    ],
)
def test_a_document_that_breaks_a_rule_gets_the_name_of_the_rule(document: object, place: str, rule: str) -> None:
    told_place, message = refusal(document)
    assert told_place == place
    assert rule in message


def test_a_text_is_measured_in_bytes() -> None:
    below, above = "é" * (MAX_TEXT_BYTES // 2), "é" * (MAX_TEXT_BYTES // 2) + "!"
    assert parse_documents({"text": below}).rejected == []
    (refused,) = parse_documents({"text": above}).rejected
    assert refused.too_large == "a text must be at most 8 MB, got 8.0; upload it as a file"


def test_a_refused_document_is_named_only_by_what_could_be_an_id() -> None:
    refused = parse_documents(
        {"id": "keys", "text": ""}, {"id": "a\ud800", "text": "x"}, {"id": 3, "text": "x"}, "keys"
    ).rejected
    assert [rejection.id for rejection in refused] == ["keys", "", "", ""]


def test_long_and_strange_keys_are_reported_in_short() -> None:
    (refused,) = parse_documents({"text": "x", **{f"{'k' * 1000}{n}": 1 for n in range(500)}}).rejected
    assert len(refused.errors) == 20
    assert all(len(error["loc"][-1]) <= 80 for error in refused.errors)
    for odd in ({"text": "x", "\ud800": 1}, {"text": "x", "metadata": {"\ud800": 1}}):
        (refused,) = parse_documents(odd).rejected
        json.dumps(refused.errors, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("body", "status", "pointer", "rule"),
    [
        ({}, 422, "#/", "the request must have documents or a source"),
        ({"documents": []}, 422, "#/", "the request must have documents or a source"),
        ([], 422, "#/", "valid dictionary"),
        ({"documents": [GOOD], "unknown": 1}, 422, "#/unknown", "Extra inputs"),
        ({"documents": [GOOD] * (MAX_DOCUMENTS + 1)}, 422, "#/documents", "at most 1000"),
        ({"documents": [GOOD], "collection": "a\x00"}, 422, "#/collection", "NUL"),
        ({"documents": [GOOD], "collection": ""}, 422, "#/collection", "at least 1"),
        ({"documents": [GOOD], "collection": "c" * 201}, 422, "#/collection", "at most 200"),
        (
            {"documents": [GOOD], "profile": "nonsense"},
            422,
            "#/profile",
            "must be one of default",
        ),
        ({"documents": [GOOD], "profile": 3}, 422, "#/profile", "valid string"),
        ({"source": {"type": "web", "locations": ["https://a/"]}}, 422, "#/source/type", "type must be 'files'"),
        ({"source": {"type": "files", "locations": []}}, 422, "#/source/locations", "at least 1"),
        ({"source": {"type": "files", "locations": ["docs/"]}}, 422, "#/source/locations/0", "must be a URI"),
        ({"source": {"type": "files", "locations": ["s3://b/a\x00"]}}, 422, "#/source/locations/0", "NUL"),
        ({"source": {"type": "files", "locations": ["s3://b"] * 101}}, 422, "#/source/locations", "at most 100"),
        ({"source": {"type": "files", "locations": ["s3://b"], "prune": "no"}}, 422, "#/source/prune", "boolean"),
        ({"documents": [{}]}, 422, "#/documents/0/text", "required"),
    ],
)
def test_a_request_that_is_wrong_as_a_whole_is_a_problem(body: object, status: int, pointer: str, rule: str) -> None:
    response = post_ingest(json=body)
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, pointers(response)[0]) == (status, pointer)
    assert rule in response.json()["errors"][0]["detail"]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"documents": NaN}', b"", b"1" * 5000])
def test_a_body_that_is_not_json_is_malformed(body: bytes) -> None:
    response = post_ingest(content=body, headers=JSON)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "malformed")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_another_content_type_is_refused_by_name(kind: str) -> None:
    response = post_ingest(content=b"{}", headers={"Content-Type": kind})
    assert response.status_code == 415
    assert response.json()["detail"].endswith(f"got {kind or 'no content-type'}")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x.v1+json"])
def test_a_body_is_json_under_every_name_of_it(kind: str) -> None:
    assert post_ingest(content=b"{}", headers={"Content-Type": kind}).status_code == 422


def test_documents_that_are_all_refused_are_one_problem_with_all_their_rules() -> None:
    response = post_ingest(json={"documents": [{"text": ""}, {"text": "x", "metadata": {"a": None}}]})
    assert (response.status_code, pointers(response)) == (422, ["#/documents/0/text", "#/documents/1/metadata"])
    response = post_ingest(json={"documents": [{"text": "x" * (MAX_TEXT_BYTES + 1)}]})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_each_of_many_refused_documents_is_reported() -> None:
    response = post_ingest(json={"documents": [{"text": ""}] * 100})
    assert pointers(response) == [f"#/documents/{n}/text" for n in range(100)]


def test_a_body_that_is_too_large_is_refused_whatever_it_says_of_its_size() -> None:
    body = json.dumps({"documents": [{"text": "x"}] * 3, "collection": "x" * MAX_JSON_BYTES}).encode()

    async def pieces() -> Any:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    response = post_ingest(content=pieces(), headers=JSON)
    assert response.status_code == 413
    assert "at most 16 MB" in response.json()["detail"]
    response = post_ingest(content=b"", headers={**JSON, "Content-Length": str(MAX_UPLOAD_BYTES + 1)})
    assert response.status_code == 413


def test_a_valid_request_comes_as_far_as_the_store() -> None:
    assert post_ingest(json={"documents": [GOOD]}).status_code == 503
    assert post_ingest(files=[("files", ("a.md", b"text"))]).status_code == 503


def test_a_file_has_its_name_and_one_whose_name_is_a_uri_has_that_uri() -> None:
    plain, uri, unnamed = parse_upload(("keys.md", b"a"), ("file:///docs/keys.md", b"b"), ("", b"c")).accepted
    assert (plain.document.id, plain.document.url) == ("keys.md", "")
    assert (uri.document.id, uri.document.url) == ("file:///docs/keys.md", "file:///docs/keys.md")
    assert unnamed.document.id == f"sha256:{sha256(b'c').hexdigest()}"


@pytest.mark.parametrize("name", ["javascript://%0aalert(1)", "data://text/html", "a b://c", "c:/docs/keys.md"])
def test_a_name_that_leads_nowhere_safe_is_only_a_name(name: str) -> None:
    (taken,) = parse_upload((name, b"x")).accepted
    assert (taken.document.id, taken.document.url) == (name, "")


def test_every_file_of_a_form_has_its_metadata() -> None:
    first, second = parse_upload(("a", b"a"), ("b", b"b"), metadata='{"team": "locks"}').accepted
    assert first.document.metadata == second.document.metadata == {"team": "locks"}


@pytest.mark.parametrize(
    ("name", "body", "size", "rule"),
    [
        ("a\nb", b"x", 0, "single line"),
        ("a" * 2001, b"x", 0, "at most 2000 bytes, got 2001"),
        ("empty.md", b" \n", 0, "must not be blank"),
        ("large.pdf", b"x", MAX_FILE_BYTES + 1, "at most 50 MB, got 50.0"),
    ],
)
def test_a_file_that_breaks_a_rule_gets_the_name_of_the_rule(name: str, body: bytes, size: int, rule: str) -> None:
    (refused,) = parse_upload((name, body), size=size).rejected
    assert rule in refused.errors[0]["msg"]
    assert bool(refused.too_large) == (size > 0)


@pytest.mark.parametrize(
    ("fields", "files", "status", "place"),
    [
        ({"collection": "a"}, [], 415, ""),
        ({"collection": "a\x00"}, [("files", ("a", b"x"))], 422, "#/collection"),
        ({"unknown": "a"}, [("files", ("a", b"x"))], 422, "#/unknown"),
        ({"metadata": "{"}, [("files", ("a", b"x"))], 400, "#/metadata"),
        ({"metadata": "[]"}, [("files", ("a", b"x"))], 422, "#/metadata"),
        ({"metadata": '{"a": {}}'}, [("files", ("a", b"x"))], 422, "#/metadata"),
        ({}, [("documents", ("a", b"x"))], 422, "#/documents"),
        ({"collection": ["a", "b"]}, [("files", ("a", b"x"))], 422, "#/collection"),
        ({"files": "x"}, [("files", ("a", b"x"))], 422, "#/files"),
    ],
)
def test_a_form_that_is_wrong_as_a_whole_is_a_problem(
    fields: Mapping[str, Any], files: Sequence[Any], status: int, place: str
) -> None:
    response = post_ingest(data=fields, files=files)
    assert response.status_code == status
    assert place in ["", *(error["pointer"] for error in response.json().get("errors", []))]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"no form at all", "Invalid multipart data"),
        (b"--x\r\n\r\n\r\n--x--", "name"),
        (b'--x\r\nContent-Disposition: form-data; name="collection"\r\n\r\ndocs\r\n--x--\r\n', "at least one file"),
        (b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nbroken o', "is truncated"),
        (b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nwhole\r\n--x', "is truncated"),
        (b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nbroken o--x--', "is truncated"),
    ],
)
def test_a_form_that_cannot_be_read_is_a_problem(body: bytes, rule: str) -> None:
    response = post_ingest(content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert 400 <= response.status_code < 500
    assert rule in response.json()["detail"]


WHOLE = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nwhole\r\n--x--'


@pytest.mark.parametrize("epilogue", [b"", b"\r\n", b"\r\nan epilogue\r\n", b"\r\n" + b"e" * 100_000])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_bytes_after_the_end_of_a_form_are_ignored(epilogue: bytes, size: int) -> None:
    async def pieces() -> Any:
        for start in range(0, len(WHOLE), size):
            yield WHOLE[start : start + size]
        yield epilogue

    response = post_ingest(content=pieces(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert response.status_code == 503  # it came as far as the store


@pytest.mark.parametrize(("charset", "status"), [("undefined", 400), ("nonsense", 503)])
def test_a_form_of_a_charset_that_reads_nothing_is_malformed(charset: str, status: int) -> None:
    body = WHOLE.replace(b'"a"', '"\u00e4"'.encode())
    response = post_ingest(
        content=body, headers={"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
    )
    assert response.status_code == status


def test_more_files_than_a_request_can_have_are_refused() -> None:
    response = post_ingest(files=[("files", (f"{n}.md", b"x")) for n in range(MAX_DOCUMENTS + 1)])
    assert response.status_code == 400
    assert "1000" in response.json()["detail"]


def test_the_same_request_has_the_same_fingerprint_however_it_is_written() -> None:
    one = parse_ingest_json(b'{"documents": [{"id": "a", "text": "x"}], "collection": "docs"}')
    same = parse_ingest_json(b'{"collection":"docs","documents":[{"text":"\\u0078","id":"a"}]}')
    other = parse_ingest_json(b'{"documents": [{"id": "a", "text": "y"}], "collection": "docs"}')
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert parse_upload(("a", b"x")).fingerprint == parse_upload(("a", b"x")).fingerprint
    prints = {
        parse_upload(*files).fingerprint
        for files in ([("a", b"x")], [("a", b"y")], [("b", b"x")], [("a", b"x"), ("b", b"x")])
    }
    assert len(prints | {parse_upload(("a", b"x"), collection="docs").fingerprint}) == 5


def header(*values: str, name: str) -> Request:
    return Request({"type": "http", "headers": [(name.encode(), value.encode("latin-1")) for value in values]})


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ('"8e03978e"', "8e03978e"),
        (r'"a \"b\" \\"', r'a "b" \ '.rstrip()),
        ('"' + "a" * 255 + '"', "a" * 255),
    ],
)
def test_an_idempotency_key_is_a_quoted_string_or_a_word(value: str, key: str) -> None:
    assert asyncio.run(read_idempotency_key(header(value, name="idempotency-key"))) == key


def test_a_request_need_not_have_an_idempotency_key() -> None:
    assert asyncio.run(read_idempotency_key(header(name="idempotency-key"))) == ""


@pytest.mark.parametrize(
    "values", [("",), ('""',), ("a b",), ('"a',), ("a" * 256,), ("a", "b"), ("a, b",), ("é",), ('"a\tb"',)]
)
def test_an_invalid_key_is_refused(values: Sequence[str]) -> None:
    with pytest.raises(UsageError, match="Idempotency-Key must be"):
        asyncio.run(read_idempotency_key(header(*values, name="idempotency-key")))


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ((), 0),
        (("wait",), 60),
        (("wait=10",), 10),
        (("Wait = 10",), 10),
        (('respond-async, wait="5"; foo=bar',), 5),
        (("respond-async", "wait=7"), 7),
        (("wait=3, wait=9",), 3),
        (("wait=600",), 60),
        (("wait=" + "9" * 5000,), 60),
        (("wait=0",), 0),
        (("wait=",), 0),
        (("wait=soon",), 0),
        (("wait=-1",), 0),
        (("waiting=5",), 0),
    ],
)
def test_the_time_to_wait_is_read_as_rfc_7240_defines_it(values: Sequence[str], seconds: int) -> None:
    assert read_wait_seconds(header(*values, name="prefer")) == seconds


def test_the_reason_of_a_job_names_its_failure() -> None:
    failure = error_from_reason("SpaceError: collection 'a' is embedded with another model: x")
    assert (type(failure), str(failure)) == (SpaceError, "collection 'a' is embedded with another model: x")
    for reason in ("interrupted", "KeyError: 'x'", "StageTimeoutError: x", "Literal: x", "DocumentError: parse: x"):
        assert (type(error_from_reason(reason)), str(error_from_reason(reason))) == (UnavailableError, reason)
    assert not isinstance(error_from_reason("DocumentError: x"), DocumentError)
