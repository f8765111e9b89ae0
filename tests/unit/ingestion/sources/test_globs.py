import pytest

from rag_core.errors import ConfigError
from rag_core.ingestion.sources.globs import Globs


@pytest.mark.parametrize(
    ("pattern", "path", "taken"),
    [
        ("*.md", "a.md", True),
        ("*.md", "deep/down/a.md", True),
        ("/*.md", "deep/a.md", False),
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/deep/a.md", False),
        ("docs/**/*.md", "docs/a.md", True),
        ("docs/**/*.md", "docs/x/y/a.md", True),
        ("docs/**/*.md", "other/docs/a.md", False),
        ("**/.git/**", "x/.git/config", True),
        ("**/.git/**", ".gitignore", False),
        ("docs/", "docs/x/y.txt", True),
        ("a?.txt", "ab.txt", True),
        ("a?.txt", "a/.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("a[1].txt", "a[1].txt", False),
        ("a.md", "aXmd", False),
        ("*.md", "line\nbreak.md", True),
        ("[&&].txt", "&.txt", True),
    ],
)
def test_a_pattern_takes_what_it_says(pattern: str, path: str, taken: bool) -> None:
    assert Globs.compile((pattern,), ()).matches(path) is taken
    assert Globs.compile((), (pattern,)).matches(path) is not taken


def test_no_pattern_takes_everything() -> None:
    assert Globs.compile((), ()).matches("a/b\n/.c")


def test_a_folder_is_pruned_only_if_all_below_it_is_excluded() -> None:
    globs = Globs.compile((), ("**/.git/**", "tmp/**", "logs/*.log"))
    assert [globs.excludes_folder(folder) for folder in (".git", "x/.git", "tmp", "x/tmp", "logs")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_range_that_runs_backwards_is_a_setting_that_breaks_a_rule() -> None:
    with pytest.raises(ConfigError, match="bad character range z-a"):
        Globs.compile(("[z-a].md",), ())
