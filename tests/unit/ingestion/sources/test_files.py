import cProfile
import errno
import os
import shutil
import socket
from pathlib import Path

import fsspec
import pytest

from rag_core.errors import DocumentError, ListingError, SourceError, TransientError
from rag_core.ingestion.sources.files import FilesSource
from rag_core.types import Entry


def source(
    location: object,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = ("**/.git/**",),
    recursive: bool = True,
) -> FilesSource:
    return FilesSource.open(str(location), include, exclude, recursive, file_mb=1.0)


def names(listed: FilesSource) -> list[str]:
    return [entry.uri.removeprefix(listed.uri + "/") for entry in listed.listing()]


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_a_folder_lists_its_files_in_order_with_size_and_times(tmp_path: Path) -> None:
    write(tmp_path, "b/two.md", "a.md", "c.md")
    files = source(tmp_path)
    assert files.uri == tmp_path.as_uri()
    assert names(files) == ["a.md", "b/two.md", "c.md"]
    facts = (tmp_path / "a.md").stat()
    first = next(files.listing())
    assert first == Entry(
        uri=(tmp_path / "a.md").as_uri(), size=4, modified_ns=facts.st_mtime_ns, changed_ns=facts.st_ctime_ns
    )
    assert files.read(first) == b"a.md"


@pytest.mark.parametrize("name", [b"line\nbreak.md", b"\xff\xfe.md", "größe %41 #?.md".encode(), b" ~ .md"])
def test_an_odd_name_survives_the_way_through_its_uri(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    Path(os.fsdecode(path)).write_bytes(b"body")
    [entry] = source(tmp_path).listing()
    assert entry.uri == Path(os.fsdecode(path)).as_uri()
    assert entry.uri.isascii()
    assert "\n" not in entry.uri
    assert source(tmp_path).read(entry) == b"body"
    assert [listed.uri for listed in source(entry.uri).listing()] == [entry.uri]


def test_one_file_is_a_source_whatever_the_globs_say(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    one = source(tmp_path / "a.md", include=("*.txt",))
    [entry] = one.listing()
    assert entry.uri == one.uri == (tmp_path / "a.md").as_uri()
    assert one.read(entry) == b"a.md"


def test_a_tilde_and_a_file_uri_name_the_same_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "docs/a.md")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source("~/docs") == source(f"{tmp_path.as_uri()}/docs/") == source(tmp_path / "x" / ".." / "docs")


def test_globs_choose_and_prune_at_any_depth(tmp_path: Path) -> None:
    write(tmp_path, ".git/config.md", "x/.git/a.md", "a.md", "b.txt", "drafts/c.md", "docs/d.md")
    assert names(source(tmp_path)) == ["a.md", "b.txt", "docs/d.md", "drafts/c.md"]
    assert names(source(tmp_path, include=("*.md",), exclude=("drafts/**", "**/.git/**"))) == ["a.md", "docs/d.md"]
    assert names(source(tmp_path, recursive=False)) == ["a.md", "b.txt"]


def test_a_link_is_followed_to_a_file_inside_and_never_out_of_the_root(tmp_path: Path) -> None:
    write(tmp_path, "root/a.md", "secret.md", "root2/b.md")
    root = tmp_path / "root"
    (root / "inside.md").symlink_to("a.md")
    (root / "outside.md").symlink_to(tmp_path / "secret.md")
    (root / "sibling.md").symlink_to(tmp_path / "root2" / "b.md")
    (root / "dangling.md").symlink_to("nowhere.md")
    files = source(root)
    assert names(files) == ["a.md", "inside.md", "outside.md", "sibling.md"]
    dotted = Entry(uri=f"{files.uri}/../secret.md", size=1, modified_ns=0)
    for entry in (dotted, Entry(uri=(tmp_path / "secret.md").as_uri(), size=1, modified_ns=0)):
        with pytest.raises(DocumentError, match="read: it is outside its source"):
            files.read(entry)


def test_a_link_out_of_the_root_is_skipped_by_name_even_if_it_leads_to_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "secret/a.md", "secret.md")
    root = tmp_path / "root"
    root.mkdir()
    (root / "outside.md").symlink_to(tmp_path / "secret.md")
    (root / "folder").symlink_to(tmp_path / "secret")
    reason = "skipped: a symbolic link that leads out of its source"
    assert refusals(source(root, include=("*.md",))) == {"folder": reason, "outside.md": reason}


def test_every_folder_is_visited_once_whatever_leads_to_it(tmp_path: Path) -> None:
    write(tmp_path, "a/b/c.md")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to("a")
    assert names(source(tmp_path)) == ["a/b/c.md"]


def test_a_link_that_leads_to_itself_is_skipped_by_name(tmp_path: Path) -> None:
    (tmp_path / "self.md").symlink_to("self.md")
    (tmp_path / "there.md").symlink_to("back.md")
    (tmp_path / "back.md").symlink_to("there.md")
    assert refusals(source(tmp_path)) == {
        "back.md": "skipped: a symbolic link that refers to itself",
        "self.md": "skipped: a symbolic link that refers to itself",
        "there.md": "skipped: a symbolic link that refers to itself",
    }


def test_a_file_that_is_not_regular_is_skipped_by_name_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    os.mkfifo("pipe.md")
    (tmp_path / "to-pipe.md").symlink_to("pipe.md")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.md")
        assert refusals(source(tmp_path)) == {
            "pipe.md": "skipped: not a regular file",
            "socket.md": "skipped: not a regular file",
            "to-pipe.md": "skipped: not a regular file",
        }


