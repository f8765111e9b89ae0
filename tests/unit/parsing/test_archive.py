from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from zips import zip_bytes

from rag_core.errors import DocumentError
from rag_core.parsing.archive import open_archive


def refusal(body: bytes, limit_mb: float = 500) -> str:
    with pytest.raises(DocumentError) as failed:
        read_all(body, limit_mb)
    return failed.value.reason


def read_all(body: bytes, limit_mb: float) -> None:
    archive = open_archive(body, limit_mb)
    for name in archive.names:
        archive.read(name)


def with_size(body: bytes, real: int, claimed: int) -> bytes:
    """The archive with another uncompressed size in its directory and its local header."""
    return body.replace(real.to_bytes(4, "little"), claimed.to_bytes(4, "little"))


def test_entries_are_read_by_name() -> None:
    archive = open_archive(zip_bytes({"a/b.xml": "one", "c.xml": "two"}))
    assert archive.names == ("a/b.xml", "c.xml")
    assert (archive.read("a/b.xml"), "c.xml" in archive, "d.xml" in archive) == (b"one", True, False)
    with pytest.raises(DocumentError, match=r"damaged archive: no d\.xml"):
        archive.read("d.xml")


def test_repacking_keeps_the_entries_with_the_suffixes() -> None:
    packed = open_archive(zip_bytes({"a.xml": "x" * 1000, "b.png": "y"})).repack((".xml",))
    assert open_archive(packed).names == ("a.xml",)
    assert open_archive(packed).read("a.xml") == b"x" * 1000


def test_a_bomb_is_refused_by_its_ratio_before_it_is_unpacked() -> None:
    bomb = zip_bytes({"a.xml": b"\0" * 20_000_000})
    assert len(bomb) < 30_000
    assert refusal(bomb) == "too large: an archive entry compressed more than 200 times"


def test_the_limit_applies_to_the_sum_of_all_entries() -> None:
    body = zip_bytes({f"{number}.xml": b"ab" * 100_000 for number in range(10)})
    assert refusal(body, 1.9) == "too large: more than 1.9 MB when decompressed"
    assert len(open_archive(body, 2.0).read("9.xml")) == 200_000


def test_reading_one_entry_repeatedly_also_reaches_the_limit() -> None:
    archive = open_archive(zip_bytes({"a.xml": b"a" * 600_000}), 1.0)
    archive.read("a.xml")
    with pytest.raises(DocumentError, match="more than 1 MB"):
        archive.read("a.xml")


def test_a_false_size_in_a_header_does_not_bypass_the_limit() -> None:
    real = 12_345_678
    lying = with_size(zip_bytes({"a.xml": b"\0" * real}), real, 1000)
    assert refusal(lying, 0.1).startswith("damaged archive: Bad CRC-32")


def test_too_many_entries_are_refused() -> None:
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for number in range(10_001):
            file.writestr(str(number), "")
    assert refusal(out.getvalue()) == "too large: 10001 archive entries, limit 10000"


def test_an_encrypted_entry_is_password_protected() -> None:
    body = bytearray(zip_bytes({"a.xml": "secret"}))
    body[body.rindex(b"PK\x01\x02") + 8] |= 1
    assert refusal(bytes(body)) == "password protected"


def test_an_encrypted_office_file_is_password_protected() -> None:
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert refusal(old + "EncryptedPackage".encode("utf-16-le")) == "password protected"
    assert refusal(old) == "damaged archive: an old Office file, not a zip"


def test_bytes_that_are_not_a_zip_are_damaged() -> None:
    assert refusal(b"no zip at all") == "damaged archive: File is not a zip file"


def test_the_reason_of_a_cut_archive_says_what_to_do() -> None:
    cut = zip_bytes({"a.xml": "x" * 99})[:-30]
    assert refusal(cut) == "damaged archive: its end is missing; save or copy the file again"


def test_a_damaged_entry_is_reported() -> None:
    body = bytearray(zip_bytes({"a.xml": bytes(range(256)) * 40}))
    body[60:64] = b"\xff\xff\xff\xff"
    assert refusal(bytes(body)).startswith("damaged archive: ")


def test_an_unknown_compression_is_reported() -> None:
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as file:
        file.writestr("a.xml", "x")
    body = bytearray(out.getvalue())
    body[body.rindex(b"PK\x01\x02") + 10] = 99
    assert refusal(bytes(body)) == "damaged archive: That compression method is not supported"


def test_nothing_is_empty() -> None:
    with pytest.raises(DocumentError) as failed:
        open_archive(b"")
    assert (failed.value.reason, failed.value.status) == ("empty", "skipped")
