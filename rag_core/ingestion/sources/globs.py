"""Glob patterns on paths below a root, such as `docs/**/*.md`.

`*`, `?` and `[...]` match within one name; `**` also matches across folders. A pattern without a slash matches a name
at any depth. A pattern with a slash is anchored at the root: `/README.md` matches only the file in the root. A leading
dot in a name has no special meaning.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_core.errors import ConfigError

_GLOB_PART = re.compile(r"\*+|\?|\[[!^]?\]?[^\]/]*\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Globs:
    """Compiled patterns. `excluded_folders` matches the folders that contain only excluded files."""

    included: re.Pattern[str]
    excluded: re.Pattern[str]
    excluded_folders: re.Pattern[str]

    @staticmethod
    def compile(include: Iterable[str], exclude: Iterable[str]) -> "Globs":
        """An empty `include` selects all files. Raises ConfigError if a pattern is invalid."""
        excludes = tuple(exclude)
        folders = [pattern.removesuffix("/**") for pattern in excludes if pattern.endswith("/**")]
        anchored = [pattern if "/" in pattern else f"/{pattern}" for pattern in folders]
        return Globs(_compile_union(tuple(include) or ("**",)), _compile_union(excludes), _compile_union(anchored))

    def matches(self, path: str) -> bool:
        return bool(self.included.fullmatch(path)) and not self.excludes(path)

    def excludes(self, path: str) -> bool:
        return bool(self.excluded.fullmatch(path))

    def excludes_folder(self, folder: str) -> bool:
        """True if all files below the folder are excluded, so that it need not be opened."""
        return bool(self.excluded_folders.fullmatch(folder))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Raises ConfigError if the pattern is invalid."""
    return _compile_union((pattern,))


def _compile_union(patterns: Sequence[str]) -> re.Pattern[str]:
    try:
        # (?!) matches nothing, as an empty union should
        return re.compile("|".join(map(_translate_pattern, patterns)) or "(?!)", re.DOTALL)
    except re.error as error:
        raise ConfigError(f"invalid glob pattern in {list(patterns)}: {error}") from error


def _translate_pattern(pattern: str) -> str:
    """The regular expression of a pattern."""
    anchored = pattern if "/" in pattern else f"**/{pattern}"
    *folders, name = anchored.removeprefix("/").split("/")
    # consecutive ** are merged into one: repeated, the expression would backtrack endlessly
    folders = [folder for i, folder in enumerate(folders) if folder != "**" or i == 0 or folders[i - 1] != "**"]
    prefix = "".join("(?:.+/)?" if folder == "**" else f"{_translate_name(folder)}/" for folder in folders)
    return prefix + (".+" if name in ("**", "") else _translate_name(name))


def _translate_name(pattern: str) -> str:
    return "".join(map(_translate_part, _GLOB_PART.findall(pattern)))


def _translate_part(part: str) -> str:
    if part.startswith("*"):
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if len(part) <= 2 or not part.startswith("["):
        return re.escape(part)
    members = part[1:-1]
    is_negated = members[0] in "!^"
    escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", members[1:] if is_negated else members)
    return f"[^/{escaped}]" if is_negated else f"[{escaped}]"
