"""Files that come as a form. They lie on disk until they are read."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from serve.bodies.ingest import MOST_DOCUMENTS
from serve.bodies.ingest_form import LARGEST_FILE, Upload, refuse_field

MOST_FIELDS = 8
LARGEST_FIELD = 64 * 1024
LINE_END = b"\r\n"


@dataclass(frozen=True, slots=True)
class Form:
    """Fields by name, and the files in their order."""

    fields: Mapping[str, str]
    files: Sequence[UploadFile]

    def uploads(self) -> list[Upload]:
        """Reads the files, in this thread."""
        return [_upload(file) for file in self.files]


@asynccontextmanager
async def uploaded(request: Request) -> AsyncIterator[Form]:
    """The files are there until the block ends. HTTPException for what is no whole form, or has too many parts."""
    try:
        async with aclosing(_whole(request)) as stream:
            parser = MultiPartParser(
                request.headers,
                stream,
                max_files=MOST_DOCUMENTS,
                max_fields=MOST_FIELDS,
                max_part_size=LARGEST_FIELD,
            )
            form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from None
    except UnicodeError:
        raise HTTPException(400, "the form's charset must be one that text can be read by, such as utf-8") from None
    try:
        yield _parts(form)
    finally:
        await form.close()


async def _whole(request: Request) -> AsyncGenerator[bytes, None]:
    """Its bytes. The parser would take a form that breaks off for one with a file less. What follows its end is
    nobody's (RFC 2046, 5.1.1)."""
    _, options = parse_options_header(request.headers["content-type"])
    end = LINE_END + b"--" + options.get(b"boundary", b"") + b"--"
    tail, ended = LINE_END, False
    async for part in request.stream():
        seen = tail + part
        ended = ended or end in seen
        tail = seen[1 - len(end) :]
        yield part
    if not ended:
        raise HTTPException(400, "the form breaks off before its end")


def _parts(form: FormData) -> Form:
    fields: dict[str, str] = {}
    files = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != "files":
                refuse_field(name, "a file must come under the name files")
            files.append(value)
        elif name in fields or name == "files":
            refuse_field(name, "a field may come once, and a file must have a file name")
        else:
            fields[name] = value
    return Form(fields, files)


def _upload(file: UploadFile) -> Upload:
    return Upload(
        name=file.filename or "",
        media_type=(file.content_type or "").partition(";")[0].strip(),
        size=file.size or 0,
        body=file.file.read(LARGEST_FILE + 1),
    )
