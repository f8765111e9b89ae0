"""Containers of a real folder, through the source that lists and reads them."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import stat
import tarfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import fsspec
import pytest
from archives import mail, mbox_bytes, tar_bytes
from zips import office, zip_bytes

from rag_core.errors import DocumentError
from rag_core.ingestion.containers import contained_files, container, open_containers, opening
from rag_core.ingestion.sources.files import FilesSource
from rag_core.types import Entry

FILES = {"keys.md": b"# Keys\n", "guides/gates.md": b"# Gates\n"}


def source(location: Path | str, exclude: tuple[str, ...] = (), file_mb: float = 1.0) -> FilesSource:
    return FilesSource.open(str(location), (), exclude, True, file_mb)


def contents(location: Path | str) -> dict[str, bytes]:
    """The bytes of each document, by its uri below the source."""
    files = source(location)
    return {name(files, entry): files.read(entry) for entry in files.listing()}


def name(files: FilesSource, entry: Entry) -> str:
    return entry.uri.removeprefix(files.uri).removeprefix("/")


def failures(location: Path | str) -> dict[str, str]:
    files, reasons = source(location), {}
    for entry in files.listing():
        with pytest.raises(DocumentError) as failed:
            files.read(entry)
        reasons[name(files, entry)] = f"{failed.value.status}: {failed.value.reason}"
    return reasons


def compress_tar(compress: Callable[[bytes], bytes]) -> bytes:
    return compress(tar_bytes(FILES))


@pytest.mark.parametrize(
    ("suffix", "body"),
    [
        (".zip", zip_bytes(FILES)),
        (".tar", tar_bytes(FILES)),
        (".tar", tar_bytes(FILES, format_=tarfile.GNU_FORMAT)),
        (".tar.gz", compress_tar(gzip.compress)),
        (".tgz", compress_tar(gzip.compress)),
        (".TAR.BZ2", compress_tar(bz2.compress)),
        (".txz", compress_tar(lzma.compress)),
        (".tar.xz", lzma.compress(tar_bytes(FILES)[:512]) + lzma.compress(tar_bytes(FILES)[512:])),
    ],
)
def test_the_files_of_an_archive_are_documents(tmp_path: Path, suffix: str, body: bytes) -> None:
    (tmp_path / f"a{suffix}").write_bytes(body)
    assert contents(tmp_path) == {f"a{suffix}!/{path}": content for path, content in FILES.items()}
    assert contents(tmp_path / f"a{suffix}") == {f"!/{path}": content for path, content in FILES.items()}


def test_a_remote_archive_is_listed_and_read(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/archives/a b.zip": zip_bytes(FILES), "/archives/c.tgz": compress_tar(gzip.compress)})
    expected = {f"{archive}!/{path}": body for archive in ("a b.zip", "c.tgz") for path, body in FILES.items()}
    assert contents("memory://archives") == expected
    assert contents("memory://archives/a b.zip") == {f"!/{path}": body for path, body in FILES.items()}


def test_archives_inside_archives_are_opened_too(tmp_path: Path) -> None:
    inner = zip_bytes({"b.tar": tar_bytes(FILES), "c.md": b"c"})
    (tmp_path / "a.zip").write_bytes(zip_bytes({"inner/x.zip": inner}))
    assert contents(tmp_path) == {
        "a.zip!/inner/x.zip!/b.tar!/keys.md": b"# Keys\n",
        "a.zip!/inner/x.zip!/b.tar!/guides/gates.md": b"# Gates\n",
        "a.zip!/inner/x.zip!/c.md": b"c",
    }


def test_archives_are_opened_three_deep_and_a_fourth_is_one_failure(tmp_path: Path) -> None:
    body = zip_bytes({"keys.md": b"# Keys\n"})
    for depth in (3, 2, 1):
        body = zip_bytes({f"{depth}.zip": body})
    (tmp_path / "0.zip").write_bytes(body)
    reason = "failed: too deep: 4 archives inside each other, limit 3"
    assert failures(tmp_path) == {"0.zip!/1.zip!/2.zip!/3.zip": reason}


def test_a_document_that_is_a_zip_is_not_opened(tmp_path: Path) -> None:
    word = office("word/document.xml", {"word/document.xml": "<x/>", "[Content_Types].xml": "<x/>"})
    (tmp_path / "a.zip").write_bytes(word)
    (tmp_path / "b.zip").write_bytes(zip_bytes({"mimetype": "application/epub+zip", "x.html": "x"}))
    (tmp_path / "c.zip").write_bytes(b"Only a text")
    assert set(contents(tmp_path)) == {"a.zip", "b.zip", "c.zip"}


def test_names_in_any_encoding_are_read(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("größe.md", "flagged as UTF-8")
    unflagged = zip_bytes({"gr00se.md": "in UTF-8 without the flag"}).replace(b"gr00se.md", "größ.md".encode())
    (tmp_path / "b.zip").write_bytes(unflagged)
    assert set(contents(tmp_path)) == {"a.zip!/gr%C3%B6%C3%9Fe.md", "b.zip!/gr%C3%B6%C3%9F.md"}


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for type_ in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo(f"odd{type_.decode()}.md")
            member.type, member.linkname = type_, "/etc/passwd"
            archive.addfile(member)
        member = tarfile.TarInfo("keys.md")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"keys"))
    link = ZipInfo("link.md")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with ZipFile(tmp_path / "b.zip", "w") as zipped:
        zipped.writestr(link, "/etc/passwd")
        zipped.writestr("keys.md", "keys")
    assert contents(tmp_path) == {"a.tar!/keys.md": b"keys", "b.zip!/keys.md": b"keys"}


def test_the_last_member_of_a_name_counts_as_when_it_is_unpacked(tmp_path: Path) -> None:
    body = tar_bytes({"keys.md": b"old"})[:1024] + tar_bytes({"keys.md": b"new"})
    (tmp_path / "a.tar").write_bytes(body)
    assert contents(tmp_path) == {"a.tar!/keys.md": b"new"}


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_long_name_in_a_tar_is_kept(tmp_path: Path, format_: int) -> None:
    long_name = "/".join(["folder"] * 50) + "/größe.md"
    (tmp_path / "a.tar").write_bytes(tar_bytes({long_name: b"x", "b.md": b"y"}, format_=format_))
    assert [entry.size for entry in source(tmp_path).listing()] == [1, 1]
    assert sum(uri.count("folder") for uri in contents(tmp_path)) == 50


def test_excluded_patterns_apply_to_members_as_if_an_archive_were_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"x.md": "x", "drafts/y.md": "y", "b.zip": zip_bytes({"z.png": "z"})}))
    (tmp_path / "c.zip").write_bytes(zip_bytes({"x.md": "x"}))
    files = source(tmp_path, exclude=("a.zip/drafts/**", "*.png", "c.zip"))
    assert [name(files, entry) for entry in files.listing()] == ["a.zip!/x.md"]
    one = source(tmp_path / "a.zip", exclude=("drafts/**", "b.zip/*.png"))
    assert [name(one, entry) for entry in one.listing()] == ["!/x.md"]


def test_equal_members_have_equal_entries_in_another_archive_of_the_name(tmp_path: Path) -> None:
    for archive, build in (("a.zip", zip_bytes), ("a.tgz", lambda files: gzip.compress(tar_bytes(files)))):
        (tmp_path / archive).write_bytes(build({"a.md": b"one", "b.md": b"two"}))
        before = {entry.uri: entry for entry in source(tmp_path / archive).listing()}
        (tmp_path / archive).write_bytes(build({"c.md": b"new", "b.md": b"tow", "a.md": b"one"}))
        after = {entry.uri: entry for entry in source(tmp_path / archive).listing()}
        changed = [uri.rpartition("/")[2] for uri, entry in before.items() if after[uri] != entry]
        assert changed == ["b.md"]


BOMB = zip_bytes({f"{number}.txt": bytes(60_000_000) for number in range(2)})


@pytest.mark.parametrize(
    ("file", "body", "reason"),
    [
        ("a.zip", zip_bytes(FILES)[:-10], "failed: damaged archive: File is not a zip file"),
        ("a.tar", tar_bytes(FILES)[:512], "failed: damaged archive: it ends too early"),
        ("a.tar", tar_bytes(FILES)[:1024], "failed: damaged archive: its end is missing"),
        ("a.tar", tar_bytes(FILES)[:1024] + b"x" * 512, "failed: damaged archive: invalid header"),
        ("a.tar", b"", "skipped: an empty archive"),
        ("a.tgz", gzip.compress(tar_bytes(FILES))[:-9], "failed: damaged archive: Compressed file ended before"),
        ("a.txz", lzma.compress(tar_bytes(FILES))[:-40], "failed: damaged archive: it ends too early"),
        ("a.tbz2", bz2.compress(tar_bytes(FILES))[:-40], "failed: damaged archive: Compressed file ended before"),
        ("a.tgz", gzip.compress(bytes(10**6)), "skipped: an empty archive"),
        ("a.zip", BOMB, "failed: too large: more than 100 MB when decompressed"),
    ],
)
def test_an_archive_that_cannot_be_opened_is_one_failure(tmp_path: Path, file: str, body: bytes, reason: str) -> None:
    (tmp_path / file).write_bytes(body)
    ((uri, message),) = failures(tmp_path).items()
    assert uri == file
    assert message.startswith(reason)


@pytest.mark.parametrize(
    ("file", "body"),
    [
        ("a.zip", zip_bytes(FILES)),
        ("a.tar", tar_bytes(FILES)[:4096]),
        ("a.tgz", compress_tar(gzip.compress)),
        ("a.tbz2", compress_tar(bz2.compress)),
        ("a.txz", compress_tar(lzma.compress)),
    ],
)
def test_a_part_of_an_archive_is_listed_itself_or_completely(tmp_path: Path, file: str, body: bytes) -> None:
    """The end of an archive can be missing, never some of its files: those would be deleted from the store."""
    complete = {f"!/{path}" for path in FILES}
    for size in range(0, len(body), 1 + len(body) // 100):
        (tmp_path / file).write_bytes(body[:size])
        files = source(tmp_path / file)
        assert {name(files, entry) for entry in files.listing()} in ({""}, complete), size


def test_a_tar_that_decompresses_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "RATIO_MIN_BYTES", 1_000_000)
    (tmp_path / "a.tgz").write_bytes(gzip.compress(bytes(3_000_000)))
    assert failures(tmp_path) == {"a.tgz": "failed: too large: more than 1 MB when decompressed"}


def test_members_are_counted_together_with_those_of_inner_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "MAX_MEMBERS", 3)
    (tmp_path / "a.zip").write_bytes(zip_bytes({"x.md": "x", "b.tar": tar_bytes(FILES), "y.md": "y"}))
    files = source(tmp_path)
    entries = {name(files, entry): entry for entry in files.listing()}
    assert list(entries) == ["a.zip!/x.md", "a.zip!/b.tar", "a.zip!/y.md"]
    with pytest.raises(DocumentError, match="more than 3 files in an archive") as failed:
        files.read(entries["a.zip!/b.tar"])
    assert not failed.value.retryable


def test_a_directory_too_large_for_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.ingestion.containers.source_file.MAX_READ", 1 << 12)
    (tmp_path / "a.zip").write_bytes(zip_bytes({f"{number}.md": "x" for number in range(100)}))
    assert "a directory of more than" in failures(tmp_path)["a.zip"]


def encrypt(body: bytes) -> bytes:
    """Sets the flag of encryption in the directory's entries. It is in the ninth byte of each."""
    parts = body.split(b"PK\1\2")
    return b"PK\1\2".join([parts[0], *(part[:4] + bytes([part[4] | 1]) + part[5:] for part in parts[1:])])


