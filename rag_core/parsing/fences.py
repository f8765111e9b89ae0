"""The fences of Markdown's code blocks. The VERSION of `markdown` covers this module."""

import re
from dataclasses import dataclass

FENCE = r"(?P<lead>[ \t]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*+)(?P<fence>`{3,}|~{3,})(?P<language>[^\n]*)"
"""A line that can open or close a block of code, including after the marker of a list item."""

_TAB_COLUMNS = 4
_MAX_INDENT = 3  # columns by which a closing fence can be further right than the opening one


@dataclass
class FenceState:
    """The code block that is open: its fence, or '', and the fence's column."""

    fence: str = ""
    column: int = 0

    def advance(self, line: re.Match[str]) -> bool:
        """Moves past a line; True if it is a fence or inside a code block.

        `line` has the groups of FENCE; its group `fence` is None or '' if the line is not a fence.
        """
        fence = line["fence"] or ""
        if self.fence:
            if fence.startswith(self.fence) and not line["language"].strip():
                # after the marker of a list item, a fence would begin another block
                follows_marker = bool(line["lead"].strip(" \t>"))
                if not follows_marker and _end_column(line["lead"]) <= self.column + _MAX_INDENT:
                    self.fence = ""
            return True
        opens = fence and not (fence[0] == "`" and "`" in line["language"])
        self.fence, self.column = (fence, _end_column(line["lead"])) if opens else ("", 0)
        return bool(fence)


def _end_column(lead: str) -> int:
    return len(lead.expandtabs(_TAB_COLUMNS))
