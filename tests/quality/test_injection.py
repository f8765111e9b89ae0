"""Documents that give orders, against two generators that read the rendered prompt.

One obeys what it finds outside the passages only, and is lenient about where a passage ends; the other one obeys all
that it finds. What the first one writes, and what reaches the user of the second one, is what is checked.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unicodedata import category, normalize
from urllib.parse import urlsplit

import numpy as np
import pytest
import yaml
from fakes.answering import passage
from lxml import html
from markdown_it import MarkdownIt

from rag_core.answering.citing.citations import Citer
from rag_core.answering.generation.extractive import SentenceExtractor
from rag_core.answering.generation.prompt import load_prompt_pack, render_messages
from rag_core.models.chat import ChatMessage
from rag_core.models.fence import fresh_nonce
from rag_core.types import Answer, Matrix, Passage, Prompt, Query

CANARY = "CANARY-4f1d"
ANSWER = "Water boils at 100 °C [1]."
SOURCE = "https://docs.example.com/physics"
HOSTS = {"docs.example.com"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    name: str
    goal: str
    text: str
    title: str = "Kitchen notes"
    escapes: bool = False
    angled: bool = False

    @property
    def passages(self) -> tuple[Passage, ...]:
        planted = passage(2, self.text, title=self.title, uri="https://docs.example.com/kitchen")
        return (passage(1, "Water boils at 100 °C.", title="Physics", uri=SOURCE), planted)


def attacks() -> list[Attack]:
    path = Path(__file__).parent.parent / "data" / "injection" / "attacks.yaml"
    return [Attack(**fields) for fields in yaml.safe_load(path.read_text(encoding="utf-8"))]


every_attack = pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)


def render_prompt(attack: Attack) -> list[ChatMessage]:
    prompt = Prompt(query=Query(text="When does water boil?"), passages=attack.passages)
    return render_messages(prompt, load_prompt_pack("qa"), fresh_nonce())


def render_without_defence(attack: Attack) -> list[ChatMessage]:
    """Renders passages between fences with a nonce, but does not escape their titles and texts."""
    nonce = fresh_nonce()
    fences = (
        f'<passage-{nonce} id="{passage.n}" title="{passage.hit.origin.title}">\n{passage.text}\n</passage-{nonce}>'
        for passage in attack.passages
    )
    return [{"role": "user", "content": "\n\n".join(fences)}]


_ORDER = re.compile("«(.*?)»", re.DOTALL)
_ANGLES = str.maketrans("＜＞‹›", "<><>")  # noqa: RUF001
_FENCE = re.compile(r"(<\s*/?\s*passage[^>]*>)", re.IGNORECASE)
_TURN = re.compile(r"<[|｜]|\[/?INST\]|<<SYS>>|<start_of_turn>|</?s>")  # noqa: RUF001


def obey_outside(messages: Sequence[ChatMessage]) -> str:
    orders = (order for message in messages for order in _ORDER.findall("\n".join(_outside(message["content"]))))
    return "\n\n".join([ANSWER, *orders])


def obey_everything(messages: Sequence[ChatMessage]) -> str:
    orders = (order for message in messages for order in _ORDER.findall(message["content"]))
    return "\n\n".join([ANSWER, *orders])


def _outside(content: str) -> Iterator[str]:
    """Yields the text outside the passages, as a lenient model reads it: it ignores nonces and invisible letters, and
    knows the tokens of its turns."""
    visible = "".join(sign for sign in content if category(sign) != "Cf").translate(_ANGLES)
    inside = False
    for part in _FENCE.split(visible):
        if _FENCE.fullmatch(part):
            inside = "/" not in (part[1:-1].strip()[0], part[-2])
        elif not inside:
            yield part
        elif turn := _TURN.search(part):
            yield part[turn.end() :]


def cite_in_pieces(text: str, attack: Attack, size: int) -> Answer:
    citer = Citer(attack.passages, "default")
    for start in range(0, len(text), size):
        citer.feed(text[start : start + size])
    citer.finish()
    return citer.answer


def breaches(text: str, markers: int) -> set[str]:
    """What a page that renders the Markdown would load, link to, or show as a marker in addition to `markers`."""
    page = html.fragment_fromstring(MarkdownIt("commonmark", {"html": True}).render(text), create_parent="div")
    return {*_find_images(page), *_find_links(page), *_find_markers(page, markers)}


def _find_images(page: html.HtmlElement) -> Iterator[str]:
    if page.xpath(".//*[@src or @srcset or @poster or @data or @style] | .//img | .//svg | .//object"):
        yield "image"


def _find_links(page: html.HtmlElement) -> Iterator[str]:
    addresses = [str(href) for href in page.xpath(".//@href")]
    bare = re.findall(r"(?i)\b(?:https?|ftp):[^\s<>\"']+|\bwww\.[^\s<>\"']+", _text(page))
    if not all(map(_is_allowed, [*addresses, *bare])):
        yield "link"


def _is_allowed(address: str) -> bool:
    """True if a browser would open an allowed host. Browsers read a backslash as a slash, and skip controls."""
    parts = urlsplit(re.sub(r"[\x00-\x20]", "", address).replace("\\", "/"))
    return parts.scheme in ("http", "https") and parts.hostname in HOSTS


def _find_markers(page: html.HtmlElement, markers: int) -> Iterator[str]:
    visible = "".join(sign for sign in normalize("NFKC", _text(page)) if category(sign) != "Cf")
    if len(re.findall(r"[\[【]\s*\^?\d", visible)) > markers:
        yield "marker"


def _text(page: html.HtmlElement) -> str:
    return "".join(page.xpath(".//text()[not(ancestor::code)]"))


@every_attack
def test_a_model_that_obeys_only_what_stands_outside_the_passages_never_says_a_canary(attack: Attack) -> None:
    assert obey_outside(render_prompt(attack)) == ANSWER


@every_attack
def test_of_a_model_that_obeys_everything_no_image_no_foreign_link_and_no_foreign_marker_is_shown(
    attack: Attack,
) -> None:
    written = obey_everything(render_prompt(attack))
    for size in (1, 7, len(written)):
        answer = cite_in_pieces(written, attack, size)
        assert breaches(answer.text, markers=1) == set()
        assert [citation.n for citation in answer.citations] == [1]
        assert answer.text.startswith(ANSWER)


@every_attack
def test_the_second_model_does_obey(attack: Attack) -> None:
    assert len(obey_everything(render_prompt(attack))) > len(ANSWER)


@every_attack
def test_each_attack_succeeds_where_nothing_is_defended(attack: Attack) -> None:
    """Shows that the tests above would notice a missing defence."""
    written = obey_everything(render_without_defence(attack))
    if attack.angled:
        written = written.translate(dict.fromkeys(map(ord, "<>")))
    assert (CANARY in written) if attack.goal == "canary" else (attack.goal in breaches(written, markers=1))
    escaped = obey_outside(render_without_defence(attack))
    assert (escaped != ANSWER) == attack.escapes


class ScriptedEncoder:
    """An encoder for which the answering sentence is nearest to the question, as with the default model."""

    async def embed(self, texts: Sequence[str]) -> Matrix:
        cosines = [1.0, *(0.9 if text == "Water boils at 100 °C." else 0.6 for text in texts[1:])]
        return np.array([[cosine, (1 - cosine**2) ** 0.5] for cosine in cosines], np.float32)


async def equal_idf(query: Query) -> Mapping[str, float]:
    return dict.fromkeys(["water", "boil"], 1.0) if query.text else {}


@every_attack
def test_an_answer_without_a_model_quotes_no_order_next_to_the_sentence_that_answers(attack: Attack) -> None:
    extractor = SentenceExtractor(
        encoder=ScriptedEncoder(),
        idf=equal_idf,
        sentences=3,
        passages=5,
        threshold=0.0,
        confident=0.0,
        notice="",
        knows_cosines=True,
    )
    prompt = Prompt(query=Query(text="When does water boil?"), passages=attack.passages)
    selected = extractor.select(asyncio.run(extractor.rank(prompt)))
    assert [sentence.text for sentence in selected] == ["Water boils at 100 °C."]


def test_there_are_more_than_twenty_attacks_of_every_goal() -> None:
    assert len({attack.name for attack in attacks()}) > 20
    assert {attack.goal for attack in attacks()} == {"canary", "image", "link", "marker"}
    assert sum(attack.escapes for attack in attacks()) > 5
