"""The sources of a command's answers: the store and the models of the settings, or a gateway."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rag_cli.question_options import print_unknown_keys, refuse_groups, server_options
from rag_cli.search import parse_filter_option
from rag_cli.terminal.options import GlobalOptions
from rag_core.errors import UsageError
from rag_core.events import Event, RunStarted, fold
from rag_core.retrieval.why import Facts
from rag_core.types import Reply

if TYPE_CHECKING:
    from rag_core.knowledge_base import KnowledgeBase

ShowEvent: TypeAlias = Callable[[Event], None]


class Answerer(Protocol):
    def ask(self, question: str, session_id: str, show_event: ShowEvent) -> tuple[Reply, str]:
        """Answers a question of a session. The second value is the id of a gateway's answer; empty without one."""
        ...

    def why(self, question: str, uri: str) -> Facts:
        """Traces a document. Raises UsageError for a gateway."""
        ...


@contextmanager
def open_answerer(
    options: GlobalOptions, collection: str, filter: str | None, server: str | None, groups: tuple[str, ...] = ()
) -> Iterator[Answerer]:
    """Yields the gateway at `server`, or else the store of the options, with its models loaded."""
    filters = parse_filter_option(filter)
    if server is not None:
        refuse_groups(groups)
        body = {**server_options(options), "collection": collection, "filters": filters}
        yield GatewayAnswerer(server=server, body=body)
        return
    from rag_core.knowledge_base import KnowledgeBase

    with KnowledgeBase(options.settings) as knowledge:
        print_unknown_keys(knowledge, filters, collection, options)
        knowledge.load(answering=True)
        yield LocalAnswerer(knowledge=knowledge, collection=collection, filters=filters, groups=groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswerer:
    knowledge: "KnowledgeBase"
    collection: str
    filters: Mapping[str, Any] | None
    groups: tuple[str, ...]

    def ask(self, question: str, session_id: str, show_event: ShowEvent) -> tuple[Reply, str]:
        reply = self.knowledge.ask(
            question, self.collection, self.filters, session_id, on_event=show_event, groups=self.groups
        )
        return reply, ""

    def why(self, question: str, uri: str) -> Facts:
        return self.knowledge.why(question, uri, collection=self.collection, filters=self.filters, groups=self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAnswerer:
    """`body` holds the members that all requests to the gateway have."""

    server: str
    body: Mapping[str, Any]

    def ask(self, question: str, session_id: str, show_event: ShowEvent) -> tuple[Reply, str]:
        from rag_cli.server_client import stream_answer

        id, events = "", list[Event]()
        for event in stream_answer(self.server, {**self.body, "question": question, "conversation_id": session_id}):
            show_event(event)
            events.append(event)
            if isinstance(event, RunStarted):
                id = event.id
        return fold(events), id

    def why(self, question: str, uri: str) -> Facts:  # noqa: ARG002
        raise UsageError("/why reads the store; it cannot be used with --server")
