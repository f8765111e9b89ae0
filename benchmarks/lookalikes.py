"""Two hundred generated documents that look alike: mails, contracts and tickets, each with one question.

The documents of a kind have the same sentences and differ in names, dates, numbers and the sentence that answers. So
almost all of a collection is about as near to a question as the document that answers it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from rag_core.evaluation.question import CorpusDocument

FIRST_NAMES = ("Anna", "Ben", "Carla", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Liam")
LAST_NAMES = ("Adler", "Brandt", "Castro", "Dahl", "Egger", "Fuchs", "Grant", "Hale", "Iversen", "Jansen", "Keller")
FIRMS = (
    "Northgate",
    "Bluewater",
    "Silverline",
    "Oakfield",
    "Redstone",
    "Highmoor",
    "Clearbrook",
    "Eastmark",
    "Fairhill",
)
TRADES = ("Logistics", "Foods", "Printing", "Software", "Textiles", "Robotics", "Catering", "Energy", "Optics")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
ROOMS = ("Baltic", "Atlas", "Cedar", "Delta", "Ember", "Fjord", "Garnet", "Harbour")
TOPICS = ("the budget review", "the safety audit", "the spring catalogue", "the new intranet", "the office move")
GOODS = ("pallet scanners", "label printers", "cold boxes", "work gloves", "fork lifts", "steel shelves")
SYSTEMS = ("billing gateway", "badge reader", "mail relay", "print server", "wiki", "payroll export", "scanner")
SITES = ("Leeds", "Porto", "Graz", "Lyon", "Turku", "Gdansk", "Bergen", "Cork")
CAUSES = (
    "an expired certificate",
    "a full disk",
    "a wrong time zone",
    "a loose cable",
    "a blocked port",
    "a stale cache",
)
REMEDIES = ("renewing it", "clearing it", "correcting the configuration", "replacing it", "opening it", "restarting it")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlike:
    """A document, and a question that it answers with `answer`."""

    document: CorpusDocument
    question: str
    answer: str


def generate_lookalikes(count: int = 200, seed: int = 29) -> list[LookAlike]:
    """Generates mails, contracts and tickets in turns; the same for the same arguments."""
    generator = random.Random(seed)
    kinds = (_mails(generator), _contracts(generator), _tickets(generator))
    return [next(kinds[number % len(kinds)]) for number in range(count)]


def _mails(generator: random.Random) -> Iterator[LookAlike]:
    seen = set[tuple[str, str]]()
    while True:
        sender, reader, topic = _name(generator), _name(generator), generator.choice(TOPICS)
        if sender == reader or (sender, topic) in seen:
            continue
        seen.add((sender, topic))
        day, room = _date(generator), generator.choice(ROOMS)
        time = f"{generator.randint(8, 17)}:{generator.choice(('00', '15', '30', '45'))}"
        text = (
            f"From: {sender}\nTo: {reader}\nSubject: Meeting on {topic}\n\nHello {reader.split()[0]},\n\n"
            f"thank you for your message. The meeting on {topic} takes place on {day} at {time}."
            f" We meet in room {room}. Please bring your notes and tell me if you cannot come.\n\n"
            f"Kind regards\n{sender}\n"
        )
        question, answer = _pick(
            generator,
            (f"When does {sender}'s meeting on {topic} take place?", day),
            (f"In which room is {sender}'s meeting on {topic}?", f"room {room}"),
        )
        yield _lookalike("mail", len(seen), f"Meeting on {topic}", text, question, answer)


def _contracts(generator: random.Random) -> Iterator[LookAlike]:
    seen = set[str]()
    while True:
        firm = f"{generator.choice(FIRMS)} {generator.choice(TRADES)}"
        if firm in seen:
            continue
        seen.add(firm)
        other, goods, number = _name(generator), generator.choice(GOODS), f"C-{generator.randint(1000, 9999)}"
        price, months, day = generator.randint(20, 900) * 100, generator.randint(2, 36), _date(generator)
        text = (
            f"SUPPLY CONTRACT {number}\n\nThis contract is made between {firm} Ltd, the supplier, and the customer,"
            f" represented by {other}.\n\nThe supplier delivers {goods}. The price is {price:,} euros per year, payable"
            f" within 30 days. The contract starts on {day}. Either party can end it with a notice of {months} months."
            "\n\nThe law of the supplier's country applies. Changes to this contract must be made in writing.\n"
        )
        question, answer = _pick(
            generator,
            (f"What is the price in the supply contract with {firm}?", f"{price:,} euros"),
            (f"What notice period does the contract with {firm} have?", f"{months} months"),
            (f"When does contract {number} start?", day),
            (f"What does {firm} deliver?", goods),
        )
        yield _lookalike("contract", len(seen), f"Supply contract {number}", text, question, answer)


def _tickets(generator: random.Random) -> Iterator[LookAlike]:
    seen = set[str]()
    while True:
        number = f"TK-{generator.randint(10000, 99999)}"
        if number in seen:
            continue
        seen.add(number)
        person, system, site = _name(generator), generator.choice(SYSTEMS), generator.choice(SITES)
        cause, hours = generator.randrange(len(CAUSES)), generator.randint(2, 40)
        text = (
            f"Ticket {number}: {system} in {site} does not respond\n\nReported by {person}. Priority: normal.\n\n"
            f"The {system} in {site} does not respond since this morning and users see an error. The cause was"
            f" {CAUSES[cause]}. It was solved by {REMEDIES[cause]}. The work took {hours} hours. It is closed.\n"
        )
        question, answer = _pick(
            generator,
            (f"What was the cause of ticket {number}?", CAUSES[cause]),
            (f"Who reported ticket {number}?", person),
            (f"How long did the work on ticket {number} take?", f"{hours} hours"),
        )
        yield _lookalike("ticket", len(seen), f"Ticket {number}", text, question, answer)


def _lookalike(kind: str, number: int, title: str, text: str, question: str, answer: str) -> LookAlike:
    document = CorpusDocument(id=f"{kind}-{number:03}", title=title, text=text)
    return LookAlike(document=document, question=question, answer=answer)


def _name(generator: random.Random) -> str:
    return f"{generator.choice(FIRST_NAMES)} {generator.choice(LAST_NAMES)}"


def _date(generator: random.Random) -> str:
    return f"{generator.randint(1, 28)} {generator.choice(MONTHS)} {generator.randint(2021, 2026)}"


def _pick(generator: random.Random, *pairs: tuple[str, str]) -> tuple[str, str]:
    return generator.choice(pairs)
