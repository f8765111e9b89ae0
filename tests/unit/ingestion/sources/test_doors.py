"""What requests can name as a source, and what they cannot reach."""

import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.doors import SECRET, Watch, serve_secrets, try_all, watch_network
from rag_core.errors import DocumentError, LocationError
from rag_core.ingestion.sources.addresses import is_allowed_address
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.sources.location_rules import LocationRules


def open_source(location: str, *allowed: str, private_networks: bool = False) -> FilesSource:
    return FilesSource.open(location, (), (), True, 1.0, LocationRules(allowed, private_networks))


def test_no_form_of_a_forbidden_address_or_file_reaches_its_target() -> None:
    attempts = try_all()
    assert len(attempts) >= 150
    assert [(attempt.form, attempt.got) for attempt in attempts if attempt.reached] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of fsspec's FTP
def test_without_rules_forms_of_every_kind_reach_their_target() -> None:
    reached = Counter(attempt.form.kind for attempt in try_all(guarded=False) if attempt.reached)
    assert set(reached) == {"loopback", "network", "disguised", "redirect", "chain", "scheme", "file"}
    assert sum(reached.values()) >= 80


@pytest.mark.parametrize("address", ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "2a00:1450:4001:830::200e"])
def test_a_public_address_is_allowed(address: str) -> None:
    assert is_allowed_address(address, private_networks=False)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.8.9.1",
        "172.16.0.1",
        "172.31.0.1",
        "192.168.9.1",
        "::1",
        "fd12:3456::1",
    ],
)
def test_a_private_address_is_allowed_only_by_the_setting(address: str) -> None:
    assert [is_allowed_address(address, allowed) for allowed in (False, True)] == [False, True]


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.1", "0.1.2.3", "100.100.100.200", "168.63.129.16", "169.254.169.254", "169.254.0.1", "192.0.0.192"),
        *("192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
        *("239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:1.1.1.1"),
        *("::ffff:0:127.0.0.1", "64:ff9b::1.1.1.1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::"),
        *("2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1"),
        *("fe80::1%eth0", "fec0::1", "ff02::1", "localhost", ""),
    ],
)
def test_metadata_reserved_and_embedded_addresses_are_never_allowed(address: str) -> None:
    assert [is_allowed_address(address, allowed) for allowed in (False, True)] == [False, False]


@pytest.mark.parametrize("allowed", ["{}", "{}/", "file://{}", "file://localhost{}/"])
def test_an_allowed_folder_is_read_and_its_parent_is_not(tmp_path: Path, allowed: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a b.md").write_bytes(b"Keys")
    source = open_source((tmp_path / "docs").as_uri(), allowed.format(tmp_path / "docs"))
    assert [source.read(entry) for entry in source.listing()] == [b"Keys"]
    assert open_source(f"{tmp_path.as_uri()}/docs/a%20b.md", allowed.format(tmp_path / "docs")).uri.endswith("a%20b.md")
    with pytest.raises(LocationError, match=r"must be under one of ingestion.allowed_locations, got 'file://"):
        open_source(tmp_path.as_uri(), allowed.format(tmp_path / "docs"))


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="allowed_locations is empty"):
        open_source(tmp_path.as_uri())


def test_a_folder_that_became_a_link_after_it_was_opened_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "docs/inner").mkdir(parents=True)
    (tmp_path / "docs/inner/a.md").write_bytes(b"Keys")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.md").write_bytes(SECRET)
    source = open_source(f"{tmp_path.as_uri()}/docs/inner", str(tmp_path / "docs"))
    (entry,) = source.listing()
    (tmp_path / "docs/inner/a.md").unlink()
    (tmp_path / "docs/inner").rmdir()
    (tmp_path / "docs/inner").symlink_to(tmp_path / "outside")
    with pytest.raises(LocationError):
        source.read(entry)
    with pytest.raises(LocationError):
        list(source.listing())


