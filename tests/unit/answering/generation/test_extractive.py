"""Sentences of scripted passages: which are chosen, how they are quoted, and when none is."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from uuid import UUID

import numpy as np
import pytest

from rag_core.answering.citing.citations import cite
from rag_core.answering.generation.candidates import find_candidates
from rag_core.answering.generation.confidence import (
    PASSAGES,
    SENTENCES,
    UNTYPED_CONFIDENCE,
    WORDS,
    Signals,
    estimate_confidence,
    estimate_retrieval_confidence,
    find_lead,
)
from rag_core.answering.generation.extractive import (
    MAX_ENCODED_SENTENCES,
    RankedCandidates,
    SentenceExtractor,
    answer_pieces,
    quote_pieces,
    split_carried,
)
from rag_core.answering.generation.question_type import question_type
from rag_core.answering.judging.verbatim import VerbatimJudge
from rag_core.errors import ModelError
from rag_core.stage import recording, stage
from rag_core.types import Chunk, Hit, Matrix, Origin, Passage, Prompt, Query, StageReport

SOON = 0.02
KEYS = "Keys are secret. They are rotated every 90 days. The gate is red."
GATES = "The gate opens at noon. A watchman rotates the keys of the gate."


@dataclass(kw_only=True)
class ScriptedEncoder:
    """A text's cosine with the question, which comes first, is that of the first of these phrases in it; else 0. It
    takes `seconds`, and then raises `error` if any."""

    cosines: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: Exception | None = None
    calls: list[Sequence[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.calls.append(texts)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        cosines = [1.0, *(self._cosine(text) for text in texts[1:])]
        return np.array([[cosine, (1 - cosine**2) ** 0.5] for cosine in cosines], np.float32)

    def _cosine(self, text: str) -> float:
        return next((cosine for phrase, cosine in self.cosines.items() if phrase in text), 0.0)


async def equally_rare(query: Query) -> Mapping[str, float]:
    return dict.fromkeys(["key", "rotat", "gate", "often", "open", "red"], 2.0) if query.text else {}


def passage(n: int, text: str, score: float = 1.0, dense: float | None = 0.8) -> Passage:
    id = UUID(int=n)
    chunk = Chunk(id=id, document_id=id, ordinal=0, text=text, start=0, end=len(text))
    scores = {} if dense is None else {"dense": dense}
    hit = Hit(chunk=chunk, origin=Origin(uri=f"file:///{n}.md", title=""), score=score, scores=scores)
    return Passage(n=n, hit=hit, text=text, start=0, chunks=(chunk,))


def prompt(question: str, *passages: Passage) -> Prompt:
    hits = tuple(passage.hit for passage in passages)
    return Prompt(query=Query(text=question), passages=passages, hits=hits)


def extractive(
    encoder: ScriptedEncoder | None = None,
    sentences: int = 3,
    passages: int = 5,
    threshold: float = 0.0,
    confident: float = 0.0,
) -> SentenceExtractor:
    return SentenceExtractor(
        encoder=encoder or ScriptedEncoder(),
        idf=equally_rare,
        sentences=sentences,
        passages=passages,
        threshold=threshold,
        confident=confident,
        notice="The closest passages:",
        knows_cosines=True,
    )


def stream_text(generator: SentenceExtractor, prompt: Prompt, encode: float = inf) -> tuple[str, list[StageReport]]:
    async def join_pieces() -> str:
        async with stage("generate"):
            return "".join([piece async for piece in generator.stream(prompt)])

    with recording(limits={"encode": encode}) as reports:
        return asyncio.run(join_pieces()), reports


def answer_text(generator: SentenceExtractor, prompt: Prompt) -> str:
    return stream_text(generator, prompt)[0]


def rank_candidates(generator: SentenceExtractor, prompt: Prompt) -> RankedCandidates:
    return asyncio.run(generator.rank(prompt))


def texts(*passages: str) -> list[str]:
    return [candidate.text for candidate in find_candidates([passage(n, text) for n, text in enumerate(passages, 1)])]


def test_the_sentences_that_answer_are_quoted_verbatim_each_with_its_marker() -> None:
    text = answer_text(extractive(sentences=2), prompt("How often are keys rotated?", passage(1, KEYS)))
    assert text == "Keys are secret. [1] They are rotated every 90 days. [1]"


def test_sentences_of_earlier_answers_are_left_out_and_others_take_their_places() -> None:
    full_prompt = prompt("How often are keys rotated?", passage(1, KEYS))
    generator = extractive(sentences=1)
    (first,) = rank_candidates(generator, full_prompt).chosen
    (second,) = rank_candidates(generator, replace(full_prompt, excluded=(first.text,))).chosen
    assert {first.text, second.text} == {"Keys are secret.", "They are rotated every 90 days."}
    assert answer_text(generator, replace(full_prompt, excluded=(first.text, second.text))) == ""


def test_passages_follow_their_best_sentences_and_sentences_the_text() -> None:
    keys, gates = passage(1, KEYS), passage(2, GATES)
    chunk = replace(keys.hit.chunk, document_id=gates.hit.chunk.document_id)
    keys = replace(keys, hit=replace(keys.hit, chunk=chunk))
    text = answer_text(extractive(), prompt("Which keys are rotated?", keys, gates))
    assert text == (
        "A watchman rotates the keys of the gate. [2] Keys are secret. [1] They are rotated every 90 days. [1]"
    )


def test_a_document_brings_no_marker_of_its_own() -> None:
    full_prompt = prompt("Are keys rotated?", passage(1, "Keys are rotated [2] by\n  the [[3]] watch."))
    assert answer_text(extractive(), full_prompt) == "Keys are rotated (2) by the ((3)) watch. [1]"


def test_backticks_of_two_sentences_make_no_code_of_what_lies_between_them() -> None:
    sources = [passage(1, "Keys have the ` mark."), passage(2, "`Code` stays, and ` ends.", score=0.5)]
    text = "".join(answer_pieces(find_candidates(sources)))
    assert text == "Keys have the ' mark. [1] `Code` stays, and ' ends. [2]"
    answer = cite(text, sources, "default")
    assert [(citation.n, citation.quote) for citation in answer.citations] == [(n, sources[n - 1].text) for n in (1, 2)]
    assert asyncio.run(VerbatimJudge().judge(answer, sources)).grade == "supported"


def test_the_coverage_is_an_exact_sum_so_that_the_order_of_terms_does_not_matter() -> None:
    words = "lock dock ship rope mast deck hull keel sail oar"

    async def idf(_: Query) -> Mapping[str, float]:
        return dict.fromkeys(words.split(), 0.1)  # summed one by one, ten of them are less than 1

    generator = replace(extractive(ScriptedEncoder(error=ModelError("away"))), idf=idf)
    ranking = rank_candidates(generator, prompt(words, passage(1, "Lock, dock, ship, rope, mast.", dense=None)))
    assert ranking.signals == Signals(share=0.5, lead=0.5)


def test_words_count_twice_as_much_as_the_cosine_which_breaks_their_ties() -> None:
    encoder = ScriptedEncoder(cosines={"gate": 1.0, "watch": 0.9})
    page = passage(1, "The rotated keys hang.\n\nBy the watch.\n\nIt is a gate.\n\nA dog.")
    ranking = rank_candidates(extractive(encoder), prompt("Are keys rotated?", replace(page, start=9)))
    # 1 + .5, then .45 + .5 next to the keys, .5, and 0: a cosine of 1 is less than all words
    assert [candidate.text for candidate in ranking.candidates] == [
        "The rotated keys hang.",
        "By the watch.",
        "It is a gate.",
        "A dog.",
    ]


def test_a_better_passage_and_what_the_question_asks_for_break_ties() -> None:
    better = prompt("Keys?", passage(1, "Keys here.", score=0.1), passage(2, "Keys there.", score=0.2))
    assert answer_text(extractive(sentences=1), better) == "Keys there. [2]"
    typed = prompt("How many keys?", passage(1, "The keys hang. The nine keys hang."))
    assert answer_text(extractive(sentences=1), typed) == "The nine keys hang. [1]"


def test_a_sentence_far_below_the_best_one_is_left_out() -> None:
    full_prompt = prompt(
        "Are keys rotated?", passage(1, "A dog barks. The weather is fine. The keys are rotated here.")
    )
    assert answer_text(extractive(), full_prompt) == "The keys are rotated here. [1]"


def test_only_the_best_passages_are_read() -> None:
    few = [passage(n, f"Keys of kind {n}.", score=n) for n in range(1, 8)]
    ranking = rank_candidates(extractive(passages=2), prompt("Which keys?", *few))
    assert [candidate.passage.n for candidate in ranking.candidates] == [7, 6]


def test_a_question_that_names_a_code_is_answered_from_passages_with_it() -> None:
    near, named = passage(1, "The gate opens at noon."), passage(2, "Lamp C20 is lit.", score=0.1)
    assert answer_text(extractive(), prompt("When does gate C20 open?", near, named)) == "Lamp C20 is lit. [2]"
    assert answer_text(extractive(), prompt("When does gate C30 open?", near, named)).startswith(
        "The gate opens at noon. [1]"
    )


def test_only_sentences_with_words_of_the_question_are_encoded_if_there_are_many() -> None:
    encoder = ScriptedEncoder()
    many = "".join(f"A dog barks {n} times. " for n in range(50)) + "The keys are red."
    ranking = rank_candidates(extractive(encoder), prompt("Red keys?", passage(1, many)))
    assert len(ranking.candidates) == MAX_ENCODED_SENTENCES == len(encoder.calls[0]) - 1
    assert ranking.candidates[0].text == "The keys are red."


@pytest.mark.parametrize(
    ("broken", "reported"),
    [
        (ScriptedEncoder(error=ModelError("the weights are gone")), "the weights are gone"),
        (ScriptedEncoder(error=ZeroDivisionError("of somebody's own")), "ZeroDivisionError: of somebody's own"),
        (ScriptedEncoder(seconds=60), "timeout after 0.020 s"),
    ],
)
def test_without_its_encoder_words_decide_and_the_loss_is_reported(broken: ScriptedEncoder, reported: str) -> None:
    full_prompt = prompt("Are keys rotated?", passage(1, GATES))
    text, reports = stream_text(extractive(broken, sentences=1), full_prompt, encode=SOON)
    assert text == "A watchman rotates the keys of the gate. [1]"
    assert [(report.stage, report.parent, report.error) for report in reports] == [
        ("encode", "generate", reported),
        ("generate", "", ""),
    ]


def test_below_the_threshold_only_the_confidence_is_reported() -> None:
    full_prompt = prompt("Who won the cup?", passage(1, KEYS, dense=0.3), passage(2, GATES, dense=0.2))
    text, reports = stream_text(extractive(threshold=0.5), full_prompt)
    assert text == ""
    assert reports[-1].figures == {"confidence": SENTENCES.probability(0.0, 0.0)}


def test_an_unsure_answer_is_passages_each_a_cited_quote_after_the_notice() -> None:
    full_prompt = prompt("How often are keys rotated?", passage(1, KEYS))
    text, reports = stream_text(extractive(sentences=2, confident=0.99), full_prompt)
    assert text == "The closest passages:\n\n“Keys are secret.” [1]\n\n“They are rotated every 90 days.” [1]"
    assert reports[-1].figures == {"confidence": pytest.approx(SENTENCES.probability(0.0, 2 / 3)), "quotes": 2}


def test_quotes_of_passages_are_verbatim_to_the_judge_and_the_notice_claims_nothing() -> None:
    sources = [passage(1, KEYS)]
    text = "".join(quote_pieces(find_candidates(sources), "The closest passages:"))
    answer = replace(cite(text, sources, "default"), finish="passages")
    verdict = asyncio.run(VerbatimJudge().judge(answer, sources))
    assert (verdict.grade, len(verdict.claims)) == ("supported", 3)


def test_nothing_comes_of_nothing() -> None:
    assert answer_text(extractive(), prompt("Keys?")) == ""
    assert answer_text(extractive(), prompt("Keys?", passage(1, "---"))) == ""


def test_a_nearer_sentence_and_a_longer_lead_make_an_answer_likelier() -> None:
    nothing, near = Signals(cosine=0.0), Signals(cosine=0.8)
    assert 0 < estimate_confidence(nothing) < estimate_confidence(near) < 1
    assert estimate_confidence(near) < estimate_confidence(replace(near, lead=0.5))


def test_without_a_calibrated_encoder_the_words_decide() -> None:
    uncalibrated = replace(extractive(ScriptedEncoder(cosines={"rotat": 0.9})), knows_cosines=False)
    ranking = rank_candidates(uncalibrated, prompt("Are keys rotated?", passage(1, KEYS), passage(2, GATES)))
    assert ranking.signals == Signals(share=1.0, lead=0.0)
    assert ranking.confidence == WORDS.probability(1.0, 0.0)


def test_words_of_an_uncalibrated_language_count_as_much_as_sentences() -> None:
    german = Signals(share=0.5, cosine=0.75, language="de")
    both = SENTENCES.probability(0.75, 0.0), WORDS.probability(0.5, 0.0)
    assert estimate_confidence(german) == sum(both) / 2
    keys = passage(1, KEYS)
    spanish = replace(keys, hit=replace(keys.hit, origin=replace(keys.hit.origin, language="es")))
    assert rank_candidates(extractive(), prompt("Keys?", spanish)).signals.language == "es"


def test_an_answer_without_the_price_that_is_asked_for_is_not_sure() -> None:
    sure = ScriptedEncoder(cosines={"rent": 0.9})
    priced = rank_candidates(extractive(sure), prompt("What does the rent cost?", passage(1, "The rent is 40 euros.")))
    unpriced = rank_candidates(
        extractive(sure), prompt("What does the rent cost?", passage(1, "The rent is due on day 3."))
    )
    weekly = rank_candidates(
        extractive(sure), prompt("How often is the rent due?", passage(1, "The rent is due every week."))
    )
    assert min(priced.confidence, weekly.confidence) > 0.9
    assert unpriced.confidence == UNTYPED_CONFIDENCE


def test_the_price_of_a_row_can_be_in_the_name_of_its_column() -> None:
    table = "| Model | Price in EUR |\n|---|---|\n| Pump | 40 |\n"
    ranking = rank_candidates(extractive(), prompt("How much does the pump cost?", passage(1, table)))
    assert ranking.signals.has_type


def test_the_lead_is_over_other_documents_and_not_over_other_passages_of_one() -> None:
    one, other = UUID(int=1), UUID(int=2)
    assert find_lead([(one, 0.75), (one, 0.5), (other, 0.25)]) == 0.5
    assert find_lead([(one, 0.5)]) == 0.5
    assert find_lead([]) == 0.0


def test_the_hits_alone_give_the_probability_that_a_passage_has_the_answer() -> None:
    hits = [replace(passage(n, "").hit, scores={"dense": 0.5 / n, "bm25": 8.0 / n}) for n in (1, 2)]
    assert estimate_retrieval_confidence(hits) == PASSAGES.probability(0.5, 0.5)
    assert estimate_retrieval_confidence([replace(hits[0], scores={"rrf": 1.0})]) is None


def test_headings_numbers_rules_table_headers_and_code_do_not_answer() -> None:
    page = """# Keys

