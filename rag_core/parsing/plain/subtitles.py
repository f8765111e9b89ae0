"""WebVTT and SubRip as paragraphs, without times. What rolling captions repeat is read once.

https://www.w3.org/TR/webvtt1/
"""

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import NamedTuple

from rag_core.parsing.blocks import join_blocks, paragraph
from rag_core.parsing.encoding import decode_text
from rag_core.types import Document

VERSION = 1

_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_BLANK_LINES = re.compile(r"\n[ \t]*\n")
_HEADER = re.compile(r"WEBVTT[ \t]*(?:-[ \t]*)?([^\n]*)")
_LANGUAGE = re.compile(r"^Language: *([A-Za-z-]+)", re.MULTILINE)
_OTHER_BLOCK = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)\b")
_CUE_NUMBER = re.compile(rf"\n(?=\d+[ \t]*\n[ \t]*{_TIME}[ \t]*-->)")
_VOICE_START = re.compile(r"(?=<v[.\s])")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]+([^<>]+)>")
_TAG = re.compile(r"</?(?:[a-z]+[\d.]*|\d[\d:.]*)(?:[.\s][^<>]*)?>|\{\\[^{}]*\}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"""[.!?\u3002\uff01\uff1f\u2026]["')\u201d]*$""")
_DIALOGUE = ("- ", "\u2013 ", "\u2014 ")
_MAX_PAUSE = 4.0
_PARAGRAPH_CHARS = 500
"""The length from which a paragraph ends with its sentence."""


class Cue(NamedTuple):
    """The lines of a caption and who speaks them. `start` and `end` are seconds."""

    start: float
    end: float
    speaker: str
    lines: tuple[str, ...]


class SubtitlesParser:
    def parse(self, uri: str, body: bytes) -> Document:
        text = decode_text(body).strip()
        header, language = _HEADER.match(text), _LANGUAGE.search(text.partition("\n\n")[0])
        paragraphs = _join_cues(_drop_repeats(_read_cues(text)))
        return Document(
            uri=uri,
            text=join_blocks(map(paragraph, paragraphs)),
            title=header[1].strip() if header else "",
            language=language[1] if header and language else "",
            media_type="text/vtt" if header else "application/x-subrip",
        )


def _read_cues(text: str) -> Iterator[Cue]:
    """Yields the cues, one for each voice. Text after a blank line belongs to the cue before it, as in SubRip."""
    cue = Cue(0, 0, "", ())
    for block in _BLANK_LINES.split(_CUE_NUMBER.sub("\n\n", text)):
        lines = block.strip("\n").split("\n")
        number = next((number for number, line in enumerate(lines[:3]) if _TIMING.match(line)), -1)
        if number >= 0 and (timing := _TIMING.match(lines[number])):
            cue = Cue(_seconds(timing.groups()[:4]), _seconds(timing.groups()[4:]), "", ())
        elif _OTHER_BLOCK.match(block) or not cue.end:
            continue
        for spoken in _VOICE_START.split("\n".join(lines[number + 1 :])):
            voice = _VOICE.match(spoken)
            cue = cue._replace(speaker=voice[1].strip() if voice else "", lines=_clean_lines(spoken.split("\n")))
            if cue.lines:
                yield cue


def _seconds(parts: Iterable[str | None]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")


def _clean_lines(lines: Iterable[str]) -> tuple[str, ...]:
    texts = (" ".join(unescape(_TAG.sub("", line)).replace("\u200e", "").split()) for line in lines)
    return tuple(filter(None, texts))


def _drop_repeats(cues: Iterable[Cue]) -> Iterator[Cue]:
    """The cues without the lines at their start with which the cue before ended.

    A line that goes on where the line before ended, word by word, replaces it.
    """
    waiting = Cue(0, 0, "", ())
    before: tuple[str, ...] = ()
    for cue in cues:
        longest = min(len(before), len(cue.lines))
        repeated = next((size for size in range(longest, 0, -1) if before[-size:] == cue.lines[:size]), 0)
        fresh = cue.lines[repeated:]
        if fresh and not repeated and waiting.lines and fresh[0].startswith(f"{waiting.lines[-1]} "):
            waiting = waiting._replace(lines=waiting.lines[:-1])
        before = cue.lines
        if waiting.lines:
            yield waiting
        waiting = cue._replace(lines=fresh)
    yield waiting


def _join_cues(cues: Iterable[Cue]) -> Iterator[str]:
    """The paragraphs. One ends where the speaker changes, at a pause, or with a sentence if it is long."""
    words, size, before = list[str](), 0, Cue(0, 0, "", ())
    for cue in cues:
        for line in cue.lines:
            is_long = size >= _PARAGRAPH_CHARS and words and _SENTENCE_END.search(words[-1])
            changes = cue.speaker != before.speaker or cue.start - before.end > _MAX_PAUSE
            if words and (is_long or changes or line.startswith(_DIALOGUE)):
                yield " ".join(words)
                words, size = [], 0
            if cue.speaker and not words and changes:
                line = f"{cue.speaker}: {line}"
            words.append(line)
            size += len(line)
            before = cue
    yield " ".join(words)
