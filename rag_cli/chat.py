"""`rag chat`."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import typer

from rag_cli.answer_view import AnswerPrinter, render_passages
from rag_cli.answerers import Answerer, open_answerer
from rag_cli.ask import print_details
from rag_cli.question_options import CollectionOption, FilterOption, ServerOption, SessionOption
from rag_cli.ranking_view import print_failures
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_error, print_json
from rag_cli.why import print_facts
from rag_core.errors import RagError, UsageError
from rag_core.retrieval.query.continuation import choose_option
from rag_core.types import DEFAULT_COLLECTION, Reply
from rag_core.wire.answer import Asked, Source

HELP = """\
/sources      show the passages that the last answer was written from
/why N|URI    explain why a document was found, or what lost it; N is the number of a passage
/new          begin a new conversation
/help         show this list
/quit         end the chat
A number chooses one of the options that an answer asks back. Ctrl-C cancels an answer, Ctrl-D ends the chat."""


@command
def chat(
    options: GlobalOptions,
    collection: CollectionOption = DEFAULT_COLLECTION,
    filter: FilterOption = None,
    session: SessionOption = "",
    server: ServerOption = None,
) -> None:
    """Answer the lines of standard input as one conversation, each with regard to those before it.

    The lines /sources, /why, /new, /help and /quit are commands. With --json, each answer is one line of JSON. The exit
    code is 1 if a question failed.

    Example: rag chat --collection docs
    """
    with open_answerer(options, collection, filter, server) as answerer:
        conversation = Chat(answerer, options, session or create_session_id())
        conversation.print_session()
        for line in read_lines(prompt="" if options.json else "> "):
            if not conversation.handle(line):
                break
    if conversation.failures:
        raise typer.Exit(1)


def create_session_id() -> str:
    return uuid4().hex


def read_lines(prompt: str) -> Iterator[str]:
    """Yields the lines of standard input that have words, without NUL. On a terminal, an interrupt discards the line.

    Raises UsageError for input in another encoding.
    """
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        with suppress(ImportError):
            import readline  # noqa: F401 - lets `input` edit lines and recall earlier ones
    while True:
        try:
            line = input(prompt if is_terminal else "").replace("\0", "").strip()
        except EOFError:
            return
        except UnicodeDecodeError as error:
            raise UsageError(f"standard input must be {error.encoding} text, got other bytes") from None
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            typer.echo()
            continue
        if line:
            yield line


class Chat:
    """A conversation on the terminal. `failures` counts the lines that could not be answered."""

    def __init__(self, answerer: Answerer, options: GlobalOptions, session_id: str) -> None:
        self.failures = 0
        self._answerer, self._options, self._session_id = answerer, options, session_id
        self._console = stdout_console()
        self._last: Reply | None = None
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/sources": self._print_sources,
            "/why": self._print_why,
            "/new": self._begin,
            "/help": lambda _argument: typer.echo(HELP),
        }

    def print_session(self) -> None:
        if not self._options.quiet:
            typer.echo(f"session {self._session_id}; to continue it: rag chat --session {self._session_id}", err=True)

    def handle(self, line: str) -> bool:
        """Answers a question or runs a command. Returns False if the line ends the chat."""
        name, _, argument = line.partition(" ")
        if name == "/quit":
            return False
        try:
            if not name.startswith("/"):
                self._answer(line)
            elif name in self._commands:
                self._commands[name](argument.strip())
            else:
                raise UsageError(f"unknown command {name}; /help lists the commands")
        except KeyboardInterrupt:
            typer.echo("\ncancelled", err=True)
        except RagError as error:
            self.failures += 1
            print_error(error, self._options)
        return True

    def _answer(self, line: str) -> None:
        if self._last and self._last.clarification:
            line = choose_option(line, self._last.answer.text)
        printer = AnswerPrinter(self._console)
        show_event = (lambda _event: None) if self._options.json else printer.print_event
        self._last, id = self._answerer.ask(line, self._session_id, show_event)
        if not self._options.quiet:
            print_failures(self._last.stages)
        if self._options.json:
            print_json(Asked.describe(self._last, datetime.now(UTC), explain=False, id=id))
        else:
            print_details(self._console, self._last, stages=self._options.verbose, explain=False)

    def _print_sources(self, _argument: str) -> None:
        passages = self._last_reply().passages
        if self._options.json:
            print_json([Source.describe(passage) for passage in passages])
        else:
            self._console.print(render_passages(passages))

    def _print_why(self, argument: str) -> None:
        """Explains the rank of a passage's document, or of any document, for the last question as it was searched."""
        reply = self._last_reply()
        uris = {str(passage.n): passage.hit.origin.uri for passage in reply.passages}
        if not argument:
            raise UsageError("/why needs the number of a passage or the uri of a document")
        uri = uris.get(argument) or (argument if "://" in argument else Path(argument).resolve().as_uri())
        print_facts(self._answerer.why(reply.standalone, uri), reply.standalone, self._options)

    def _begin(self, _argument: str) -> None:
        self._session_id, self._last = create_session_id(), None
        self.print_session()

    def _last_reply(self) -> Reply:
        if self._last is None:
            raise UsageError("no question has been answered yet")
        return self._last
