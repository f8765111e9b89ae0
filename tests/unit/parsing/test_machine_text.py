import base64
import gzip
import pickle
from pathlib import Path

import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.detection import detect_format
from rag_core.parsing.document import parse

PROSE = "The harbour opens at nine, and closes when the last boat is in.\n"
BLOB = base64.encodebytes(bytes(range(256)) * 40).decode()
CSS = "/* main */\n@import url(a.css);\nbody,\nh1 { color: red; margin: 0 }\n@media print {\n .a { display: none }\n}\n"
SHEET = CSS + "p{font:12px serif;padding:0}a:hover{text-decoration:underline}\n"
SCRIPT = "/*! v1 */\n" + "!function(e,t){var n=t.a;return n===void 0&&(n=e(t)),n.b=function(){return!0}}(this,{});" * 9
WORD = '<?xml version="1.0"?>\n<?mso-application progid="Word.Document"?>\n<w:wordDocument xmlns:w="x"><w:body/>'


def reason_of(uri: str, body: bytes) -> str:
    with pytest.raises(DocumentError) as failed:
        detect_format(uri, body)
    assert failed.value.status == "skipped"
    return failed.value.reason


@pytest.mark.parametrize(
    ("uri", "body", "reason"),
    [
        ("a.txt", BLOB.encode(), "a base64 dump named .txt"),
        ("a", BLOB.replace("\n", "").encode(), "a base64 dump"),
        ("a.md", f"data:image/png;base64,{BLOB}".encode(), "a base64 dump named .md"),
        ("a.pem", f"-----BEGIN CERTIFICATE-----\n{BLOB}-----END CERTIFICATE-----\n".encode(), "a base64 dump"),
        ("a.txt", base64.encodebytes(PROSE.encode() * 9).replace(b"\n", b"\r\n"), "a base64 dump named .txt"),
        (
            "a.txt",
            b"begin 644 a.bin\n" + b"M" + b"#" * 60 + b"\n" + (b"M" + b"9" * 60 + b"\n") * 3,
            "a base64 dump named .txt",
        ),
        ("a.txt", SHEET.encode(), "a style sheet (CSS) named .txt"),
        ("a", (SHEET * 100).encode("utf-16"), "a style sheet (CSS)"),
        ("a", SCRIPT.encode(), "minified JavaScript"),
        ("a.txt", (PROSE * 4).encode("cp037"), "EBCDIC text named .txt"),
        ("a.txt", PROSE.upper().encode("cp500"), "EBCDIC text named .txt"),
        ("a.doc", WORD.encode(), "Word 2003 XML named .doc: save it as DOCX"),
        ("a.xml", WORD.encode("utf-16"), "Word 2003 XML named .xml: save it as DOCX"),
    ],
)
def test_text_that_nobody_reads_is_skipped_by_what_it_is(uri: str, body: bytes, reason: str) -> None:
    assert reason_of(uri, body) == f"unsupported: {reason}"


