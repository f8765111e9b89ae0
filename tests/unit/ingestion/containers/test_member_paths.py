import pytest

from rag_core.ingestion.containers.member_paths import assign_paths, normalize_path
from rag_core.ingestion.containers.uris import container_uri, enclosing_uris, file_uri, member_uri


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("guides/keys.md", "guides/keys.md"),
        ("guides\\keys.md", "guides/keys.md"),
        ("/etc/passwd", "etc/passwd"),
        ("../../etc/./passwd", "etc/passwd"),
        ("u\u0308ber.md", "\u00fcber.md"),
        ("..", ""),
        ("__MACOSX/keys.md", ""),
        ("guides/.DS_Store", ""),
        ("guides/._keys.md", ""),
    ],
)
def test_a_path_is_relative_and_in_nfc(name: str, path: str) -> None:
    assert normalize_path(name) == path


def test_a_very_long_path_is_shortened_and_keeps_its_suffix() -> None:
    path = normalize_path("deep/" * 1000 + "keys.md")
    assert len(path) < 130
    assert path.endswith("-keys.md")


def test_names_with_the_same_path_get_distinct_ones() -> None:
    names = ["a/keys.md", "a\\keys.md", "/a/keys.md", "a/keys (2).md"]
    assert assign_paths(names) == {
        "a/keys.md": "a/keys.md",
        "a/keys (2).md": "a\\keys.md",
        "a/keys (3).md": "/a/keys.md",
        "a/keys (2) (2).md": "a/keys (2).md",
    }


def test_a_uri_names_each_container_that_a_member_is_in() -> None:
    inner = member_uri("file:///docs/a.zip", "b.tar.gz")
    uri = member_uri(inner, "wow!/50% c.md")
    assert uri == "file:///docs/a.zip!/b.tar.gz!/wow%21/50%25%20c.md"
    assert list(enclosing_uris(uri)) == [inner, "file:///docs/a.zip"]
    assert (container_uri(uri), file_uri(uri)) == (inner, "file:///docs/a.zip")


def test_a_folder_that_only_ends_with_an_exclamation_mark_is_not_a_container() -> None:
    assert container_uri("s3://bucket/docs!/keys.md") == ""
    assert file_uri("s3://bucket/docs!/keys.md") == "s3://bucket/docs!/keys.md"
