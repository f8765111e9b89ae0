"""Identification of a text's language by its bytes (py3langid: naive Bayes over n-grams)."""

import os
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

LANGUAGES = (
    "ar bg ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv nl no pl pt ro ru sk sl sr sv th tr uk vi zh"
)

HEAD_CHARS = (300, 1000)
"""The characters that are read from a text: more of them if fewer leave a doubt."""

CLEAR_LEAD = 20.0
"""The lead of the likeliest language over the next, in nats, that leaves no doubt. With it, the short head and the long
one gave the same answer for all of 6,868 documents of seven public datasets."""

MIN_LETTERS = 40


def identify_language(text: str) -> str:
    """An ISO 639-1 code; empty if the text has too few letters."""
    language = ""
    for chars in HEAD_CHARS:
        head = text[:chars]
        if sum(map(str.isalpha, head)) >= MIN_LETTERS:
            (language, best), (_, next_best), *_ = _load_ranker()(head)
            if best - next_best >= CLEAR_LEAD or chars >= len(text):
                break
    return language


def rank_languages(text: str) -> dict[str, float]:
    """The log-likelihood of each language, for the head of the text."""
    return dict(_load_ranker()(text[: HEAD_CHARS[-1]]))


@cache
def _load_ranker() -> Callable[[str], list[tuple[str, float]]]:
    """The function that ranks the languages of a text by log-likelihood, best first."""
    ranker: Callable[[str], list[tuple[str, float]]] = load_identifier(cache_folder()).rank
    return ranker


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rag-on-ray"


def load_identifier(folder: Path) -> "LanguageIdentifier":
    """The library's identifier for LANGUAGES. It is cached in the folder if possible: unpacking takes half a second."""
    import numpy as np  # with py3langid a tenth of a second: commands that only list or search do not need it
    from py3langid import langid

    path = folder / f"languages-{version('py3langid')}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as model:
            return langid.LanguageIdentifier(
                model["ptc"],
                model["pc"],
                model["classes"].tolist(),
                _to_array(model["nextmove"]),
                model["output"].tolist(),
                tk_row=_to_array(model["row"]),
            )
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # missing or damaged
        identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
        identifier.set_languages(LANGUAGES.split())
        # row by row, because it is read by rows: after set_languages it is stored by columns, a fifth slower
        identifier.nb_ptc = np.ascontiguousarray(identifier.nb_ptc)
        with suppress(OSError):
            _save(identifier, path)
        return identifier


def _save(identifier: "LanguageIdentifier", path: Path) -> None:
    """Writes the complete file or none, even if other processes do so at the same time."""
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.npz")
    tables = {"ptc": identifier.nb_ptc, "pc": identifier.nb_pc, "classes": identifier.nb_classes}
    walk = {"nextmove": identifier.tk_nextmove, "row": identifier.tk_row, "output": identifier.tk_output}
    try:
        np.savez(temporary, allow_pickle=False, **tables, **walk)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _to_array(numbers: Any) -> "array[int]":
    """Converts from numpy: single numbers are read faster from an array."""
    return array(numbers.dtype.char, numbers.tobytes())
