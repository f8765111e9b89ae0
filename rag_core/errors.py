"""Every failure that the program can meet, as one tree.

RagError                      exit 1   something failed, and the message says what
├── UsageError                exit 2   the command or a value in it is wrong
│   ├── ConfigError                    a setting breaks a rule
│   ├── FilterError                    a metadata filter that the grammar does not allow
│   ├── DatasetError                   a dataset that cannot be read, or a line in it that breaks a rule
│   ├── SourceError                    a source that cannot be used: unknown scheme, overlap, missing
│   ├── SpaceError                     the embedder does not fit the stored vectors
│   ├── VectorError                    a vector of another dimension, or one that is no direction: NaN, zeros
│   ├── ConfirmationError              more would be deleted than is done without asking
│   ├── TooLargeError                  more than one request may bring
│   ├── IdempotencyError               a key that came before, with another request
│   └── NotFoundError                  no such collection, document or job
├── UnavailableError          exit 3   something the command depends on is not there
│   ├── StoreError                     Postgres cannot be reached or started
│   ├── ClusterError                   Ray cannot be reached or started, or lost a part of a job
│   ├── ListingError                   a source could not be listed to its end: nothing is deleted
│   ├── ModelError                     a model's files are missing or cannot be read, or its deployment broke
│   ├── BusyError                      another job holds the source
│   ├── OverloadedError                more is waiting than may wait: a little later it would have been taken
│   ├── CircuitOpenError               something failed so often that it is not asked for a while
│   ├── RetrievalError                 a leg or a reranker broke, or every leg of a retriever did
│   ├── GenerationError                a generator, or the endpoint behind it, refused or broke
│   │   ├── TruncatedError             an answer reached its limit; what came of it stands
│   │   └── RefusedError               it does not take what it was asked, and would not later: also a UsageError
│   ├── JudgeError                     an answer could not be judged
│   └── StageTimeoutError              a stage of a request ran out of its time
├── DocumentError             a row    one document failed; the job goes on
│   └── TransientError                 its source did not give it for the moment: it is asked again before that
└── FencedError               a worker a newer run has taken over what this one was writing

Constructors take positional arguments only: keyword-only ones do not survive pickling, and so not Ray.
"""

from typing import Literal


class RagError(Exception):
    exit_code = 1


class UsageError(RagError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class FilterError(UsageError):
    pass


class DatasetError(UsageError):
    pass


class SourceError(UsageError):
    pass


class SpaceError(UsageError):
    pass


class VectorError(UsageError):
    pass


class ConfirmationError(UsageError):
    pass


class TooLargeError(UsageError):
    pass


class IdempotencyError(UsageError):
    pass


class NotFoundError(UsageError):
    pass


class UnavailableError(RagError):
    exit_code = 3


class StoreError(UnavailableError):
    pass


class ClusterError(UnavailableError):
    pass


class ListingError(UnavailableError):
    pass


class ModelError(UnavailableError):
    pass


class BusyError(UnavailableError):
    pass


class OverloadedError(UnavailableError):
    pass


class CircuitOpenError(UnavailableError):
    pass


class RetrievalError(UnavailableError):
    pass


class GenerationError(UnavailableError):
    pass


class TruncatedError(GenerationError):
    pass


class RefusedError(GenerationError, UsageError):
    pass


class JudgeError(UnavailableError):
    pass


class StageTimeoutError(UnavailableError):
    """`allowed` is in seconds."""

    def __init__(self, stage: str, allowed: float) -> None:
        super().__init__(stage, allowed)
        self.stage, self.allowed = stage, allowed

    def __str__(self) -> str:
        return f"{self.stage} took longer than {self.allowed:.3f} s"


class DocumentError(RagError):
    """One document failed in `stage`; `status` is `skipped` where there was nothing to do."""

    def __init__(
        self, stage: str, reason: str, retryable: bool = False, status: Literal["failed", "skipped"] = "failed"
    ) -> None:
        super().__init__(stage, reason, retryable, status)
        self.stage, self.reason, self.retryable, self.status = stage, reason, retryable, status

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"


class TransientError(DocumentError):
    """Always retryable."""


class FencedError(RagError):
    pass


def told(reason: str) -> RagError:
    """The failure that `SomeError: its message` tells of, as a job keeps it; UnavailableError with all of it for what
    is none of ours."""
    name, _, message = reason.partition(": ")
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, RagError) and kind.__init__ is RagError.__init__):
        return UnavailableError(reason)
    return kind(message)
