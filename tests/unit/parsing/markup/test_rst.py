import pytest

from rag_core.parsing.markup.rst import RstParser
from rag_core.types import Document


def parse(text: str) -> Document:
    return RstParser().parse("file:///a.rst", text.encode())


def test_headings_have_levels_in_the_order_of_their_rules() -> None:
    document = parse("=====\nMills\n=====\n\nWheel\n-----\nIt turns.\n\nAxle\n~~~~\n\nWind\n----\n\n-----\n\nEnd.\n")
    assert document.text == "# Mills\n\n## Wheel\n\nIt turns.\n\n### Axle\n\n## Wind\n\nEnd.\n"
    assert [section.path for section in document.sections] == [
        ("Mills",),
        ("Mills", "Wheel"),
        ("Mills", "Wheel", "Axle"),
        ("Mills", "Wind"),
    ]
    assert document.title == "Mills"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See :ref:`the gates <gates>` and :class:`~a.Gate`.", "See the gates and a.Gate."),
        ("A `link <https://a.b>`_, a `name`_ and word_ [1]_.", "A link, a name and word [1]."),
        ("Call ``open(a_)`` *now*.", "Call `open(a_)` *now*."),
        (".. |x| replace:: gates\n\nThe |x| open.", "The gates open."),
        ("dunder __init__ and a_b stay", "dunder __init__ and a_b stay"),
    ],
)
def test_roles_and_references_become_their_text(text: str, expected: str) -> None:
    assert parse(text).text == f"{expected}\n"


def test_lists_are_nested_by_their_indentation() -> None:
    text = "* one\n  goes on\n\n  - inner\n\n* two\n\n3. three\n#. four\n\n(a) five\n"
    assert parse(text).text == "- one goes on\n    - inner\n- two\n3. three\n1. four\n- (a) five\n"


def test_code_is_fenced() -> None:
    text = "Run::\n\n   make\n\n     all\n\n.. code-block:: python\n   :linenos:\n\n   x = 1\n\n>>> x\n1\n\n::\n\n  y\n"
    assert parse(text).text == (
        "Run:\n\n```\nmake\n\n  all\n```\n\n```python\nx = 1\n```\n\n```python\n>>> x\n1\n```\n\n```\ny\n```\n"
    )


def test_directives_keep_what_they_say() -> None:
    text = (
        ".. note:: Gates are\n   heavy.\n\n   Very.\n\n.. versionadded:: 3.2\n   The gate.\n\n"
        ".. figure:: a.png\n   :alt: A gate\n\n   Its caption.\n\n.. py:function:: open(gate)\n\n   Opens it.\n"
    )
    assert parse(text).text == (
        "Note: Gates are heavy.\n\nVery.\n\nNew in version 3.2 The gate.\n\nA gate\n\nIts caption.\n\n"
        "`open(gate)`\n\nOpens it.\n"
    )


def test_comments_targets_and_lists_of_contents_are_left_out() -> None:
    text = (
        ".. _gates:\n\n.. a comment\n   of two lines\n\n..\n   another\n\n"
        ".. toctree::\n   :maxdepth: 2\n\n   a\n   b\n\n"
        "__ https://a.b\n\n.. include:: /etc/passwd\n\n.. raw:: html\n\n   <b>\n\n.. [1] A footnote.\n\n:orphan:\n"
    )
    assert parse(text).text == "[1] A footnote.\n"


TABLE = "| Gate | Opens |\n| --- | --- |\n| north | at nine, or later |\n| south | never |\n"


@pytest.mark.parametrize(
    "text",
    [
        "===== =======\nGate  Opens\n===== =======\nnorth at nine,\n      or later\nsouth never\n===== =======\n",
        "+-------+----------+\n| Gate  | Opens    |\n+=======+==========+\n| north | at nine, |\n|       | or later |\n"
        "+-------+----------+\n| south | never    |\n+-------+----------+\n",
        ".. list-table::\n   :header-rows: 1\n\n   * - Gate\n     - Opens\n   * - north\n     - at nine,\n"
        "       or later\n"
        "   * - south\n     - never\n",
        '.. csv-table::\n   :header: Gate, Opens\n\n   north, "at nine, or later"\n   south, never\n',
    ],
)
def test_tables_of_all_kinds_become_tables(text: str) -> None:
    assert parse(text).text == TABLE


def test_cells_over_several_columns_and_rows_are_in_their_first() -> None:
    text = "+---+---+\n| wide  |\n+---+---+\n| a | b |\n|   +---+\n|   | c |\n+---+---+\n"
    assert parse(text).text == "| wide |  |\n| --- | --- |\n| a | b c |\n"


def test_terms_fields_quotes_and_verses() -> None:
    text = "gate\n  It opens.\n\n:Author: Ann\n  Bee\n\n   quoted\n\n| one\n| two\n"
    assert parse(text).text == "gate\n\nIt opens.\n\n- Author: Ann Bee quoted\n\none\ntwo\n"


@pytest.mark.parametrize(
    "text", ["", "..", "* ", ".. note::", "====", "=== ===", "+--+", "| ", "::", ".. list-table::", " " * 40 + "x"]
)
def test_fragments_do_not_fail(text: str) -> None:
    assert parse(text).sections == ()


def test_deep_nesting_ends_as_a_paragraph() -> None:
    assert parse("\n".join(f"{' ' * depth}- {depth}" for depth in range(0, 100, 2))).text.count("98") == 1
