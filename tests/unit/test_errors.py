import pickle
import re

import pytest

from rag_core import errors
from rag_core.errors import DocumentError, RagError, StageTimeoutError, TransientError, UsageError

_LINE = re.compile(r"^([│├└─ ]*)(\w+Error) +(?:exit (\d)|a row|a worker)?")


def drawn() -> dict[str, tuple[str, int | None]]:
    """Every class of the docstring's tree, with its parent and the exit code that stands beside it."""
    tree: dict[str, tuple[str, int | None]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := _LINE.match(line):
            depth = len(found[1]) // 4
            above[depth:] = [found[2]]
            tree[found[2]] = (above[depth - 1] if depth else "Exception", int(found[3]) if found[3] else None)
    return tree


def defined() -> dict[str, type[RagError]]:
    return {name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, RagError)}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert {name: each.__bases__[0].__name__ for name, each in defined().items()} == {
        name: parent for name, (parent, _) in drawn().items()
    }


def test_the_exit_codes_are_as_drawn_and_those_below_have_their_parents() -> None:
    tree = drawn()

    def exit_code(name: str) -> int:
        parent, code = tree[name]
        return code if code is not None else exit_code(parent)

    assert {name: each.exit_code for name, each in defined().items()} == {name: exit_code(name) for name in tree}
    assert {code for _, code in tree.values() if code is not None} == {1, 2, 3}


def examples() -> list[RagError]:
    special = {
        StageTimeoutError: StageTimeoutError("rerank", 0.05),
        DocumentError: DocumentError("parse", "page 3 has no text layer", True, "skipped"),
        TransientError: TransientError("read", "connection reset", True),
    }
    return [special.get(each) or each("a message") for each in defined().values()]


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: RagError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is type(error)
    assert (copy.args, str(copy), vars(copy)) == (error.args, str(error), vars(error))


def test_errors_say_their_facts_in_one_line() -> None:
    assert str(StageTimeoutError("rerank", 0.05)) == "rerank took longer than 0.050 s"
    assert str(DocumentError("parse", "page 3 has no text layer")) == "parse: page 3 has no text layer"
    assert str(UsageError("overlap must be in [0, size), got 60 of 50")) == "overlap must be in [0, size), got 60 of 50"
