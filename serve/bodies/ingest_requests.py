"""Ingest requests and their validation. An invalid document is rejected alone, any other error rejects the request."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn, TypeAlias, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError

from rag_core.ingestion import given_documents
from rag_core.ingestion.sources.pushed import PLAIN_TEXT
from rag_core.storage.queue import PushedDocument
from serve.bodies.fields import MEGABYTE, Id, Uri
from serve.bodies.ingest import DocumentBody, IngestBody, SourceBody, UploadBody
from serve.http.problems import MAX_ERRORS

MAX_FILE_BYTES = 50 * MEGABYTE
MAX_SHOWN_CHARS = 80

Errors: TypeAlias = Sequence[Mapping[str, Any]]
"""Errors as pydantic reports them; `loc` is the position in the body."""

Location: TypeAlias = tuple[str | int, ...]
B = TypeVar("B", bound=BaseModel)

_ID_TYPE, _URI_TYPE = TypeAdapter(Id), TypeAdapter(Uri)
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_UNKNOWN_MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A file of a form. `name` is the client's, and can be empty. `body` is only the beginning of a file that is too
    large."""

    name: str
    media_type: str
    size: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedDocument:
    index: int
    document: PushedDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedDocument:
    """A document that breaks a rule. `id` is empty if the document has no valid one."""

    index: int
    id: str
    errors: Errors

    @property
    def too_large(self) -> str:
        """The message of the error that the document is too large; empty if there is none."""
        return next((str(error["msg"]) for error in self.errors if error["type"] == "too_large"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedIngest:
    """A valid request. Equal requests have equal fingerprints, even if the spaces or escapes of their JSON differ."""

    collection: str
    profile: str
    source: SourceBody | None
    accepted: Sequence[AcceptedDocument]
    rejected: Sequence[RejectedDocument]
    fingerprint: str


def parse_ingest_json(body: bytes) -> ParsedIngest:
    """Raises RequestValidationError if the request as a whole is invalid."""
    tree = _parse_json(body, ())
    request = _validate_model(IngestBody, tree)
    parsed = [_parse_json_document(index, document) for index, document in enumerate(request.documents)]
    accepted, rejected = _reject_duplicates("documents", parsed)
    return ParsedIngest(
        collection=request.collection,
        profile=request.profile or "",
        source=request.source,
        accepted=accepted,
        rejected=rejected,
        fingerprint=_hash_request(tree),
    )


def parse_ingest_form(fields: Mapping[str, str], files: Sequence[UploadedFile]) -> ParsedIngest:
    """Raises RequestValidationError if a field is invalid, or if there is no file."""
    if not files:
        raise _validation_error(("files",), "missing", "the form must have at least one file")
    tree: dict[str, Any] = dict(fields)
    for name in tree.keys() & {"access", "metadata"}:
        tree[name] = _parse_json(tree[name].encode(errors="surrogatepass"), (name,))
    request = _validate_model(UploadBody, tree)
    parsed = [_parse_uploaded_file(index, file, request) for index, file in enumerate(files)]
    accepted, rejected = _reject_duplicates("files", parsed)
    contents = [(file.name, file.media_type, sha256(file.body).hexdigest()) for file in files]
    return ParsedIngest(
        collection=request.collection,
        profile=request.profile or "",
        source=None,
        accepted=accepted,
        rejected=rejected,
        fingerprint=_hash_request([tree, contents]),
    )


def raise_field_error(name: str, rule: str) -> NoReturn:
    raise _validation_error((name,), "form", rule)


def raise_unknown_profile(name: str, profiles: Iterable[str]) -> NoReturn:
    message = f"profile must be one of {', '.join(sorted(profiles))}, got {name!r}"
    raise _validation_error(("profile",), "unknown", message)


def _parse_json(text: bytes, location: Location) -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_reject_constant)
    except RecursionError:
        raise _validation_error(location, "json_invalid", "the JSON is nested too deeply") from None
    except ValueError as error:
        raise _validation_error(location, "json_invalid", f"invalid JSON: {error}") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"not a JSON number: {name}")


def _validate_model(model: type[B], tree: object) -> B:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise RequestValidationError(_list_errors(error, ())) from None


