"""Files that attack their parser, and parsers that misbehave like an attacked one."""

import ctypes
import os
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from zipfile import ZIP_DEFLATED, ZipFile

from pdfs import pdf

from rag_core.errors import DocumentError
from rag_core.parsing.document import parse
from rag_core.types import Document

ENTITY_BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "lol">
{}]><lolz>&j;</lolz>""".format(
    "\n".join(f'<!ENTITY {name} "{f"&{last};" * 10}">' for last, name in zip("abcdefghi", "bcdefghij", strict=True))
)
CONTENT_TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NUL_CONTAINER = b"""<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="a%00.opf"/></rootfiles></container>"""
IN_2300, IN_1600 = 10_413_792_000 * 10**9, -11_676_096_000 * 10**9
"""Times in nanoseconds outside the range of the store. Some file systems can have them."""
STORY = "The gates are opened at spring tide, never more than two at once."


def docx(text: str, **parts: bytes) -> bytes:
    """A DOCX file. `parts` are further entries; in their names `__` means `/` and `_dot_` means `.`."""
    body = f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>'
    named = {name.replace("__", "/").replace("_dot_", "."): part for name, part in parts.items()}
    return zip_bytes({"[Content_Types].xml": CONTENT_TYPES.encode(), "word/document.xml": body.encode(), **named})


def zip_bytes(entries: dict[str, bytes]) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(zipfile.ZipInfo(name), content, ZIP_DEFLATED)
    return out.getvalue()


def zip_bomb() -> bytes:
    """A file of 100 kB that expands to a document of 100 MB."""
    head = f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>'.encode()
    return zip_bytes({"[Content_Types].xml": CONTENT_TYPES.encode(), "word/document.xml": head + b"A" * 100_000_000})


def write_poison(folder: Path) -> Path:
    folder.mkdir(parents=True)
    contents: dict[str, bytes] = {
        "truncated.pdf": pdf([STORY], [STORY], [STORY])[:1000],
        "ten-thousand-pages.pdf": pdf(*[[f"Page {number}"] for number in range(10_000)]),
        "pdf-in-disguise.docx": pdf([STORY]),
        "bomb.docx": zip_bomb(),
        "entities.xml": ENTITY_BOMB.encode(),
        "entities.html": ENTITY_BOMB.encode(),
        "empty.md": b"",
        "zip-in-disguise.md": zip_bytes({"a.txt": b"text" * 100}),
        "program.txt": b"\x7fELF\x02\x01\x01" + bytes(500),
        "one-line.txt": b"word " * 10_000_000,
        "nul.txt": b"The gates\0 are\0 opened at spring tide.\n",
        "late-nul.txt": b"The gates are opened.\n" * 500 + b"\0 and closed\n",
        "escapes.json": b'{"story": "A NUL \\u0000 and a lone surrogate \\ud800."}',
        "surrogates.txt": b"A lone surrogate \xed\xa0\x80 stands here, in bytes that are no UTF-8.\n",
        "nul-inside.epub": zip_bytes({"mimetype": b"application/epub+zip", "META-INF/container.xml": NUL_CONTAINER}),
        "damaged.md.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"no deflate",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "new\nline.md").write_text(f"# A name of two lines\n\n{STORY}\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.md")).write_text(f"# A name in Latin-1\n\n{STORY}\n")
    for name, moment in (("from-2300.md", IN_2300), ("from-1600.md", IN_1600)):
        (folder / name).write_text(f"# A file of another time\n\n{STORY}\n")
        os.utime(folder / name, ns=(moment, moment))
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "folder-loop").symlink_to(".")
    os.mkfifo(folder / "pipe.md")
    return folder


def parse_or_act(uri: str, body: bytes) -> Document:
    """Runs the act that the file's name names, then parses the file. Other files are only parsed."""
    act = ACTS.get(uri.rpartition("/")[2].partition(".")[0])
    if act:
        act()
    return parse(uri, body, False, 200.0, 20.0)


def spin() -> None:
    while True:
        pass


def wait_in_c() -> None:
    ctypes.PyDLL(None).sleep(3600)  # holds the interpreter's lock


def hog() -> None:
    blocks = []
    while True:
        blocks.append(bytes(16_000_000))


def crash() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.write(2, b"memory allocation of 99999999999 bytes failed\n")
    os.abort()


def abort_silently() -> None:
    os.abort()


def abort_with_reason() -> None:
    os.write(2, b"corrupted double-linked list\n")
    os.abort()


def leave() -> None:
    os._exit(3)


def exit_politely() -> None:
    sys.exit("enough")


def stumble() -> None:
    raise KeyError("a bug")


def refuse() -> None:
    raise DocumentError("parse", "not today", status="skipped")


def sleep(process: int) -> list[str]:
    """The command that a parser started by this process leaves running.

    It contains the process id, because several processes run their tests at the same time.
    """
    return ["sleep", f"{3600 + process}.25"]


def fork_and_spin() -> None:
    subprocess.Popen(sleep(os.getppid()))
    subprocess.Popen(sleep(os.getppid()), start_new_session=True)
    spin()


def write_much() -> None:
    with TemporaryFile() as file:
        for _ in range(100):
            file.write(bytes(1_000_000))


def open_many() -> None:
    _ = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]


def nap() -> None:
    time.sleep(0.3)


ACTS = {
    act.__name__: act
    for act in (
        *(spin, wait_in_c, hog, crash, abort, abort_silently, abort_with_reason, leave),
        *(exit_politely, stumble, refuse),
        *(fork_and_spin, write_much, open_many, nap),
    )
}


def parse_to_huge_text(uri: str, body: bytes) -> Document:
    return Document(uri=uri, text="A" * len(body) * 1000)


class Opaque(str):
    """A text of a subclass of `str`, like those that some libraries return."""


def opaque(uri: str, body: bytes) -> Document:
    return Document(uri=uri, text=Opaque("text"))


def environment(uri: str, body: bytes) -> Document:
    return Document(
        uri=uri,
        text=" ".join(os.environ),
        metadata={"modules": sorted({name.partition(".")[0] for name in sys.modules})},
    )


def identity(uri: str, body: bytes) -> Document:
    return Document(uri=uri, text=str(os.getpid()))
