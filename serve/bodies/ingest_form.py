"""An ingest request, read: as a whole it is right or refused, and each of its documents is so by itself."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn, TypeAlias, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError

from rag_core.storage.queue import PushedDocument
from serve.bodies.ingest import MEGABYTE, DocumentBody, Id, IngestBody, SourceBody, UploadBody, Uri
from serve.http.problems import MOST_ERRORS

LARGEST_FILE = 50 * MEGABYTE
LONGEST_SHOWN = 80

Errors: TypeAlias = Sequence[Mapping[str, Any]]
"""As pydantic tells them, with where they stand in the body."""

Place: TypeAlias = tuple[str | int, ...]
Asked = TypeVar("Asked", bound=BaseModel)

_NAME, _URI = TypeAdapter(Id), TypeAdapter(Uri)
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_UNKNOWN = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of a form: its name as the client gave it, which may be empty, and its bytes, of one that is too large
    only the first."""

    name: str
    media_type: str
    size: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    index: int
    document: PushedDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """`id` is empty where none was given, or none that may be repeated."""

    index: int
    id: str
    errors: Errors

    @property
    def too_large(self) -> str:
        """What is, and how large it may be; empty if nothing is."""
        return next((str(error["msg"]) for error in self.errors if error["type"] == "too_large"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The fingerprint is the same for the same request, however it was spaced and encoded on its way."""

    collection: str
    profile: str
    source: SourceBody | None
    taken: Sequence[Taken]
    refused: Sequence[Refused]
    fingerprint: str


def received_json(body: bytes) -> Received:
    """RequestValidationError if it is wrong as a whole."""
    tree = _parsed(body, ())
    asked = _validated(IngestBody, tree, ())
    taken, refused = _told_apart("documents", (_document(index, each) for index, each in enumerate(asked.documents)))
    return Received(
        collection=asked.collection,
        profile=asked.profile or "",
        source=asked.source,
        taken=taken,
        refused=refused,
        fingerprint=_fingerprint(tree),
    )


def received_form(fields: Mapping[str, str], files: Sequence[Upload]) -> Received:
    """RequestValidationError for fields that are wrong, or no file at all."""
    if not files:
        raise _invalid(("files",), "missing", "there must be at least one file")
    tree: dict[str, Any] = dict(fields)
    if "metadata" in tree:
        tree["metadata"] = _parsed(tree["metadata"].encode(errors="surrogatepass"), ("metadata",))
    asked = _validated(UploadBody, tree, ())
    taken, refused = _told_apart("files", (_file(index, each, asked.metadata) for index, each in enumerate(files)))
    return Received(
        collection=asked.collection,
        profile=asked.profile or "",
        source=None,
        taken=taken,
        refused=refused,
        fingerprint=_fingerprint([tree, [_facts(each) for each in files]]),
    )


def refuse_field(name: str, rule: str) -> NoReturn:
    raise _invalid((name,), "form", rule)


def refuse_profile(name: str, known: Iterable[str]) -> NoReturn:
    raise _invalid(("profile",), "unknown", f"profile must be one of {', '.join(sorted(known))}, got {name!r}")


def _parsed(text: bytes, place: Place) -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_no_number)
    except RecursionError:
        raise _invalid(place, "json_invalid", "the JSON is nested too deep") from None
    except ValueError as error:
        raise _invalid(place, "json_invalid", f"no JSON: {error}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _validated(kind: type[Asked], tree: object, place: Place) -> Asked:
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise RequestValidationError(_errors(error, place)) from None


def _document(index: int, given: object) -> Taken | Refused:
    try:
        body = DocumentBody.model_validate(given)
    except ValidationError as error:
        return Refused(index=index, id=_id(given), errors=_errors(error, ("documents", index)))
    content = body.text.encode()
    id = body.id or body.uri or _hashed(content)
    document = PushedDocument(id=id, body=content, title=body.title, url=body.uri, metadata=body.metadata)
    return Taken(index=index, document=document)


def _file(index: int, given: Upload, metadata: Mapping[str, Any]) -> Taken | Refused:
    place: Place = ("files", index)
    try:
        name = _NAME.validate_python(given.name)
    except ValidationError as error:
        return Refused(index=index, id="", errors=_errors(error, place))
    if not given.body.strip():
        return Refused(index=index, id=name, errors=[_error(place, "blank", "a file must not be blank")])
    if given.size > LARGEST_FILE:
        return Refused(index=index, id=name, errors=[_too_large(place, given.size)])
    document = PushedDocument(
        id=name or _hashed(given.body),
        body=given.body,
        media_type=given.media_type if _MEDIA_TYPE.fullmatch(given.media_type) else _UNKNOWN,
        url=_url(name),
        metadata=metadata,
    )
    return Taken(index=index, document=document)


def _url(name: str) -> str:
    """A name that is a whole URI says where the file stands."""
    try:
        return _URI.validate_python(name) if "://" in name else ""
    except ValidationError:
        return ""


def _too_large(place: Place, size: int) -> Mapping[str, Any]:
    limit, got = LARGEST_FILE / MEGABYTE, size / MEGABYTE
    return _error(place, "too_large", f"a file must have at most {limit:g} MB, got {got:.1f}")


def _told_apart(member: str, each: Iterable[Taken | Refused]) -> tuple[list[Taken], list[Refused]]:
    """An id is the first one's who has it."""
    taken: dict[str, Taken] = {}
    refused = []
    for one in each:
        if isinstance(one, Refused):
            refused.append(one)
        elif first := taken.get(one.document.id):
            refused.append(_duplicate((member, one.index), one, first))
        else:
            taken[one.document.id] = one
    return list(taken.values()), refused


def _duplicate(place: Place, one: Taken, first: Taken) -> Refused:
    message = f"each document of a request must have an id of its own; number {first.index} has this one already"
    return Refused(index=one.index, id=one.document.id, errors=[_error(place, "duplicate", message)])


def _id(given: object) -> str:
    """What a refused document calls itself, where that is an id."""
    try:
        return _NAME.validate_python(given["id"]) if isinstance(given, dict) and "id" in given else ""
    except ValidationError:
        return ""


def _hashed(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _facts(file: Upload) -> Sequence[str]:
    return file.name, file.media_type, sha256(file.body).hexdigest()


def _fingerprint(tree: object) -> str:
    return sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _invalid(place: Place, kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([_error(place, kind, message)])


def _error(place: Place, kind: str, message: str) -> Mapping[str, Any]:
    return {"loc": ("body", *place), "type": kind, "msg": message}


def _errors(error: ValidationError, place: Place) -> Errors:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_ERRORS]
    return [_error((*place, *map(_shown, each["loc"])), each["type"], each["msg"]) for each in found]


def _shown(part: str | int) -> str | int:
    """A key as the client named it may be of any length, and of letters that UTF-8 cannot write."""
    return part[:LONGEST_SHOWN].encode(errors="replace").decode() if isinstance(part, str) else part