@pytest.mark.parametrize(
    ("uri", "body", "reason"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n\0", "a PNG image"),
        ("a.txt", b"\x89PNG\r\n\x1a\n\0", "a PNG image named .txt"),
        ("a.pdf", b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG image named .pdf"),
        ("a.md", b"RIFF\0\0\0\0WEBPVP8 ", "a WebP image named .md"),
        ("a", b"\0\0\0\x18ftypisom", "an MPEG-4 video"),
        ("a.docx", b"\0\x01\0\0Standard Jet DB\0", "an Access database named .docx"),
        ("a.bin", b"\0\x01\0\0\0\x0c", "a font"),
        ("a.csv", b"PAR1\x15\0", "a Parquet file named .csv"),
        ("a.txt", b"SQLite format 3\0", "an SQLite database named .txt"),
        ("a.json", pickle.dumps({"a": 1}), "a Python pickle named .json"),
        ("a.txt", b"\x1f\x8b\x08\0", "a gzip archive named .txt"),
        ("a.txt", bytes(257) + b"ustar\x0000", "a tar archive named .txt"),
        ("a", b"\xca\xfe\xba\xbe\0\0\0\x37\0\x16\x0a\0\4", "a Java class"),
        ("a.c", b"\x7fELF\x02\x01\x01", "a Linux program named .c"),
        ("a.foo", b"words \0 no", "binary content named .foo"),
    ],
)
def test_binary_content_is_named_by_its_signature(uri: str, body: bytes, reason: str) -> None:
    assert reason_of(uri, body) == f"unsupported: {reason}"


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "GIF89a is a format. BM, PAR1, OggS and MZ begin others.\n",
        "".join(f"{number:064x}\n" for number in range(0, 10**9, 10**7)),
        "".join(f"https://example.org/Path/{number}\n" for number in range(99)),
        "supercalifragilisticexpialidocious" * 20,
        "\n".join(["HarbourMasterOpensTheGatesOfTheOldHarbourAtNine"] * 20),
        "港口九點開放最後一艘船進港時關閉" * 40,
        "To make it red, write a rule:\n\np { color: red; margin: 0 }\n\n" * 9,
        "if (a) { color: red } else { stop: now }\n" + PROSE * 9,
        "location / { root /srv; }\nserver { listen 80; }\nhttp { gzip on; }\n",
        "type Gate { name: String! }\ntype Boat { id: ID! }\ntype Pier { at: Int }\n",
        "function open(gate) {\n  return gate === 1 && gate || true;\n}\n" * 20,
        f"{PROSE}\n{BLOB}",
        f"{BLOB}\n{PROSE * 200}",
        f"{SHEET * 90}\n{PROSE * 200}",
        "2026-01-01 09:00:00 INFO gate=open;boat=(1,2);{a:1}\n" * 20,
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_text_for_readers_stays_text(text: str, encoding: str) -> None:
    assert detect_format("a.txt", text.encode(encoding)) == "text"


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "euc_jp", "shift_jis", "euc_kr", "cp1251", "koi8_r", "cp1252"])
def test_text_of_other_encodings_is_not_ebcdic(encoding: str) -> None:
    words = {"cp1251": "причал открыт ", "koi8_r": "ПРИЧАЛ открыт ", "cp1252": "über größte ", "euc_kr": "항구 문 "}
    text = words.get(encoding, "港口一時 ").replace(" ", "@") * 30
    assert detect_format("a.txt", text.encode(encoding)) == "text"


def test_the_licenses_of_this_machine_stay_text() -> None:
    paths = [path for path in Path("/usr/share/common-licenses").glob("*") if path.is_file()]
    assert {detect_format(str(path), path.read_bytes()) for path in paths} <= {"text"}


@pytest.mark.parametrize(("uri", "body"), [("a.css", SHEET), ("a.js", SCRIPT), ("a.py", "x = 1")])
def test_code_with_a_suffix_of_code_is_text(uri: str, body: str) -> None:
    assert detect_format(uri, body.encode()) == "text"


@pytest.mark.parametrize(
    ("uri", "body", "name"),
    [
        ("a.html", f"<script>{SCRIPT}</script>", "html"),
        ("a", f"<!doctype html><html><script>{SCRIPT}</script></html>", "html"),
        ("a.json", f'{{"script": "{SCRIPT}"}}', "json"),
    ],
)
def test_scripts_in_pages_and_dumps_stay_a_part_of_them(uri: str, body: str, name: str) -> None:
    assert detect_format(uri, body.encode()) == name


@pytest.mark.parametrize(
    ("uri", "flags"),
    [("a.txt", None), ("a.txt.gz", None), ("a.py", None), ("README", ["read-as-text"]), ("a.docx", ["read-as-text"])],
)
def test_plain_text_is_flagged_unless_it_has_a_suffix_of_plain_text(uri: str, flags: list[str] | None) -> None:
    body = gzip.compress(PROSE.encode()) if uri.endswith(".gz") else PROSE.encode()
    assert parse(uri, body, detect_language=False, file_mb=1, text_mb=1).metadata.get("flags") == flags


@pytest.mark.parametrize("uri", ["a.txt", "a.csv", "a.md", "a"])
def test_a_json_dump_is_read_as_json_with_any_suffix(uri: str) -> None:
    assert detect_format(uri, b'[{"gate": "open"}]') == "json"
