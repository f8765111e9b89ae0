"""Glob patterns on paths below a root, such as `docs/**/*.md`.

`*`, `?` and `[...]` stay within one name, `**` spans folders. A pattern without a slash matches the name at any
depth; one with a slash is anchored at the root (`/README.md` is the root's alone). Names with a leading dot are
names like any other.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_core.errors import ConfigError

_PART = re.compile(r"\*+|\?|\[[!^]?\]?[^\]/]*\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Globs:
    included: re.Pattern[str]
    excluded: re.Pattern[str]
    pruned: re.Pattern[str]

    @staticmethod
    def of(include: Iterable[str], exclude: Iterable[str]) -> "Globs":
        """Empty `include` takes everything."""
        excludes = tuple(exclude)
        folders = [pattern.removesuffix("/**") for pattern in excludes if pattern.endswith("/**")]
        anchored = [pattern if "/" in pattern else f"/{pattern}" for pattern in folders]
        return Globs(_union(tuple(include) or ("**",)), _union(excludes), _union(anchored))

    def match(self, path: str) -> bool:
        return bool(self.included.fullmatch(path)) and not self.excluded.fullmatch(path)

    def prune(self, folder: str) -> bool:
        """Whether everything below the folder is excluded, so that it need not be opened."""
        return bool(self.pruned.fullmatch(folder))


def _union(patterns: Sequence[str]) -> re.Pattern[str]:
    # (?!) matches nothing: what a union of no patterns has to do
    try:
        return re.compile("|".join(map(_regex, patterns)) or "(?!)", re.DOTALL)
    except re.error as error:
        raise ConfigError(f"no glob pattern in {list(patterns)}: {error}") from error


def _regex(pattern: str) -> str:
    anchored = pattern if "/" in pattern else f"**/{pattern}"
    *folders, name = anchored.removeprefix("/").split("/")
    above = "".join("(?:.+/)?" if folder == "**" else f"{_name(folder)}/" for folder in _single(folders))
    return above + (".+" if name in ("**", "") else _name(name))


def _single(folders: list[str]) -> list[str]:
    # a run of ** is one **: repeated, the expression would backtrack without end
    return [folder for i, folder in enumerate(folders) if folder != "**" or i == 0 or folders[i - 1] != "**"]


def _name(pattern: str) -> str:
    return "".join(map(_part, _PART.findall(pattern)))


def _part(part: str) -> str:
    if part.startswith("*"):
        return "[^/]*"
    if part == "?":
        return "[^/]"
    return _members(part[1:-1]) if len(part) > 2 and part.startswith("[") else re.escape(part)


def _members(members: str) -> str:
    escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", members[1:] if members[0] in "!^" else members)
    return f"[^/{escaped}]" if members[0] in "!^" else f"[{escaped}]"
