"""The actions of a PDF that start a program: /Launch, unless it opens a document."""

import re
from collections.abc import Iterable

from rag_core.cpu_limit import check_cpu
from rag_core.parsing.detection import suffix_of

_LONGEST_ACTION = 4_000
"""The bytes on either side of the action's name in which its dictionary must begin and end."""
_BRACKETS = re.compile(rb"<<|>>")
_TARGET_KEY = re.compile(rb"/(?:F|UF|DOS|Unix|Mac|Win)(?![\w#])[\s\0]*")
_FILE_NAME = re.compile(rb"\(((?:[^()\\\r\n\0]|\\\\)+)\)")
_OTHER_SPELLINGS = re.compile(rb"[#%]|/P(?![\w#])")
"""Names with codes, comments, and the parameters of a program."""
_REMOTE = re.compile(rb"\\\\\\\\|//|[a-z]+://", re.IGNORECASE)


def starts_program(pdf: bytes, start: int, end: int, document_suffixes: frozenset[str]) -> bool:
    """True unless all targets of the action that has /Launch at [start, end) are documents.

    A target that cannot be read counts as a program.
    """
    check_cpu()
    action = _enclosing_dictionary(pdf[max(0, start - _LONGEST_ACTION) : start], pdf[end : end + _LONGEST_ACTION])
    targets = list(_TARGET_KEY.finditer(action))
    # a bracket of another string can hide the dictionary's own beginning or end
    has_other_strings = re.search(rb"[()]", _FILE_NAME.sub(b"", action))
    if not targets or has_other_strings or _OTHER_SPELLINGS.search(action):
        return True
    return not all(_is_document(action, target.end(), document_suffixes) for target in targets)


def _enclosing_dictionary(before: bytes, after: bytes) -> bytes:
    """The content of the innermost dictionary; empty if it does not begin in `before` and end in `after`."""
    begin = _find_unpaired(reversed(list(_BRACKETS.finditer(before))), b"<<")
    end = _find_unpaired(_BRACKETS.finditer(after), b">>")
    if not begin or not end or b"%" in re.split(rb"[\r\n]", before[: begin.start()])[-1]:
        return b""
    return before[begin.end() :] + after[: end.start()]


def _find_unpaired(brackets: Iterable[re.Match[bytes]], wanted: bytes) -> re.Match[bytes] | None:
    depth = 0
    for bracket in brackets:
        depth += -1 if bracket[0] == wanted else 1
        if depth < 0:
            return bracket
    return None


def _is_document(action: bytes, value: int, document_suffixes: frozenset[str]) -> bool:
    """True for a local document, and for a dictionary, whose own keys are targets, too."""
    if action.startswith(b"<<", value):
        return True
    name = _FILE_NAME.match(action, value)
    if not name or _REMOTE.match(name[1]):
        return False
    return suffix_of(name[1].decode("latin-1").replace("\\", "/")) in document_suffixes