def refusals(files: FilesSource) -> dict[str, str]:
    reasons = {}
    for entry in files.listing():
        with pytest.raises(DocumentError) as failed:
            files.read(entry)
        reasons[entry.uri.rpartition("/")[2]] = f"{failed.value.status}: {failed.value.reason}"
    return reasons


def test_a_folder_that_goes_away_during_the_listing_ends_it(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b/c.md")
    listing = source(tmp_path).listing()
    next(listing)
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(ListingError, match="cannot be listed completely"):
        next(listing)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_an_unreadable_folder_ends_the_listing(tmp_path: Path) -> None:
    write(tmp_path, "b/c.md")
    (tmp_path / "b").chmod(0)
    with pytest.raises(ListingError, match="Permission denied"):
        list(source(tmp_path).listing())


def test_a_missing_root_is_not_an_empty_listing(tmp_path: Path) -> None:
    write(tmp_path, "root/a.md")
    files = source(tmp_path / "root")
    shutil.rmtree(tmp_path / "root")
    with pytest.raises(ListingError, match="root"):
        list(files.listing())


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("/no/such/folder", "'/no/such/folder' cannot be used"),
        ("/dev/null", "neither a folder nor a regular file"),
        ("file://elsewhere/a", "file on another host"),
        ("nope://x", "Protocol not known"),
        ("memory://no-such-root", "does not exist"),
    ],
)
def test_a_source_that_cannot_be_used_is_named(location: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        source(location)


def test_a_missing_driver_is_a_source_error() -> None:
    fsspec.register_implementation("absent", "not_installed_anywhere.Driver", clobber=True, errtxt="install absent")
    with pytest.raises(SourceError, match="install absent"):
        source("absent://bucket/docs")


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"x" * 1_000_001)
    (tmp_path / "just.txt").write_bytes(b"x" * 1_000_000)
    files = source(tmp_path)
    just, large = files.listing()
    assert len(files.read(just)) == 1_000_000
    with pytest.raises(DocumentError, match=r"too large: 1\.0 MB or more, limit 1 MB"):
        files.read(large)
    grown = Entry(uri=large.uri, size=10, modified_ns=0)
    with pytest.raises(DocumentError, match="too large"):
        files.read(grown)


def test_a_vanished_file_is_tried_again_next_time(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    files = source(tmp_path)
    [entry] = files.listing()
    (tmp_path / "a.md").unlink()
    with pytest.raises(DocumentError, match="deleted after it was listed") as failed:
        files.read(entry)
    assert failed.value.retryable


def test_compressed_bytes_are_read_as_they_are_stored(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"\x1f\x8b not really")
    files = source(tmp_path)
    assert files.read(next(files.listing())) == b"\x1f\x8b not really"


def test_a_thousand_files_are_listed_with_few_calls_each(tmp_path: Path) -> None:
    """Each file costs one system call, on its folder's entry. No path is looked up."""
    for folder in range(10):
        (tmp_path / str(folder)).mkdir()
        for name in range(100):
            (tmp_path / str(folder) / f"{name}.md").touch()
    files = source(tmp_path)
    with cProfile.Profile() as profile:
        assert sum(1 for _ in files.listing()) == 1_000
    calls = {str(call.code): call.callcount for call in profile.getstats()}
    assert calls["<method 'stat' of 'posix.DirEntry' objects>"] == 1_000
    assert calls["<built-in method posix.scandir>"] == 11
    assert sum(calls.get(f"<built-in method posix.{name}>", 0) for name in ("stat", "lstat", "open", "readlink")) < 40
    assert sum(calls.values()) < 37_000


def test_a_remote_folder_is_listed_and_read_by_its_uris() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe(
        {"/remote/a b%.md": b"one", "/remote/deep/c.md": b"two", "/remote/d.txt": b"no", "/remotely/e.md": b"x"}
    )
    files = source("memory://remote/", include=("*.md",))
    entries = list(files.listing())
    assert [entry.uri for entry in entries] == ["memory:///remote/a b%.md", "memory:///remote/deep/c.md"]
    assert [files.read(entry) for entry in entries] == [b"one", b"two"]
    assert entries[0].modified_ns > 10**18
    assert names(source("memory://remote", recursive=False)) == ["a b%.md", "d.txt"]
    one = source("memory://remote/d.txt")
    assert [one.read(entry) for entry in one.listing()] == [b"no"]
    memory.rm("/remote", recursive=True)
    with pytest.raises(ListingError, match="cannot be listed completely"):
        list(files.listing())
    with pytest.raises(DocumentError, match="deleted after it was listed"):
        files.read(entries[0])


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (TimeoutError("no answer in 5 s"), TransientError, "TimeoutError: no answer in 5 s"),
        (HttpError(503), TransientError, "HttpError: HTTP 503"),
        (HttpError(429), TransientError, "HttpError: HTTP 429"),
        (HttpError(403), DocumentError, "permission denied"),
        (PermissionError("no"), DocumentError, "permission denied"),
        (FileNotFoundError("no"), DocumentError, "deleted after it was listed"),
    ],
    ids=repr,
)
def test_only_a_failure_that_can_pass_is_transient(
    error: Exception, kind: type[DocumentError], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    memory = fsspec.filesystem("memory")
    memory.pipe({"/away/a.md": b"one"})
    files = source("memory://away")
    [entry] = files.listing()
    monkeypatch.setattr(type(memory), "open", fails)
    with pytest.raises(DocumentError) as failed:
        files.read(entry)
    assert (type(failed.value), failed.value.reason) == (kind, reason)
    monkeypatch.undo()
    memory.rm("/away", recursive=True)


def test_a_disk_that_fails_is_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.md")
    files = source(tmp_path)
    [entry] = files.listing()

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(TransientError, match="Input/output error") as failed:
        files.read(entry)
    assert failed.value.retryable