def test_an_encrypted_archive_is_one_failure_and_an_encrypted_member_another(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(encrypt(zip_bytes(FILES)))
    assert failures(tmp_path) == {"a.zip": "failed: password protected"}
    body = zip_bytes(FILES)
    last = body.rindex(b"PK\1\2")
    (tmp_path / "a.zip").write_bytes(body[:last] + encrypt(body[last:]))
    files = source(tmp_path)
    plain, encrypted = files.listing()
    assert files.read(plain) == b"# Keys\n"
    with pytest.raises(DocumentError, match="password protected"):
        files.read(encrypted)


def test_a_damaged_member_fails_alone(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.md", "one one one")
        archive.writestr("b.md", "two two two")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes().replace(b"two two two", b"two 2wo two"))
    files = source(tmp_path)
    first, second = files.listing()
    assert files.read(first) == b"one one one"
    with pytest.raises(DocumentError, match="damaged archive: Bad CRC-32") as failed:
        files.read(second)
    assert not failed.value.retryable


def test_a_member_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"large.md": bytes(2_000_000), "b.zip": os.urandom(1_100_000)}))
    files = source(tmp_path)
    reasons = failures(tmp_path)
    assert reasons["a.zip!/large.md"] == "failed: too large: 2.0 MB or more, limit 1 MB"
    assert reasons["a.zip!/b.zip"] == "failed: too large: an archive in an archive, limit 1 MB"
    assert len(list(files.listing())) == 2


