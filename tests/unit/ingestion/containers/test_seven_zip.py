from pathlib import Path

import pytest
from seven_zips import find_libarchive, write_seven_zip

from rag_core.errors import DocumentError
from rag_core.ingestion.containers import container, seven_zip
from rag_core.ingestion.sources.files import FilesSource

FILES = {"keys.md": b"# Keys\n", "guides/größe.md": b"# Gr\n" * 400_000, "empty.md": b""}

needs_libarchive = pytest.mark.skipif(find_libarchive() is None, reason="libarchive is not installed")


def source(location: Path) -> FilesSource:
    return FilesSource.open(str(location), (), (), True, 10.0)


def failure(location: Path) -> tuple[str, str]:
    files = source(location)
    (entry,) = files.listing()
    with pytest.raises(DocumentError) as failed:
        files.read(entry)
    return failed.value.status, failed.value.reason


@needs_libarchive
def test_the_files_of_a_7z_archive_are_documents(tmp_path: Path) -> None:
    write_seven_zip(tmp_path / "a.7z", FILES)
    files = source(tmp_path)
    contents = {entry.uri.partition("!/")[2]: files.read(entry) for entry in files.listing()}
    assert contents == {
        "keys.md": b"# Keys\n",
        "guides/gr%C3%B6%C3%9Fe.md": b"# Gr\n" * 400_000,
        "empty.md": b"",
    }


@needs_libarchive
def test_an_incomplete_7z_archive_is_one_failure(tmp_path: Path) -> None:
    write_seven_zip(tmp_path / "a.7z", FILES)
    (tmp_path / "a.7z").write_bytes((tmp_path / "a.7z").read_bytes()[:-20])
    status, reason = failure(tmp_path)
    assert status == "failed"
    assert reason.startswith("damaged archive: ")
    assert "status" not in reason  # libarchive gave the reason


@needs_libarchive
def test_a_7z_archive_that_decompresses_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "RATIO_MIN_BYTES", 1_000_000)
    write_seven_zip(tmp_path / "a.7z", {"zeros.txt": bytes(5_000_000)})
    assert failure(tmp_path) == ("failed", "too large: more than 1 MB when decompressed")


def test_without_libarchive_a_7z_archive_is_skipped_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seven_zip, "LIBRARIES", ("libmissing.so",))
    (tmp_path / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(26))
    reason = "unsupported: .7z needs libarchive; install libarchive13 with your package manager"
    assert failure(tmp_path) == ("skipped", reason)


def test_the_reason_for_an_encrypted_archive_is_its_password() -> None:
    with pytest.raises(DocumentError, match="password protected"):
        seven_zip._check_exit(1, "Crypto codec not supported yet (ID: 0x6f10701)")
