import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.parsing.encoding import decode_text

GERMAN = "Füße und Äpfel: das Mädchen läuft über die Straße zum Bäcker, weil es schön ist. "


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (b"", "utf-8"),
        (b"", "latin-1"),
    ],
)
def test_text_is_decoded_as_it_was_written(mark: bytes, encoding: str) -> None:
    assert decode_text(mark + GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Привет, мир! Это русский текст для проверки кодировки. "),
        ("cp932", "日本語のテキストです。これは文字コードの判定のためのものです。"),
    ],
)
def test_other_scripts_are_guessed(encoding: str, text: str) -> None:
    assert decode_text(text.encode(encoding)) == text


def test_a_declared_charset_is_used_if_the_bytes_are_not_utf8() -> None:
    assert decode_text("Łódź".encode("iso-8859-2"), "ISO-8859-2") == "Łódź"
    assert decode_text("100 €".encode("cp1252"), "latin-1") == "100 €"
    assert decode_text("Łódź".encode(), "iso-8859-2") == "Łódź"


@pytest.mark.parametrize("declared", ["utf-7", "rot13", "no-such-charset", "raw_unicode_escape", "\0"])
def test_an_unknown_declared_charset_is_ignored(declared: str) -> None:
    assert decode_text(GERMAN.encode("latin-1"), declared) == GERMAN


def test_utf8_with_one_broken_byte_stays_utf8() -> None:
    assert decode_text((GERMAN * 3).encode() + b"\xff") == GERMAN * 3 + "\ufffd"


def test_lines_end_in_newlines_and_nuls_are_gone() -> None:
    assert decode_text(b"a\r\nb\rc\nd\0e") == "a\nb\nc\nde"


@given(st.binary(max_size=200), st.sampled_from(["", "utf-7", "utf-16", "shift_jis", "latin-1"]))
def test_any_bytes_become_text_that_can_be_stored(body: bytes, declared: str) -> None:
    text = decode_text(body, declared)
    text.encode()
    assert not {"\0", "\r"} & set(text)
