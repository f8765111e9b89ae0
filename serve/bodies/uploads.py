"""Uploads as multipart forms. The files are on disk until they are read."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from serve.bodies.ingest import MAX_DOCUMENTS
from serve.bodies.ingest_requests import MAX_FILE_BYTES, UploadedFile, raise_field_error

MAX_FIELDS = 8
MAX_FIELD_BYTES = 64 * 1024
LINE_END = b"\r\n"


@dataclass(frozen=True, slots=True)
class UploadForm:
    """Fields by name, and the files in the order of the form."""

    fields: Mapping[str, str]
    files: Sequence[UploadFile]

    def read_files(self) -> list[UploadedFile]:
        """Blocks while it reads the files. Only the first bytes of files above the size limit are read."""
        return [
            UploadedFile(
                name=file.filename or "",
                media_type=(file.content_type or "").partition(";")[0].strip(),
                size=file.size or 0,
                body=file.file.read(MAX_FILE_BYTES + 1),
            )
            for file in self.files
        ]


@asynccontextmanager
async def open_upload_form(request: Request) -> AsyncIterator[UploadForm]:
    """Yields the form; its files are deleted when the block ends.

    Raises HTTPException if the form is incomplete or malformed, or has too many parts.
    """
    try:
        async with aclosing(_stream_to_end(request)) as stream:
            parser = MultiPartParser(
                request.headers,
                stream,
                max_files=MAX_DOCUMENTS,
                max_fields=MAX_FIELDS,
                max_part_size=MAX_FIELD_BYTES,
            )
            form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from None
    except UnicodeError:
        raise HTTPException(400, "the charset of the form must be a text encoding, such as utf-8") from None
    try:
        yield _split_parts(form)
    finally:
        await form.close()


async def _stream_to_end(request: Request) -> AsyncGenerator[bytes, None]:
    """Yields the body. Raises HTTPException if it has no closing boundary.

    The parser accepts a truncated form, as if it had fewer files. Bytes after the closing boundary are ignored
    (RFC 2046, 5.1.1).
    """
    _, options = parse_options_header(request.headers["content-type"])
    end = LINE_END + b"--" + options.get(b"boundary", b"") + b"--"
    tail, has_end = LINE_END, False
    async for part in request.stream():
        window = tail + part
        has_end = has_end or end in window
        tail = window[1 - len(end) :]
        yield part
    if not has_end:
        raise HTTPException(400, "the form is truncated: it has no closing boundary")


def _split_parts(form: FormData) -> UploadForm:
    fields: dict[str, str] = {}
    files = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != "files":
                raise_field_error(name, "a file must have the field name files")
            files.append(value)
        elif name in fields or name == "files":
            raise_field_error(name, "each field must occur once, and each file must have a file name")
        else:
            fields[name] = value
    return UploadForm(fields, files)
