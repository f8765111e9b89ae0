from dataclasses import replace
from uuid import UUID

import pytest

from rag_core.ingestion.recipe import (
    LIMITS_SEPARATOR,
    Recipe,
    find_label,
    find_profile,
    is_outdated,
    make_label,
    with_label,
)
from rag_core.parsing import encoding
from rag_core.parsing import formats as formats_module
from rag_core.parsing.formats import recipe_part
from rag_core.parsing.markup import html, markdown
from rag_core.settings import load_settings
from rag_core.types import Entry, Space, StoredDocument
from rag_core.wiring.ingestion import build_recipe

URIS = ("file:///d/a.md", "file:///d/b.html", "file:///d/c.txt", "file:///d/d.md.gz", "file:///d/e")
SPACE = Space(model="m", dimension=8, window=64, fingerprint="m-8")
CHUNKING = '{"tokens": 200}'


def fingerprints(parts: dict[str, str] | None = None, chunking: str = CHUNKING, space: Space = SPACE) -> list[str]:
    named = {"md": "markdown 1", "html": "html 1", **(parts or {})}
    recipe = Recipe(lambda uri: named[uri.rpartition(".")[2]], chunking, space)
    return [recipe.fingerprint("a.md"), recipe.fingerprint("b.html")]


def compare_recipes(before: list[str], after: list[str]) -> list[bool]:
    return [old != new for old, new in zip(before, after, strict=True)]


def test_a_changed_parser_changes_only_the_recipe_of_its_format() -> None:
    assert compare_recipes(fingerprints(), fingerprints({"html": "html 2"})) == [False, True]


def test_changed_chunking_changes_every_recipe() -> None:
    assert compare_recipes(fingerprints(), fingerprints(chunking='{"tokens": 100}')) == [True, True]


def test_another_splade_model_changes_every_recipe() -> None:
    recipes = [
        build_recipe(load_settings(None, None, ["embedding={type: hashing}", *splade], {})).fingerprint("a.md")
        for splade in ([], [weigher("one")], [weigher("two")])
    ]
    assert len(set(recipes)) == 3


def weigher(fingerprint: str) -> str:
    return f'splade={{type: python, object: "fakes.splade:WordWeights", arguments: {{fingerprint: {fingerprint}}}}}'


def test_another_space_changes_every_recipe() -> None:
    assert compare_recipes(fingerprints(), fingerprints(space=replace(SPACE, fingerprint="n-8"))) == [True, True]


def test_a_recipe_is_the_same_for_every_document_of_a_format_and_in_every_process() -> None:
    recipe = Recipe(lambda _: "text 1", CHUNKING, SPACE)
    assert (
        recipe.fingerprint("a.txt") == recipe.fingerprint("b.txt") == "5e0c31ef6def9d4b"
    )  # what is stored depends on it