@pytest.mark.parametrize(
    ("allowed", "location", "is_allowed"),
    [
        ("s3://bucket/docs", "s3://bucket/docs", True),
        ("s3://bucket/docs", "s3://bucket/docs/a/Übersicht.md", True),
        ("s3://bucket/docs/", "s3://bucket/docs", False),
        ("s3://bucket/docs", "s3://bucket/docs-2", False),
        ("s3://bucket/docs", "s3://bucket", False),
        ("s3://bucket/docs", "s3://bucket/docs/../secret", False),
        ("s3://bucket", "s3://bucket/docs", True),
        ("s3://bucket", "s3://bucket2/docs", False),
        ("s3://bucket", "gs://bucket/docs", False),
        ("s3://", "s3://any/thing", True),
        ("https://docs.example/a", "https://docs.example/a/b?c=d", True),
        ("https://docs.example/a", "https://DOCS.example:443/a", True),
        ("https://docs.example/a", "http://docs.example/a", False),
        ("https://docs.example/a", "https://docs.example:8443/a", False),
        ("https://docs.example:8443", "https://docs.example:8443/a", True),
        ("https://", "https://any.example/a", True),
        ("https://", "https://any.example:8443/a", False),
        ("/srv", "s3://srv/a", False),
    ],
)
def test_a_location_is_allowed_under_a_prefix_with_the_same_scheme_host_and_port(
    allowed: str, location: str, is_allowed: bool
) -> None:
    rules = LocationRules((allowed,))
    if is_allowed:
        rules.check(location)
    else:
        with pytest.raises(LocationError, match="location must"):
            rules.check(location)


def test_a_redirect_within_the_prefix_is_followed() -> None:
    with watch_network() as watch, serve_secrets(watch) as (port, _):
        base = f"http://127.0.0.1:{port}"
        open_source(f"{base}/redirect?{b'/docs/a'.hex()}", f"{base}/", private_networks=True)
        assert "/docs/a" in watch.pages


def test_a_redirect_out_of_the_prefix_is_not_followed() -> None:
    with watch_network() as watch, serve_secrets(watch) as (port, _):
        base = f"http://127.0.0.1:{port}"
        with pytest.raises(LocationError, match="redirects or links to a location"):
            open_source(f"{base}/redirect?{b'/other'.hex()}", f"{base}/redirect", private_networks=True)
        assert {page.partition("?")[0] for page in watch.pages} == {"/redirect"}


def test_a_name_that_becomes_private_after_it_was_checked_is_not_connected_to() -> None:
    """The first answer of `rebound.example` is public, each later one is loopback."""
    with watch_network() as watch:
        for _ in range(3):
            with pytest.raises(Exception, match=r"does not exist|public address"):
                open_source("http://rebound.example/", "http://rebound.example/")
        assert set(watch.addresses) == {"93.184.215.14"}


def test_an_http_file_that_is_refused_while_it_is_read_fails_alone() -> None:
    with watch_network() as watch, serve_secrets(watch) as (port, _):
        location = f"http://127.0.0.1:{port}/page"
        source = open_source(location, location, private_networks=True)
        (entry,) = source.listing()
        assert source.read(entry) == SECRET
        refused = FilesSource(location, (), (), True, 1.0, LocationRules((location,), private_networks=False))
        with pytest.raises(DocumentError, match="the host must be at a public address") as failure:
            refused.read(entry)
        assert not failure.value.retryable


def test_messages_name_neither_the_allowed_locations_nor_resolved_paths_and_addresses(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "hidden-target").mkdir()
    (tmp_path / "docs/link").symlink_to(tmp_path / "hidden-target")
    cases: list[Callable[[], object]] = [
        lambda: open_source(f"{tmp_path.as_uri()}/docs/link", str(tmp_path / "docs")),
        lambda: open_source("http://spoofed.example/", "http://spoofed.example/"),
        lambda: open_source("s3://a/b", "s3://unknown-to-callers/docs"),
    ]
    for case in cases:
        with watch_network(), pytest.raises(LocationError) as failure:
            case()
        assert not any(word in str(failure.value) for word in ("hidden-target", "127.0.0.1", "unknown-to-callers"))


def test_the_watch_itself_sees_a_connection() -> None:
    with watch_network() as watch, serve_secrets(Watch()) as (port, _):
        socket.create_connection(("127.0.0.1", port)).close()
        assert watch.addresses == ["127.0.0.1"]
