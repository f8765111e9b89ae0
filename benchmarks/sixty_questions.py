"""Sixty questions over the folder of an invented company, answered without a language model.

`sixty/documents` has policies, tables, minutes, mails, contracts and invoices in English, German, French, Spanish and
Chinese. `sixty/questions.jsonl` has, for each question, its `key`: what a good answer contains. `literal` are texts of
the key that occur in the documents. Eight questions are unanswerable: the documents have their topic, but not the fact.

A reader judges the replies in the file of `--json` by question and key alone, and writes a JSON object from each
question to a verdict: good, partial, wrong, or refused. A reply that quotes passages is judged by what it quotes.

    python -m benchmarks.sixty_questions --json replies.json
    python -m benchmarks.sixty_questions --set embedding.type=hashing
    python -m benchmarks.sixty_questions --json replies.json --judged verdicts.json     asks nothing
"""

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from urllib.parse import unquote

from benchmarks.answers import KINDS
from benchmarks.json_lines import json_lines
from benchmarks.machine import command, heading
from benchmarks.scratch import scratch_folder, server_in
from jobs.machine import describe_machine
from rag_core.answering.pipeline import AnswerLimits
from rag_core.config import Settings
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.settings import load_settings
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Query, Reply
from rag_core.wiring.ingestion import build_inline_runner, build_sync
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.pipeline import build_pipeline
from rag_core.wiring.retrieval import build_retriever

FOLDER = Path(__file__).parent / "sixty"
DOCUMENTS = FOLDER / "documents"
COLLECTION = "sixty"

VERDICTS = ("good", "partial", "wrong", "refused")
SURE = 0.7
"""A wrong reply with a confidence above this is counted apart."""

_MARKER = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SixtyQuestion:
    question: str
    language: str
    kind: str
    key: str
    literal: tuple[str, ...]
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SixtyReply:
    """A reply as a reader sees it, and what the table needs. `reply` is answer, passages or refusal; `cited` are names
    of documents."""

    question: str
    language: str
    kind: str
    key: str
    reply: str
    text: str
    confidence: float | None
    cited: tuple[str, ...]

    @property
    def sentences(self) -> int:
        """The number of quoted sentences: each has a marker."""
        return len(_MARKER.findall(self.text))


def main() -> None:
    arguments = _arguments()
    if arguments.judged:
        verdicts = json.loads(arguments.judged.read_text())
        print(heading())
        _show_verdicts(read_replies(arguments.json), verdicts)
        return
    settings = load_settings(None, "default", arguments.set, environment={})
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        replies = asyncio.run(_ask_all(settings, Postgres.open(dsn), read_questions()))
    if arguments.json:
        properties = {
            "machine": describe_machine(),
            "command": command(),
            "pipeline_version": settings.pipeline_version,
        }
        written = {**properties, "replies": [asdict(reply) for reply in replies]}
        arguments.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n")
    print(heading())
    _show_replies(replies)


def read_questions() -> list[SixtyQuestion]:
    return [
        SixtyQuestion(**{**row, "literal": tuple(row["literal"]), "documents": tuple(row["documents"])})
        for row in json_lines(FOLDER / "questions.jsonl")
    ]


def read_replies(file: Path) -> list[SixtyReply]:
    return [SixtyReply(**{**row, "cited": tuple(row["cited"])}) for row in json.loads(file.read_text())["replies"]]


async def _ask_all(settings: Settings, postgres: Postgres, questions: Sequence[SixtyQuestion]) -> list[SixtyReply]:
    build_sync(settings, postgres, [str(DOCUMENTS)], COLLECTION).run(build_inline_runner(settings))
    corpus, remote = CorpusReader(postgres), RemoteModels()
    try:
        retriever = build_retriever(settings, corpus, remote)
        pipeline = build_pipeline(settings, corpus, retriever, InMemoryConversations(), remote)
        no_timeouts = AnswerLimits(depth=pipeline.limits.depth)  # else a busy machine would lose answers
        untimed = replace(pipeline, limits=no_timeouts)
        queries = [Query(text=asked.question, tenant=settings.tenant, collection=COLLECTION) for asked in questions]
        return [_reply(asked, await untimed.answer(query)) for asked, query in zip(questions, queries, strict=True)]
    finally:
        await corpus.close()


def _reply(asked: SixtyQuestion, reply: Reply) -> SixtyReply:
    answer = reply.answer
    return SixtyReply(
        question=asked.question,
        language=asked.language,
        kind=asked.kind,
        key=asked.key,
        reply=KINDS[answer.finish],
        text=answer.text,
        confidence=None if answer.confidence is None else round(answer.confidence, 3),
        cited=tuple(dict.fromkeys(Path(unquote(citation.uri)).name for citation in answer.citations)),
    )


def _show_replies(replies: Sequence[SixtyReply]) -> None:
    print(f"{'':10} {'replies':>7} {'sentences':>9}  confidence: least, mean, most")
    for kind in KINDS.values():
        of_kind = [reply for reply in replies if reply.reply == kind]
        print(f"{kind:10} {len(of_kind):7} {_describe(of_kind)}".rstrip())


def _describe(replies: Sequence[SixtyReply]) -> str:
    """The mean number of sentences, and the spread of the confidences as far as there are any."""
    if not replies:
        return ""
    sentences = fmean(reply.sentences for reply in replies)
    confidences = [reply.confidence for reply in replies if reply.confidence is not None]
    spread = f"{min(confidences):.2f}, {fmean(confidences):.2f}, {max(confidences):.2f}" if confidences else ""
    return f"{sentences:9.2f}  {spread}"


def _show_verdicts(replies: Sequence[SixtyReply], verdicts: Mapping[str, str]) -> None:
    print(f"{'':14}" + "".join(f"{verdict:>9}" for verdict in VERDICTS) + f"{f'wrong > {SURE}':>13}")
    for name, group in _groups(replies):
        counts = Counter(verdicts[reply.question] for reply in group)
        if unknown := counts.keys() - set(VERDICTS):
            raise SystemExit(f"a verdict must be one of {', '.join(VERDICTS)}, got {min(unknown)!r}")
        sure = sum(verdicts[reply.question] == "wrong" and (reply.confidence or 0) > SURE for reply in group)
        print(f"{name:14}" + "".join(f"{counts[verdict]:9}" for verdict in VERDICTS) + f"{sure:13}")


def _groups(replies: Sequence[SixtyReply]) -> Iterator[tuple[str, list[SixtyReply]]]:
    yield "all", list(replies)
    for kind in sorted({reply.kind for reply in replies}):
        yield kind, [reply for reply in replies if reply.kind == kind]
    for language in sorted({reply.language for reply in replies}):
        yield language, [reply for reply in replies if reply.language == language]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the file that the replies are written to")
    parser.add_argument("--judged", type=Path, metavar="FILE", help="verdicts on the replies in the file of --json")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    arguments = parser.parse_args()
    if arguments.judged and not arguments.json:
        parser.error("--judged needs --json, the file that contains the replies")
    return arguments


if __name__ == "__main__":
    main()
