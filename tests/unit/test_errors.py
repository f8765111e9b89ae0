import pickle
import re

import pytest
from pydantic import BaseModel, ValidationError

from rag_core import errors
from rag_core.errors import (
    ConfigError,
    DocumentError,
    JudgeError,
    RagError,
    RateLimitedError,
    StageTimeoutError,
    TransientError,
    UsageError,
    describe_error,
    error_from_reason,
    first_line,
    translate_foreign_errors,
    validation_lines,
)

_LINE = re.compile(r"^([│├└─ ]*)(\w+Error) +(?:exit (\d)|a row|a worker)?")


def read_error_tree() -> dict[str, tuple[str, int | None]]:
    """Every class of the docstring's tree, with its parent and the exit code that stands beside it."""
    tree: dict[str, tuple[str, int | None]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := _LINE.match(line):
            depth = len(match[1]) // 4
            above[depth:] = [match[2]]
            tree[match[2]] = (above[depth - 1] if depth else "Exception", int(match[3]) if match[3] else None)
    return tree


def list_error_classes() -> dict[str, type[RagError]]:
    return {
        name: error_class
        for name, error_class in vars(errors).items()
        if isinstance(error_class, type) and issubclass(error_class, RagError)
    }


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert {name: error_class.__bases__[0].__name__ for name, error_class in list_error_classes().items()} == {
        name: parent for name, (parent, _) in read_error_tree().items()
    }


def test_the_exit_codes_are_as_drawn_and_those_below_have_their_parents() -> None:
    tree = read_error_tree()

    def exit_code(name: str) -> int:
        parent, code = tree[name]
        return code if code is not None else exit_code(parent)

    assert {name: error_class.exit_code for name, error_class in list_error_classes().items()} == {
        name: exit_code(name) for name in tree
    }
    assert {code for _, code in tree.values() if code is not None} == {1, 2, 3, 5}


def examples() -> list[RagError]:
    special = {
        RateLimitedError: RateLimitedError("a user can use at most 5 searches a minute", 2.1),
        StageTimeoutError: StageTimeoutError("rerank", 0.05),
        DocumentError: DocumentError("parse", "page 3 has no text layer", True, "skipped"),
        TransientError: TransientError("read", "connection reset", True),
    }
    return [special.get(error_class) or error_class("a message") for error_class in list_error_classes().values()]


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: RagError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is type(error)
    assert (copy.args, str(copy), vars(copy)) == (error.args, str(error), vars(error))


def test_errors_say_their_facts_in_one_line() -> None:
    assert str(StageTimeoutError("rerank", 0.05)) == "rerank took longer than 0.050 s"
    assert str(DocumentError("parse", "page 3 has no text layer")) == "parse: page 3 has no text layer"
    assert str(UsageError("overlap must be in [0, size), got 60 of 50")) == "overlap must be in [0, size), got 60 of 50"


def test_an_error_is_described_by_its_class_and_message_which_can_be_read_again() -> None:
    assert describe_error(ValueError("no\nnever")) == "ValueError: no\nnever"
    assert describe_error(KeyError()) == "KeyError"
    again = error_from_reason(describe_error(ConfigError("k must be 1")))
    assert (type(again), str(again)) == (ConfigError, "k must be 1")


def test_the_first_line_of_a_message_is_without_the_advice_below_it() -> None:
    assert first_line(OSError("\nno such file\nTry another.")) == "no such file"
    assert first_line(OSError()) == ""


def test_errors_of_a_users_own_object_are_translated_and_ours_are_not() -> None:
    with (
        pytest.raises(JudgeError, match=r"^ZeroDivisionError: division by zero$") as caught,
        translate_foreign_errors(JudgeError),
    ):
        print(1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ConfigError, match=r"^k$"), translate_foreign_errors(JudgeError):
        raise ConfigError("k")


def test_each_error_of_a_validation_is_a_line_with_key_rule_and_value() -> None:
    class Leg(BaseModel):
        depth: int

    class Legs(BaseModel):
        legs: list[Leg]

    with pytest.raises(ValidationError) as caught:
        Legs.model_validate({"legs": [{"depth": 1}, {"depth": "x" * 100}, {}]})
    first, second = validation_lines(caught.value, "retrieval")
    assert first == (
        "retrieval.legs[1].depth: Input should be a valid integer, unable to parse string as an integer, "
        f"got '{'x' * 59}"
    )
    assert second == "retrieval.legs[2].depth: Field required, got {}"
    with pytest.raises(ValidationError) as caught:
        Legs.model_validate([])
    assert validation_lines(caught.value) == [
        "the file: Input should be a valid dictionary or instance of Legs, got []"
    ]
