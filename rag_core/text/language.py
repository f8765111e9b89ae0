"""The language that a text is in, told by its bytes (py3langid: naive Bayes over n-grams)."""

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

HEADS = (300, 1000)
"""How many characters of a text are looked at: the more only where the fewer leave a doubt."""

CLEAR_LEAD = 20.0
"""Of the likeliest language before the next one, in nats. With it the short head gave the long one's answer for all of
6,868 documents of seven public sets."""

FEWEST_LETTERS = 40


def detected(text: str) -> str:
    """An ISO 639-1 code; empty where the text has too few letters to tell."""
    language = ""
    for size in HEADS:
        head = text[:size]
        if sum(map(str.isalpha, head)) >= FEWEST_LETTERS:
            (language, best), (_, next_best), *_ = _ranked()(head)
            if best - next_best >= CLEAR_LEAD or size >= len(text):
                break
    return language


@cache
def _ranked() -> Callable[[str], list[tuple[str, float]]]:
    """The languages by log-likelihood, best first."""
    ranked: Callable[[str], list[tuple[str, float]]] = identifier(cache_folder()).rank
    return ranked


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rag-on-ray"


def identifier(folder: Path) -> "LanguageIdentifier":
    """The library's, of these languages. Kept in that folder, if it can be: to unpack it takes half a second."""
    kept = folder / f"languages-{version('py3langid')}.npz"
    try:
        return _read(kept)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # not there, or damaged
        unpacked = _unpacked()
        with suppress(OSError):
            _keep(unpacked, kept)
        return unpacked


def _read(kept: Path) -> "LanguageIdentifier":
    import numpy as np  # with py3langid a tenth of a second: not for those who only list or search
    from py3langid.langid import LanguageIdentifier

    with kept.open("rb") as file, np.load(file, allow_pickle=False) as model:
        return LanguageIdentifier(
            model["ptc"],
            model["pc"],
            model["classes"].tolist(),
            _array(model["nextmove"]),
            model["output"].tolist(),
            tk_row=_array(model["row"]),
        )


def _unpacked() -> "LanguageIdentifier":
    import numpy as np
    from py3langid import langid

    unpacked = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    unpacked.set_languages(LANGUAGES.split())
    # row by row, because it is read by rows: choosing the languages leaves it by columns, a fifth slower
    unpacked.nb_ptc = np.ascontiguousarray(unpacked.nb_ptc)
    return unpacked


def _keep(unpacked: "LanguageIdentifier", kept: Path) -> None:
    """All of it or nothing, also where others do so at the same time."""
    import numpy as np

    kept.parent.mkdir(parents=True, exist_ok=True)
    own = kept.with_suffix(f".{os.getpid()}.npz")
    tables = {"ptc": unpacked.nb_ptc, "pc": unpacked.nb_pc, "classes": unpacked.nb_classes}
    walk = {"nextmove": unpacked.tk_nextmove, "row": unpacked.tk_row, "output": unpacked.tk_output}
    try:
        np.savez(own, allow_pickle=False, **tables, **walk)
        own.replace(kept)
    finally:
        own.unlink(missing_ok=True)


def _array(numbers: Any) -> "array[int]":
    """One number of it is read faster than of numpy's."""
    return array(numbers.dtype.char, numbers.tobytes())
