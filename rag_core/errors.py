"""Every failure that the program can meet, as one tree.

RagError                      exit 1   something failed, and the message says what
├── UsageError                exit 2   the command or a value in it is wrong
│   ├── ConfigError                    a setting breaks a rule
│   ├── FilterError                    a metadata filter breaks the grammar
│   ├── DumpError                      a dump is missing, damaged or newer, or would replace something
│   ├── DatasetError                   a dataset cannot be read, or a line in it breaks a rule
│   ├── SourceError                    a source cannot be used: unknown scheme, overlap, missing
│   │   ├── LocationError              a request cannot name this location
│   │   └── UnsharedFolderError        nodes of a Ray cluster do not see the files of a local folder
│   ├── SpaceError                     the embedder does not fit the stored vectors
│   ├── VectorError                    a vector has another dimension, or no direction: NaN, zeros
│   ├── ConfirmationError              a deletion is larger than what is done without confirmation
│   ├── TooLargeError                  a request exceeds a size limit
│   ├── LimitError                     a queued job exceeds its number of documents or its time
│   ├── IdempotencyError               an idempotency key was used before, for another request
│   ├── ReadOnlyError                  a read-only gateway changes nothing
│   ├── AuthenticationError            a request has no valid key or token
│   ├── ScopeError                     a caller lacks the scope that a request needs
│   └── NotFoundError                  there is no such collection, document or job
├── UnavailableError          exit 3   something that the command depends on is unavailable
│   ├── StoreError                     Postgres cannot be reached or started
│   ├── ClusterError                   Ray cannot be reached or started, or lost a part of a job
│   │   └── NodeLostError              a Ray cluster lost so many nodes that a job does not fit on the others
│   ├── ListingError                   a source could not be listed completely: nothing is deleted
│   ├── ModelError                     a model's files are missing or unreadable, or its deployment broke
│   ├── MissingExtraError              a library is not installed that an extra installs; also an ImportError
│   ├── BusyError                      another job holds the source
│   ├── OverloadedError                a queue is full; a later attempt can succeed
│   ├── RateLimitedError               a tenant or a user exceeds a rate limit; it can be tried again later
│   ├── CircuitOpenError               a dependency failed repeatedly and is not called for a while
│   ├── RetrievalError                 a leg or a reranker broke, or every leg of a retriever did
│   ├── GenerationError                a generator, or the endpoint behind it, refused or broke
│   │   ├── TruncatedError             an answer reached its token limit; the text so far is kept
│   │   └── RefusedError               the endpoint rejects the request for good: also a UsageError
│   ├── JudgeError                     an answer could not be judged
│   └── StageTimeoutError              a stage of a request ran out of time
├── EncryptionError           exit 1   a stored text cannot be decrypted
├── InvalidRunError           exit 5   an evaluation is too incomplete, or differs from its base in what it measures
├── ResponseError                      a server is no gateway, or another version of it
├── DocumentError             a row    one document failed; the job continues
│   └── TransientError                 its source failed temporarily: it is read again later
├── StoppedError                       the process was asked to end; the next sync goes on
├── FencedError               a worker another worker has taken over the job
└── TurnOverError             a worker the job gives its runner to other jobs, and continues later

Constructors take positional arguments only: keyword-only ones do not survive pickling, and so not Ray.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from math import ceil
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pydantic import ValidationError


class RagError(Exception):
    """The root of all failures that the program names. `exit_code` is that of a command which ends with it."""

    exit_code = 1


class UsageError(RagError):
    """The command, the request or a value in it is wrong; repeating it cannot succeed."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting breaks a rule. The message names the setting, the rule and the value."""


class FilterError(UsageError):
    """A metadata filter breaks the grammar of `rag_core.storage.filters`."""


class DumpError(UsageError):
    """A dump cannot be used: it is missing, damaged or newer than the program, or would replace something."""


class DatasetError(UsageError):
    """An evaluation dataset cannot be read, or a line in it breaks a rule. The message names file and line."""


class SourceError(UsageError):
    """A source cannot be used: its scheme is unknown, it does not exist, or it overlaps another source."""


class LocationError(SourceError):
    """A request names a location outside `ingestion.allowed_locations`, or one at a forbidden address."""


class UnsharedFolderError(SourceError):
    """Nodes of a Ray cluster do not see the files of a local folder that a job would read there."""


class SpaceError(UsageError):
    """The embedding model of the profile is not the one that produced the stored vectors."""


class VectorError(UsageError):
    """A vector has another dimension than its space, or no direction because of NaN, infinity or zeros."""


class ConfirmationError(UsageError):
    """A sync would delete a larger share of a source than it may delete without confirmation."""


class TooLargeError(UsageError):
    """A request exceeds a size limit."""


class LimitError(UsageError):
    """A queued job exceeds the number of documents or the time that it can have."""


class IdempotencyError(UsageError):
    """An idempotency key was used before, for another request."""


class ReadOnlyError(UsageError):
    """A request would change something, but `api.read_only` is set."""


class AuthenticationError(UsageError):
    """A request has no credentials, or invalid ones. The message does not contain them."""


