"""The fences of Markdown's code blocks. Its version is `markdown`'s."""

import re
from dataclasses import dataclass

FENCE = r"(?P<lead>[ \t]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*+)(?P<fence>`{3,}|~{3,})(?P<language>[^\n]*)"
"""A line that may open or close a block of code, also right behind the marker of a list."""

_TAB = 4
_DEEPER = 3  # columns by which a closing fence may stand deeper than the opening one


@dataclass
class Fence:
    """The code block that is open: its marks, or '', and in which column they stand."""

    marks: str = ""
    column: int = 0

    def hides(self, mark: re.Match[str]) -> bool:
        """`mark` has the groups of FENCE; `fence` is None, or '', for what is none."""
        found = mark["fence"] or ""
        if self.marks:
            closes = found.startswith(self.marks) and not mark["language"].strip() and self._holds(mark["lead"])
            self.marks = "" if closes else self.marks
            return True
        opens = found and not (found[0] == "`" and "`" in mark["language"])
        self.marks, self.column = (found, _column(mark["lead"])) if opens else ("", 0)
        return bool(found)

    def _holds(self, lead: str) -> bool:
        """Behind a list's marker another block would begin."""
        return not lead.strip(" \t>") and _column(lead) <= self.column + _DEEPER


def _column(lead: str) -> int:
    return len(lead.expandtabs(_TAB))
