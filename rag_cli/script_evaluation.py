"""The evaluation of a profile on scripted conversations, with progress on the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from jobs.evaluate import collection_name, ingest_dataset
from rag_cli.dataset_evaluation import Choices
from rag_cli.outcome_progress import collect_outcomes
from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, print_json
from rag_cli.terminal.progress import JobProgress
from rag_core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from rag_core.evaluation.dataset import Dataset
    from rag_core.evaluation.script_figures import AnswerShares, ScriptFigures
    from rag_core.evaluation.scripted_conversations import ScriptedConversation
    from rag_core.evaluation.scripted_replies import MeasuredTurn
    from rag_core.evaluation.significance import Estimate

MAX_SHOWN_ERRORS = 5


def evaluate_scripts(folders: Sequence[Path], choices: Choices, options: GlobalOptions, out: Path | None) -> None:
    """Asks the turns of each conversation, prints the figures, and writes them to `out`.

    Raises UsageError for several folders, and for options that do not apply.
    """
    from jobs.evaluation_files import check_folder
    from jobs.script_files import write_script_evaluation
    from rag_core.evaluation.conversation_mode import ConversationMode
    from rag_core.evaluation.script_figures import figures_to_json, measure_scripts
    from rag_core.evaluation.scripted_conversations import read_scripts

    if len(folders) > 1:
        raise UsageError(f"scripted conversations require one dataset, got {len(folders)}")
    has_modes = choices.modes != [ConversationMode.fused]
    if choices.answers or choices.against or choices.retriever or choices.padding or has_modes:
        raise UsageError("scripted conversations measure answers: options about retrieval and judges do not apply")
    folder = folders[0]
    scripts = read_scripts(folder, choices.split, choices.limit)
    if out:
        check_folder(out)
    with stderr_console(options.quiet) as console:
        run = _ScriptRun(folder=folder, choices=choices, options=options, console=console)
        figures = measure_scripts(run.ask(scripts))
    report = {**run.describe(scripts), **figures_to_json(figures)}
    if out:
        write_script_evaluation(out, figures, report)
    if options.json:
        print_json(report)
    else:
        _print_figures(figures, report)
    if figures.errors:
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class _ScriptRun:
    """The collection and the store in which the conversations of a folder are asked."""

    folder: Path
    choices: Choices
    options: GlobalOptions
    console: "Console"

    @cached_property
    def dataset(self) -> "Dataset":
        """The corpus, without questions."""
        from rag_core.evaluation.dataset import Dataset
        from rag_core.evaluation.scripted_conversations import CORPUS

        return Dataset(name=self.folder.resolve().name, corpus=self.folder / CORPUS, questions=())

    @property
    def collection(self) -> str:
        return self.choices.collection or collection_name(self.dataset, self.options.settings)

    def ask(self, scripts: "Sequence[ScriptedConversation]") -> "list[MeasuredTurn]":
        """Ingests the corpus, and asks all turns. Erases their conversations at the end."""
        from jobs.retrieval_traces import use_open_store
        from jobs.script_runner import SessionAsker, erase_session, run_scripts
        from rag_core.knowledge_base import KnowledgeBase
        from rag_core.storage.postgres import Postgres

        settings = self.options.settings
        postgres = Postgres.open(settings.store.url)
        with JobProgress(postgres, settings.tenant, self.console) as progress:
            ingest_dataset(self.dataset, self.collection, postgres, settings, self.choices.runner, progress.begin)
        with KnowledgeBase(use_open_store(settings, postgres)) as knowledge:
            knowledge.load(answering=True)
            asker = SessionAsker(knowledge=knowledge, collection=self.collection, corpus=self.dataset.corpus)
            forget = partial(erase_session, postgres, settings.tenant)
            turns = run_scripts(asker.ask, scripts, self.choices.callers, forget)
            return collect_outcomes(turns, sum(len(script.turns) for script in scripts), self.console, "asking")

    def describe(self, scripts: "Sequence[ScriptedConversation]") -> dict[str, Any]:
        from jobs.machine import describe_machine
        from jobs.provenance import describe_program
        from jobs.question_answers import describe_judge
        from rag_core.evaluation.scripted_conversations import hash_scripts

        settings = self.options.settings
        return {
            "dataset": self.dataset.name,
            "split": self.choices.split,
            "tenant": settings.tenant,
            "collection": self.collection,
            "profile": settings.profile,
            "pipeline_version": settings.pipeline_version,
            "dataset_hash": hash_scripts(scripts),
            "judge": describe_judge(settings),
            "machine": describe_machine(),
            **describe_program(),
            "callers": self.choices.callers,
        }


def _print_figures(figures: "ScriptFigures", report: Mapping[str, Any]) -> None:
    console = stdout_console()
    counts = f"{report['conversations']} conversations, {report['turns']} turns"
    console.print(_answer_table(figures, f"{report['dataset']} with {report['profile']}: {counts}"))
    if "follow-ups" in figures.groups:
        console.print(f"follow-ups, with history over without: {_format_gain(figures.groups['follow-ups'])}")
    expectations = ", ".join(f"{met} of {total} {name}" for name, (met, total) in figures.met.items())
    console.print(f"replies of the expected kind: {expectations}")
    failures = ", ".join(f"{count} {name}" for name, count in figures.failures.most_common())
    console.print(f"not answered right: {failures or 'none'}; only repeated: {len(figures.repetitions)}")
    console.print(f"turns searched with words of another session: {len(figures.foreign)}")
    for turn in figures.errors[:MAX_SHOWN_ERRORS]:
        line = f"failed: {turn.conversation}, turn {turn.position}: {turn.reply.error}"
        console.print(line, markup=False, soft_wrap=True)


def _answer_table(figures: "ScriptFigures", title: str) -> Table:
    """A row per role of the question and per position, with the shares of right answers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("answers", no_wrap=True)
    for column in ("turns", "right document", "with the facts", "without history", "with the facts"):
        table.add_column(column, justify="right")
    positions = {f"turn {position}": shares for position, shares in figures.positions.items()}
    for name, shares in {**figures.groups, **positions}.items():
        values = map(_format_share, (*shares.measures.values(), *shares.alone.values()))
        table.add_row(name, str(shares.turns), *values)
    return table


def _format_share(estimate: "Estimate") -> str:
    return f"{estimate.mean:.3f} {estimate.low:.2f}-{estimate.high:.2f}"


def _format_gain(shares: "AnswerShares") -> str:
    comparison = shares.comparison
    difference = comparison.difference
    ratio = "no ratio" if shares.ratio is None else f"ratio {shares.ratio:.2f}"
    return (
        f"{ratio}, difference {difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f}), "
        f"p {comparison.p:.4f}; better on {comparison.better} turns, worse on {comparison.worse}"
    )
