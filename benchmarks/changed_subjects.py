"""Follow-ups after a change of the subject: what do they refer to, the new subject or the former one?

DATA is a folder with scripted conversations, such as demo. Each is held in one session after the first turns of the
conversation before it in the file. The referent of a follow-up is the title that the rules carry over. It is right if
it is that of a document that the turn expects. It is of the former subject if it is that of another document, which
was only cited before the change. `right documents` counts the answers that cite an expected document.

    python -m benchmarks.changed_subjects demo
    python -m benchmarks.changed_subjects demo --split train --former-turns 5
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.evaluation.scripted_conversations import CORPUS, ScriptedConversation, ScriptedTurn, read_scripts
from rag_core.ingestion.sources.local import path_from_uri
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.types import Reply

CALLERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTurn:
    """A scripted turn and its reply. `is_former` is true before the change of the subject."""

    script: ScriptedTurn
    reply: Reply
    is_former: bool

    @property
    def is_change(self) -> bool:
        return self.reply.understanding is not None and self.reply.understanding.is_shift

    @property
    def carried(self) -> str:
        """What was added to the question because it could refer to it; empty if nothing was."""
        variants = self.reply.understanding.variants if self.reply.understanding else ()
        texts = (variant.text for variant in variants if variant.name == "carried")
        return next((text.removeprefix(self.script.question) for text in texts), "")

    def list_documents(self, corpus: Path) -> dict[str, str]:
        """The titles of the documents that the answer cites, by path below the corpus."""
        return {
            Path(path_from_uri(citation.uri)).relative_to(corpus).as_posix(): citation.title
            for citation in self.reply.answer.citations
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """What a follow-up referred to, and whether its answer cites an expected document."""

    is_right: bool
    is_former: bool
    cites_expected: bool
    is_change_detected: bool


def main() -> None:
    arguments = _arguments()
    print(heading())
    corpus = arguments.data / CORPUS
    scripts = read_scripts(arguments.data, arguments.split, arguments.limit)
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        settings = load_settings(None, "default", [f"store.url={dsn}", *arguments.set], environment={})
        with KnowledgeBase(settings) as knowledge, ThreadPoolExecutor(CALLERS) as pool:
            knowledge.ingest(corpus)
            hold = partial(hold_conversations, knowledge, former_turns=arguments.former_turns)
            sessions = list(pool.map(hold, pairwise(scripts)))
    follow_ups = [one for session in sessions for one in measure_session(session, corpus.resolve())]
    print(f"{len(sessions)} sessions with a change of the subject")
    report("all", follow_ups)
    for name, is_detected in {"change detected": True, "change missed": False}.items():
        report(name, [one for one in follow_ups if one.is_change_detected is is_detected])


def hold_conversations(
    knowledge: KnowledgeBase, scripts: tuple[ScriptedConversation, ScriptedConversation], former_turns: int
) -> list[HeldTurn]:
    """The first turns of the former conversation, and then all of the next one, in one session."""
    former, latter = scripts
    turns = [*((script, True) for script in former.turns[:former_turns]), *((script, False) for script in latter.turns)]
    return [
        HeldTurn(script=script, reply=knowledge.ask(script.question, session_id=latter.id), is_former=is_former)
        for script, is_former in turns
    ]


def measure_session(session: Sequence[HeldTurn], corpus: Path) -> Iterator[FollowUp]:
    """Yields the follow-ups of the latter conversation that expect an answer."""
    is_detected = next(turn.is_change for turn in session if not turn.is_former)
    titles, latter = dict[str, str](), set[str]()
    for turn in session:
        cited, expected = turn.list_documents(corpus), set(turn.script.documents)
        if turn.script.is_follow_up and expected and not turn.is_former:
            referents = {document for document, title in titles.items() if title and title in turn.carried}
            yield FollowUp(
                is_right=not referents.isdisjoint(expected),
                is_former=bool(referents) and referents.isdisjoint(expected | latter),
                cites_expected=not expected.isdisjoint(cited),
                is_change_detected=is_detected,
            )
        titles |= cited
        if not turn.is_former:
            latter |= cited.keys()


def report(name: str, follow_ups: Sequence[FollowUp]) -> None:
    counts = [sum(getattr(one, field) for one in follow_ups) for field in ("is_right", "is_former", "cites_expected")]
    shares = [f"{count} ({count / len(follow_ups):.1%})" for count in counts] if follow_ups else ["-"] * 3
    print(
        f"{name}: {len(follow_ups)} follow-ups; referent right {shares[0]}, of the former subject {shares[1]};"
        f" right documents {shares[2]}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="the number of conversations, from the first")
    parser.add_argument("--former-turns", type=int, default=3, metavar="N")
    parser.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
