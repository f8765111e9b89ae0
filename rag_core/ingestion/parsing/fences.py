"""The fences of Markdown's code blocks. Its version is `markdown`'s."""

import re
from dataclasses import dataclass


@dataclass
class Fence:
    """The code block that is open: its marks, or ''."""

    marks: str = ""

    def hides(self, mark: re.Match[str]) -> bool:
        found = mark["fence"] or ""
        if self.marks:
            closes = found.startswith(self.marks) and not mark["language"].strip()
            self.marks = "" if closes else self.marks
            return True
        opens = found and not (found[0] == "`" and "`" in mark["language"])
        self.marks = found if opens else ""
        return bool(found)