class ScopeError(UsageError):
    """The caller lacks `scope`. `hint` says what to do."""

    def __init__(self, scope: str, hint: str = "") -> None:
        super().__init__(scope, hint)
        self.scope, self.hint = scope, hint

    def __str__(self) -> str:
        return f"this request needs the scope {self.scope}, which the credentials do not have{self.hint}"


class NotFoundError(UsageError):
    """The tenant has no such collection, document, chunk or job."""


class UnavailableError(RagError):
    """Something that the work depends on is unavailable; a later attempt can succeed."""

    exit_code = 3


class StoreError(UnavailableError):
    """Postgres cannot be reached or started, or the connection was lost."""


class ClusterError(UnavailableError):
    """Ray cannot be reached or started, or lost a part of a job."""


class NodeLostError(ClusterError):
    """A Ray cluster lost a node, and the actors of a job do not fit on the others."""


class ListingError(UnavailableError):
    """A source could not be listed completely, so none of its documents is deleted."""


class ModelError(UnavailableError):
    """A model's files are missing or unreadable, or its deployment broke."""


class MissingExtraError(UnavailableError, ImportError):
    """A library is not installed that an extra installs."""


class BusyError(UnavailableError):
    """Another job holds the source."""


class OverloadedError(UnavailableError):
    """A queue is full."""


class RateLimitedError(UnavailableError):
    """A caller exceeds a rate limit. It has room for the request again in `seconds`."""

    def __init__(self, rule: str, seconds: float) -> None:
        super().__init__(rule, seconds)
        self.rule, self.seconds = rule, seconds

    def __str__(self) -> str:
        return f"{self.rule}; send the request again in {ceil(self.seconds)} s"


class CircuitOpenError(UnavailableError):
    """A dependency failed several times in a row and is not called for a while."""


class RetrievalError(UnavailableError):
    """A leg or a reranker broke, or every leg of a retriever did."""


class GenerationError(UnavailableError):
    """A generator, or the endpoint behind it, refused or broke."""


class TruncatedError(GenerationError):
    """An answer reached its token limit; the text so far is kept."""


class RefusedError(GenerationError, UsageError):
    """The endpoint rejects the request, and would reject it again."""


class JudgeError(UnavailableError):
    """An answer could not be judged."""


class StageTimeoutError(UnavailableError):
    """A stage of a request ran out of time; `time_limit` is in seconds."""

    def __init__(self, stage: str, time_limit: float) -> None:
        super().__init__(stage, time_limit)
        self.stage, self.time_limit = stage, time_limit

    def __str__(self) -> str:
        return f"{self.stage} took longer than {self.time_limit:.3f} s"


class EncryptionError(RagError):
    """A stored text cannot be decrypted: its key is missing, or it was changed. The message has no text."""


class InvalidRunError(RagError):
    """An evaluation cannot be judged: too few of its values could be computed, or its base measured something else."""

    exit_code = 5


class ResponseError(RagError):
    """A server's response breaks the gateway's API: it is another program, or another version of the gateway."""


class DocumentError(RagError):
    """One document failed in `stage`; `status` is `skipped` if there was nothing to do."""

    def __init__(
        self, stage: str, reason: str, retryable: bool = False, status: Literal["failed", "skipped"] = "failed"
    ) -> None:
        super().__init__(stage, reason, retryable, status)
        self.stage, self.reason, self.retryable, self.status = stage, reason, retryable, status

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"


class TransientError(DocumentError):
    """A source failed temporarily. Always retryable."""


class StoppedError(RagError):
    """The process received SIGTERM. What it has published stays."""


class FencedError(RagError):
    """The job was cancelled or taken over by another worker, so this worker's write was rejected."""


class TurnOverError(RagError):
    """The job gives its runner to other jobs that wait. It continues later where it stopped."""


def error_from_reason(reason: str) -> RagError:
    """The failure that a job stored as `SomeError: its message`; UnavailableError if the class is not one of ours."""
    name, _, message = reason.partition(": ")
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, RagError) and kind.__init__ is RagError.__init__):
        return UnavailableError(reason)
    return kind(message)


def describe_error(error: BaseException) -> str:
    """The class and the message of an exception. `error_from_reason` reads this form."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def suggest_name(name: str, names: Iterable[str], prefix: str = "") -> str:
    """`; did you mean X?` with the most similar name, after a prefix; empty if none is similar."""
    matches = get_close_matches(name, list(names), 1)
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message. Other libraries add lines of advice."""
    return str(error).strip().partition("\n")[0]


@contextmanager
def translate_foreign_errors(kind: Callable[[str], RagError]) -> Iterator[None]:
    """Turns the errors of a user's own object, which have no common base class, into `kind`. RagErrors pass."""
    try:
        yield
    except RagError:
        raise
    except Exception as error:
        raise kind(describe_error(error)) from error


def validation_lines(error: "ValidationError", *path: str | int) -> list[str]:
    """One line per error of pydantic: the path of the key, the rule and the value. The paths begin with `path`.

    An unknown key has no value in its line, because it can be a secret.
    """
    return [
        f"{format_path(*path, *row['loc'])}: "
        + ("unknown key" if row["type"] == "extra_forbidden" else f"{row['msg']}, got {row['input']!r:.60}")
        for row in error.errors()
    ]


def format_path(*path: str | int) -> str:
    """A path such as `applications[0].deployments[2]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".") or "the file"