def _parse_json_document(index: int, value: object) -> AcceptedDocument | RejectedDocument:
    """The default id is the uri, or else a hash of the text."""
    try:
        body = DocumentBody.model_validate(value)
        content, media_type = _encode_content(body)
    except ValidationError as error:
        return RejectedDocument(index=index, id=_valid_id(value), errors=_list_errors(error, ("documents", index)))
    id = body.id or body.uri or _hash_id(content)
    document = PushedDocument(
        id=id,
        body=content,
        media_type=media_type,
        title=body.title,
        url=body.uri,
        metadata=body.metadata,
        access=body.access,
    )
    return AcceptedDocument(index=index, document=document)


def _encode_content(body: DocumentBody) -> tuple[bytes, str]:
    """The bytes to store, and their media type: the text, or an object with the chunks that the document brings."""
    if not (body.chunks or body.vector):
        return body.text.encode(), PLAIN_TEXT
    given = given_documents.DocumentBody(
        text=body.text, chunks=tuple(body.chunks), vector=tuple(body.vector), model=body.model
    )
    return given.model_dump_json(exclude_defaults=True).encode(), given_documents.GIVEN_MEDIA_TYPE


def _valid_id(value: object) -> str:
    """The id of a rejected document, or an empty string if it has no valid one."""
    try:
        return _ID_TYPE.validate_python(value["id"]) if isinstance(value, dict) and "id" in value else ""
    except ValidationError:
        return ""


def _parse_uploaded_file(index: int, file: UploadedFile, request: UploadBody) -> AcceptedDocument | RejectedDocument:
    """The id is the file name, or else a hash of the bytes."""
    location: Location = ("files", index)
    try:
        name = _ID_TYPE.validate_python(file.name)
    except ValidationError as error:
        return RejectedDocument(index=index, id="", errors=_list_errors(error, location))
    if not file.body.strip():
        row = _error_row(location, "blank", "a file must not be blank")
        return RejectedDocument(index=index, id=name, errors=[row])
    if file.size > MAX_FILE_BYTES:
        limit, size = MAX_FILE_BYTES / MEGABYTE, file.size / MEGABYTE
        row = _error_row(location, "too_large", f"a file must have at most {limit:g} MB, got {size:.1f}")
        return RejectedDocument(index=index, id=name, errors=[row])
    document = PushedDocument(
        id=name or _hash_id(file.body),
        body=file.body,
        media_type=file.media_type if _MEDIA_TYPE.fullmatch(file.media_type) else _UNKNOWN_MEDIA_TYPE,
        url=_uri_of_file(name),
        metadata=request.metadata,
        access=request.access,
    )
    return AcceptedDocument(index=index, document=document)


def _uri_of_file(name: str) -> str:
    """The file name if it is a complete URI, else an empty string."""
    try:
        return _URI_TYPE.validate_python(name) if "://" in name else ""
    except ValidationError:
        return ""


def _reject_duplicates(
    member: str, documents: Iterable[AcceptedDocument | RejectedDocument]
) -> tuple[list[AcceptedDocument], list[RejectedDocument]]:
    """Accepts the first document with an id, and rejects further ones with the same id."""
    accepted: dict[str, AcceptedDocument] = {}
    rejected = []
    for document in documents:
        if isinstance(document, RejectedDocument):
            rejected.append(document)
            continue
        id, index = document.document.id, document.index
        if first := accepted.get(id):
            message = f"the ids of a request must be distinct; document {first.index} has this id too"
            rejected.append(
                RejectedDocument(index=index, id=id, errors=[_error_row((member, index), "duplicate", message)])
            )
        else:
            accepted[id] = document
    return list(accepted.values()), rejected


def _hash_id(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _hash_request(tree: object) -> str:
    return sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _validation_error(location: Location, kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([_error_row(location, kind, message)])


def _list_errors(error: ValidationError, location: Location) -> Errors:
    """The first `MAX_ERRORS` errors, with positions relative to the body."""
    rows = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]
    return [_error_row((*location, *map(_shorten_key, row["loc"])), row["type"], row["msg"]) for row in rows]


def _error_row(location: Location, kind: str, message: str) -> Mapping[str, Any]:
    return {"loc": ("body", *location), "type": kind, "msg": message}


def _shorten_key(part: str | int) -> str | int:
    """Shortens a key of the body. A client's key can have any length, and characters that UTF-8 cannot encode."""
    return part[:MAX_SHOWN_CHARS].encode(errors="replace").decode() if isinstance(part, str) else part