def test_parts_that_are_cut_elsewhere_are_another_recipe() -> None:
    assert Recipe(lambda _: "ab", "c", SPACE).fingerprint("x") != Recipe(lambda _: "a", "bc", SPACE).fingerprint("x")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (markdown, {"a.md", "d.md.gz", "b.html", "e"}),  # html becomes Markdown first
        (html, {"a.md", "d.md.gz", "b.html", "e"}),  # and Markdown contains HTML
        (encoding, {"a.md", "b.html", "c.txt", "d.md.gz", "e"}),
    ],
)
def test_a_raised_version_concerns_the_formats_that_are_made_with_it(
    module: object, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = parts()
    monkeypatch.setattr(module, "VERSION", 99)
    after = parts()
    assert {uri.rpartition("/")[2] for uri in URIS if before[uri] != after[uri]} == names


def parts() -> dict[str, str]:
    formats_module._format_recipe.cache_clear()
    recipe_parts = {uri: recipe_part(uri) for uri in URIS}
    formats_module._format_recipe.cache_clear()
    return recipe_parts


@pytest.mark.parametrize(
    ("setting", "differs"),
    [
        ("chunking.tokens=150", True),
        ("chunking.overlap=10", True),
        ("parsing.detect_language=false", True),
        ("limits.text_mb=1", True),
        ("metadata.set.source=pmc", True),
        ("chunking.type=sentences", True),
        ("embedding.dimension=64", True),
        ("store.url=host=elsewhere", False),
        ("tenant=somebody-else", False),
        ("ingestion.group=1", False),
        ("scan.mode=flag", True),
        ("parsing.sandbox=false", False),
        ("parsing.timeout_s=5", False),
        ("parsing.memory_mb=2048", False),
        ("files.exclude=['*.log']", False),
        ("limits.file_mb=1", True),
    ],
)
def test_only_settings_that_decide_what_is_stored_of_a_document_are_in_its_recipe(setting: str, differs: bool) -> None:
    assert (of_settings() != of_settings(setting)) is differs


def of_settings(*overrides: str) -> str:
    return build_recipe(load_settings(overrides=["embedding.type=hashing", *overrides], environment={})).fingerprint(
        "a.md"
    )


def test_limits_are_separate_so_that_they_concern_only_what_they_kept_out() -> None:
    before, after = of_settings("limits.file_mb=1"), of_settings("limits.file_mb=2.5")
    assert (before.partition(LIMITS_SEPARATOR)[2], after.partition(LIMITS_SEPARATOR)[2]) == ("file_mb 1", "file_mb 2.5")
    assert before.partition(LIMITS_SEPARATOR)[0] == after.partition(LIMITS_SEPARATOR)[0]


@pytest.mark.parametrize(
    ("setting", "affected_suffixes"),
    [
        ("parsing={type: unstructured}", {"md", "docx"}),
        ("parsing={type: unstructured, formats: [docx]}", {"docx"}),
        ("parsing.ocr={type: tesseract}", {"pdf", "png"}),
        ("parsing.timeout_s=60", set()),
    ],
)
def test_another_parser_changes_the_recipes_of_the_documents_that_it_reads(
    setting: str, affected_suffixes: set[str]
) -> None:
    suffixes = ("md", "docx", "txt", "pdf", "png")
    hashing = "embedding={type: hashing}"
    recipes = [
        [
            build_recipe(load_settings(None, None, [hashing, *more], {})).fingerprint(f"a.{suffix}")
            for suffix in suffixes
        ]
        for more in ([], [setting])
    ]
    changed = compare_recipes(*recipes)
    assert {suffix for suffix, is_changed in zip(suffixes, changed, strict=True) if is_changed} == affected_suffixes


def test_limits_of_ocr_are_not_in_the_recipe() -> None:
    recipes = [
        build_recipe(load_settings(None, None, ["embedding={type: hashing}", ocr], {})).fingerprint("a.pdf")
        for ocr in ("parsing.ocr={type: tesseract}", "parsing.ocr={type: tesseract, pages: 9, timeout_s: 9}")
    ]
    assert recipes[0] == recipes[1]


def with_labels(**labels: str) -> Recipe:
    return Recipe(lambda _: "xml 1", CHUNKING, SPACE, "file_mb 2", labels)


def document_with_recipe(recipe: str) -> StoredDocument:
    entry = Entry(uri="a.xml", size=1, modified_ns=1)
    return StoredDocument(
        id=UUID(int=1), entry=entry, sha256=b"", recipe=recipe, status="completed", retryable=False, listed_ns=2
    )


def test_a_document_with_a_profile_of_its_own_is_outdated_only_if_that_changes() -> None:
    old, new = make_label("papers", "650"), make_label("papers", "200")
    plain, recipe = with_labels().fingerprint("a.xml"), with_labels(papers=old)
    stored = document_with_recipe(with_label(plain, old))
    assert recipe.recompute(stored) == stored.recipe
    assert is_outdated(stored, with_labels(papers=new).recompute(stored))
    assert is_outdated(stored, with_labels().recompute(stored))
    assert recipe.recompute(document_with_recipe(plain)) == plain == recipe.fingerprint("a.xml")


@pytest.mark.parametrize("profile", ["pmc-cpu", "with a blank", "a:b|c", "ärzte"])
def test_a_label_is_between_fingerprint_and_limits_whatever_the_name_of_its_profile(profile: str) -> None:
    for label in (make_label(profile, "settings"), make_label(profile, "")):
        recipe = with_label("abc|file_mb 2", label)
        assert recipe.startswith("abc ")
        assert recipe.endswith("|file_mb 2")
        assert find_profile(find_label(recipe)) == profile
        assert with_label(recipe, "") == "abc|file_mb 2"