class CountedOpenings:
    """The containers that are opened, by the last part of their uri."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        monkeypatch.setattr(contained_files, "open_container", self.open)

    def open(self, uri: str, *arguments: Any) -> Any:
        self.names.append(uri.rpartition("/")[2])
        return opening.open_container(uri, *arguments)


def test_an_archive_is_opened_once_for_all_its_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"{number}.md": b"%d" % number for number in range(50)}
    (tmp_path / "a.tgz").write_bytes(gzip.compress(tar_bytes({"b.tar": tar_bytes(many), **many})))
    opened = CountedOpenings(monkeypatch)
    files = source(tmp_path)
    entries = list(files.listing())
    copy = pickle.loads(pickle.dumps(files))  # noqa: S301 - as it travels to a worker
    assert copy == files
    assert sum(len(copy.read(entry)) + len(files.read(entry)) for entry in entries) == 2 * 2 * (10 + 80)
    assert opened.names == ["a.tgz", "b.tar", "b.tar", "a.tgz"] or opened.names == ["a.tgz", "b.tar", "a.tgz", "b.tar"]


def test_only_the_last_archives_stay_open(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.zip").write_bytes(zip_bytes(FILES))
    files = source(tmp_path)
    uris = [entry.uri.partition("!/")[0] for entry in files.listing()][::2]
    assert [uri in files.containers for uri in uris] == [False] * 2 + [True] * open_containers.MAX_OPEN


@pytest.mark.parametrize(("file", "build"), [("a.zip", zip_bytes), ("a.tar", tar_bytes)])
def test_an_archive_replaced_after_the_listing_is_read_as_it_is_now(
    tmp_path: Path, file: str, build: Callable[[dict[str, bytes]], bytes]
) -> None:
    archive = tmp_path / file
    archive.write_bytes(build({"a.md": b"one" * 10_000, "b.md": b"two"}))
    files = source(tmp_path)
    first, second = files.listing()
    archive.write_bytes(build({"a.md": b"ONE" * 10_000}))
    assert files.read(first) == b"ONE" * 10_000
    with pytest.raises(DocumentError, match="deleted after it was listed") as failed:
        files.read(second)
    assert failed.value.retryable


def test_an_archive_that_is_being_replaced_is_read_again_later(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_bytes(FILES))
    entries = list(source(tmp_path).listing())
    archive.write_bytes(zip_bytes(FILES)[:-10])
    with pytest.raises(DocumentError, match="not a zip file") as failed:
        source(tmp_path).read(entries[0])
    assert failed.value.retryable


def test_an_upload_completed_after_the_listing_is_listed_by_the_next_sync(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_bytes(FILES)[:-10])
    files = source(tmp_path)
    (entry,) = files.listing()
    archive.write_bytes(zip_bytes(FILES))
    with pytest.raises(DocumentError, match="changed after it was listed") as failed:
        files.read(entry)
    assert failed.value.retryable


def test_a_damaged_archive_is_not_opened_again_for_each_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(50):
            archive.writestr(f"{number}.md", "one two")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes().replace(b"one two", b"one 2wo"))
    opened = CountedOpenings(monkeypatch)
    assert len(failures(tmp_path)) == 50
    assert len(opened.names) == 1 + open_containers.MAX_CHANGES


def test_a_name_from_outside_the_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "secret.zip").write_bytes(zip_bytes(FILES))
    files = source(tmp_path / "docs")
    for uri in (f"{tmp_path.as_uri()}/secret.zip!/keys.md", f"{files.uri}/../secret.zip!/keys.md"):
        with pytest.raises(DocumentError, match="it is outside its source"):
            files.read(Entry(uri=uri, size=1, modified_ns=0))


def test_each_mail_of_a_mailbox_is_a_document_with_the_name_of_its_message_id(tmp_path: Path) -> None:
    first, second = mail("1@x", "Hello\n\n>From here to there\n>>From quoted"), mail("2/b@x", "Bye")
    (tmp_path / "in.mbox").write_bytes(mbox_bytes(first, second))
    read = contents(tmp_path)
    assert list(read) == ["in.mbox!/1%40x.eml", "in.mbox!/2_b%40x.eml"]
    assert b"\nFrom here to there\n>From quoted" in read["in.mbox!/1%40x.eml"]
    (tmp_path / "in.mbox").write_bytes(mbox_bytes(mail("0@x", "New"), first, second))
    assert contents(tmp_path).items() > read.items()


def test_a_mailbox_splits_only_at_separators(tmp_path: Path) -> None:
    body = (
        "Content-Length: 3\n\nFrom the top, at 10:15 of no date\n\nFrom here on\nX\nFrom b@x Mon Jul 11 12:08:34 2022\n"
    )
    (tmp_path / "in.mbox.gz").write_bytes(gzip.compress(mbox_bytes(body, mail("2@x", "Bye"))))
    without_id, second = contents(tmp_path)
    assert without_id.endswith(".eml")
    assert second == "in.mbox.gz!/2%40x.eml"


def test_mails_with_the_same_message_id_all_remain(tmp_path: Path) -> None:
    (tmp_path / "in.mbox").write_bytes(mbox_bytes(mail("1@x", "a"), mail("1@x", "b"), mail("1@x", "a")))
    assert sorted(body.count(b"\na\n") for body in contents(tmp_path).values()) == [0, 1]


def test_a_gzipped_member_is_read_as_it_is_stored(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"a.md.gz": gzip.compress(b"# Keys")}))
    assert zlib.decompress(contents(tmp_path)["a.zip!/a.md.gz"], 31) == b"# Keys"


@pytest.mark.parametrize("file", ["a.zip", "a.tar", "a.tgz"])
def test_threads_share_an_archive(tmp_path: Path, file: str) -> None:
    many = {f"{number}.md": b"%d " % number * 2_000 for number in range(200)}
    bodies = {"a.zip": zip_bytes(many), "a.tar": tar_bytes(many), "a.tgz": gzip.compress(tar_bytes(many))}
    (tmp_path / file).write_bytes(bodies[file])
    files = source(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(files.read, files.listing())) == list(many.values())


def test_an_entry_without_a_name_is_left_out(tmp_path: Path) -> None:
    body = zip_bytes({"a.md": b"one", "b.md": b"two"}).replace(b"b.md", b"\0.md")
    (tmp_path / "a.zip").write_bytes(body)
    assert list(contents(tmp_path)) == ["a.zip!/a.md"]