Run this:

```sh
# rotates the keys
rag keys rotate
```

| Key | Days |
|-----|-----:|
| signing | 90 |

---
- The [gate](x.md) key stays.
2. Nobody copies it."""
    assert texts(page) == ["Run this:", "Key: signing; Days: 90", "The [gate](x.md) key stays.", "Nobody copies it."]


def test_a_row_of_a_table_is_quoted_with_its_columns_and_cited_verbatim() -> None:
    table = "| Alarm | Level | Meaning |\n|---|---|---|\n| 52 | amber | Command [2] refused |\n| 53 | | Door open |"
    sources = [passage(1, table)]
    text = "".join(answer_pieces(find_candidates(sources)))
    assert text == "Alarm: 52; Level: amber; Meaning: Command (2) refused [1]\n\nAlarm: 53; Meaning: Door open [1]"
    answer = cite(text, sources, "default")
    assert [citation.quote for citation in answer.citations] == [
        "| 52 | amber | Command [2] refused |",
        "| 53 | | Door open |",
    ]
    assert asyncio.run(VerbatimJudge().judge(answer, sources)).grade == "supported"
    changed = cite(text.replace("amber", "green"), sources, "default")
    assert asyncio.run(VerbatimJudge().judge(changed, sources)).grade == "partial"


def test_only_the_rows_of_a_table_that_the_question_names_are_quoted() -> None:
    table = "| Key | Opens |\n| --- | --- |\n| red | gate A |\n| blue | gate B |\n| red | lamp C |"
    (red, _, lamp) = [candidate.text for candidate in find_candidates([passage(1, table)])]
    assert [
        candidate.text
        for candidate in rank_candidates(extractive(), prompt("Which key is red?", passage(1, table))).chosen
    ] == [
        red,
        lamp,
    ]
    assert len(rank_candidates(extractive(), prompt("Which key is it?", passage(1, table))).chosen) == 3


def test_a_row_with_a_code_of_the_question_is_quoted_alone() -> None:
    table = "| Code | Reason |\n| --- | --- |\n| E11 | The lamp is red |\n| E12 | The gate is shut |"
    encoder = ScriptedEncoder(cosines={"E11": 0.9})
    candidates = rank_candidates(extractive(encoder), prompt("Is the gate of E11 red?", passage(1, table))).chosen
    assert [candidate.named_row for candidate in candidates] == ["Code: E11; Reason: The lamp is red"]
    both = rank_candidates(extractive(encoder), prompt("Is the gate of E11 or E12 red?", passage(1, table))).chosen
    assert len(both) == 2


def test_a_table_that_was_cut_has_its_columns_in_the_prefix_of_its_chunk() -> None:
    cut = passage(1, "| 53 | red |\n| 54 | amber |")
    cut = replace(cut, chunks=(replace(cut.chunks[0], prefix="Alarms\n| Alarm | Level |"),))
    assert [candidate.text for candidate in find_candidates([cut])] == [
        "Alarm: 53; Level: red",
        "Alarm: 54; Level: amber",
    ]


def test_rows_without_a_rule_below_the_first_have_no_names() -> None:
    assert texts("| signing | 90 |\n| sealing | 30 |") == ["signing | 90", "sealing | 30"]


def test_the_title_says_what_all_sentences_of_a_document_are_about() -> None:
    first, second = passage(1, "The gate is red."), passage(2, "Keys open.\n\nThe gate is green.", score=0.9)
    second = replace(second, hit=replace(second.hit, origin=replace(second.hit.origin, title="Rotating keys")))
    ranking = rank_candidates(extractive(), prompt("Is the gate of the rotating keys open?", first, second))
    assert ranking.candidates[0].text == "The gate is green."


def test_the_opening_says_what_all_sentences_of_a_document_are_about_and_a_header_of_a_mail_does_not_answer() -> None:
    header = "From: Ada\nTo: Ben\nSubject: Keys of the gate"
    mail = passage(1, f"{header}\n\nHello Ben.\n\nWe talked long.\n\nIt is rotated daily.")
    other = passage(2, "From: Ada\nTo: Cy\nSubject: Doors\n\nHello Cy.\n\nWe talked long.\n\nIt is rotated weekly.")
    full_prompt = prompt("How often are the keys of the gate rotated?", other, mail)
    assert answer_text(extractive(), full_prompt) == "It is rotated daily. [1]"
    later = [replace(passage, start=9) for passage in (other, mail)]
    assert answer_text(extractive(sentences=1), prompt(full_prompt.query.text, *later)) == "It is rotated weekly. [2]"


def test_a_sentence_that_adds_no_word_of_the_question_follows_only_if_it_is_about_as_good() -> None:
    question = "Are keys of the open gate rotated?"
    best = passage(1, "Keys of the open gate are rotated daily.")
    worse, as_good = "Keys of the gate are rotated weekly.", "The open gate has rotated brass keys."
    assert answer_text(extractive(), prompt(question, best, passage(2, worse))) == f"{best.text} [1]"
    assert answer_text(extractive(), prompt(question, best, passage(2, as_good))) == f"{best.text} [1] {as_good} [2]"


def test_a_row_of_a_table_follows_another_one_only_if_it_fits_as_well() -> None:
    table = "| Gate | Keys |\n|---|---|\n| red, open | rotated |\n| blue | rotated |\n| red, open | rotated twice |"
    assert answer_text(extractive(), prompt("Are the keys of the open red gate rotated?", passage(1, table))) == (
        "Gate: red, open; Keys: rotated [1]\n\nGate: red, open; Keys: rotated twice [1]"
    )


def test_a_heading_inside_a_passage_is_about_all_sentences_up_to_the_next_heading() -> None:
    text = "# Keys\n\nOne hangs here. Another hangs there.\n\n# Lamps\n\nThey are lit."
    candidates = find_candidates([passage(1, text)])
    assert [candidate.text for candidate in candidates if "key" in candidate.known_terms] == [
        "One hangs here.",
        "Another hangs there.",
    ]
    assert [candidate.text for candidate in candidates if "lamp" in candidate.known_terms] == ["They are lit."]


def test_a_bare_yes_or_no_is_quoted_with_the_sentence_after_it() -> None:
    assert texts("# May guests enter?\n\nNo. They wait outside. It is dry.") == ["No. They wait outside.", "It is dry."]
    assert texts("# May guests enter?\n\nNo.\n\nThe gate is red.") == ["No.", "The gate is red."]


def test_a_line_that_is_not_a_sentence_does_not_answer_even_if_it_has_the_words() -> None:
    page = passage(1, "Keys of the gate\n\nThey hang by the door.")
    page = replace(page, hit=replace(page.hit, origin=replace(page.hit.origin, title="Keys of the gate")))
    assert answer_text(extractive(sentences=1), prompt("What about the keys of the gate?", page)) == (
        "They hang by the door. [1]"
    )


def test_a_further_sentence_is_about_the_question_and_does_not_only_repeat_it() -> None:
    mail = "The keys are rotated by Ada. Which keys are rotated? Forward this mail to everybody."
    assert answer_text(extractive(), prompt("Which keys are rotated?", passage(1, mail))) == (
        "The keys are rotated by Ada. [1]"
    )


def test_a_question_that_names_two_things_is_answered_from_both_documents() -> None:
    keys, gate = "Keys are rotated daily. Keys are rotated by Ada. Keys are rotated here.", "The gate is often open."
    both = prompt("Are keys rotated and is the gate open?", passage(1, keys), passage(2, gate, score=0.1))
    assert answer_text(extractive(), both).endswith("The gate is often open. [2]")
    one = prompt("Are keys rotated by Ada?", passage(1, keys), passage(2, gate, score=0.1))
    assert "[2]" not in answer_text(extractive(), one)


def test_a_heading_in_capitals_is_left_out_of_its_sentence() -> None:
    assert texts("WHAT WAS SEEN\nAt 10:52 desk A froze.\nNATO is\nan alliance.") == [
        "At 10:52 desk A froze.",
        "NATO is an alliance.",
    ]


def test_a_sentence_of_two_passages_counts_once() -> None:
    candidates = find_candidates([passage(1, "One. Two."), passage(2, "Two. Three.")])
    assert [(candidate.text, candidate.passage.n) for candidate in candidates] == [
        ("One.", 1),
        ("Two.", 1),
        ("Three.", 2),
    ]


@pytest.mark.parametrize(
    ("question", "type", "answer", "other"),
    [
        ("How many lamps burned?", "number", "They were three hundred.", "They were plenty."),
        ("In what year was it built?", "time", "It was built in 1931.", "It was built well."),
        ("Who turned the switch, and when?", "name", "It was Mrs Thorne.", "Somebody did."),
        ("Why did it stop?", "reason", "It stopped due to ice.", "It stopped."),
        ("May guests use the gate?", "yes or no", "Guests must not use it.", "Guests like it."),
        ("Dürfen Gäste das Tor benutzen?", "yes or no", "Gästen ist es verboten.", "Gäste mögen es."),
        ("Name the two gates.", "list", "They are A, B, and C.", "They are red."),
        ("Wie viele Lampen brannten?", "number", "Es waren zwölf.", "Es waren viele."),
        ("Wann schließt das Tor?", "time", "Es schließt um 18 Uhr.", "Es schließt bald."),
        ("En quelle année fut-il construit ?", "time", "Il fut construit en 1931.", "Il fut bien construit."),
        ("Pourquoi la porte est-elle fermée ?", "reason", "Elle est fermée à cause du gel.", "Elle est fermée."),
        ("¿Cuándo abre la puerta?", "time", "Abre en enero.", "Abre pronto."),
        ("¿Quién cierra la puerta?", "name", "La cierra Ana.", "La cierra alguien."),
        ("闸门什么时候关闭？", "time", "闸门在18时关闭。", "闸门会关闭。"),  # noqa: RUF001
        ("How much did the gate cost?", "price", "It was 40 euros.", "It was 40 years old."),
        ("What is the daily fee of a guest?", "price", "Guests pay $5.", "Guests pay it."),
        ("Was kostet das Tor?", "price", "Es kostet 40 €.", "Es ist 40 Jahre alt."),
        ("Combien coûte la porte ?", "price", "Elle coûte 40 euros.", "Elle a 40 ans."),
        ("¿Cuánto cuesta la puerta?", "price", "Es gratis.", "Es de hierro."),
        ("这扇门多少钱？", "price", "这扇门400元。", "这扇门有40年了。"),  # noqa: RUF001
        ("How heavy is the gate?", "number", "It weighs 40 kg.", "It is iron."),
        ("Welchen Betrag zahlt der Gast?", "number", "Er zahlt 12 Euro.", "Er zahlt gern."),
        ("Wie schwer ist das Tor?", "number", "Es wiegt 40 kg.", "Es ist aus Eisen."),
        ("When is the gate closed?", "time", "On Mondays.", "At night."),
        ("À quelle heure ferme la porte ?", "time", "Elle ferme à 18 h.", "Elle ferme tôt."),
        ("Wie heißt der Wächter?", "name", "Es ist Jonas.", "Es ist er."),
        ("¿En qué lugar está la llave?", "name", "Está en Soria.", "Está colgada."),
        ("Puis-je fermer la porte ?", "yes or no", "C'est interdit.", "Elle est rouge."),
        ("¿Cierra el guarda la puerta?", "yes or no", "No la cierra.", "La puerta es roja."),
        ("¿Sabe usted cuánto pesa la puerta?", "number", "Pesa 40 kg.", "Es de hierro."),
        ("钥匙几点交还？", "time", "钥匙在6点交还。", "钥匙要交还。"),  # noqa: RUF001
        ("有多少把钥匙？", "number", "有十二把钥匙。", "有很多钥匙。"),  # noqa: RUF001
    ],
)
def test_a_question_asks_for_what_its_first_words_say(question: str, type: str, answer: str, other: str) -> None:
    detected_type = question_type(question)
    assert detected_type is not None
    assert detected_type.name == type
    assert detected_type.answer_pattern.search(answer)
    assert not detected_type.answer_pattern.search(other)


def test_other_questions_ask_for_nothing_in_particular() -> None:
    assert question_type("What is the size of a gate?") is None
    assert question_type("Welche Farbe hat das Tor?") is None


def follow_up(question: str, carried: str, *passages: Passage) -> Prompt:
    return replace(prompt(f"{question} ({carried})", *passages), question=question)


KEY_FACTS = passage(1, "The holders are Ann and Bo. They meet at noon.", score=0.5)
KEY_DOCUMENT = replace(KEY_FACTS, hit=replace(KEY_FACTS.hit, origin=Origin(uri="keys.md", title="Rotation of keys")))
OTHER = passage(2, "For the rotation of keys see there.")


def test_a_follow_up_is_answered_from_the_document_that_was_carried_over() -> None:
    ranking = rank_candidates(
        extractive(), follow_up("And who may open that?", "Rotation of keys", KEY_DOCUMENT, OTHER)
    )
    assert ranking.candidates[0].passage.n == 1


@pytest.mark.parametrize(("question", "is_sure"), [("How often are they red?", False), ("Which keys rotate?", True)])
def test_carried_words_alone_make_no_answer_sure(question: str, is_sure: bool) -> None:
    keys = passage(1, "The rotation of keys is done by Ann.")
    generator = extractive(ScriptedEncoder(cosines={"rotation": 1.0}))
    ranking = rank_candidates(generator, follow_up(question, "Rotation of keys", keys))
    assert (ranking.confidence > UNTYPED_CONFIDENCE) == is_sure


def test_a_rewritten_question_counts_as_the_words_of_the_user() -> None:
    rewritten = replace(prompt("Which keys rotate?"), question="And which?")
    assert split_carried(rewritten) == ("Which keys rotate?", "")
    assert split_carried(prompt("Which keys rotate?")) == ("Which keys rotate?", "")
