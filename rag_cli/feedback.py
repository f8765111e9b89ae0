"""`rag feedback`."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from typer.core import TyperGroup

from rag_cli.connections import open_replies
from rag_cli.question_options import refuse_local_options
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_facts, print_rows
from rag_core.storage.replies import Feedback
from rag_core.wire.feedback import FeedbackId

Thumbs: TypeAlias = Literal["up", "down"]

RATINGS: dict[Thumbs, int] = {"up": 1, "down": -1}


class DefaultCommandGroup(TyperGroup):
    """A group that runs its command `give` if the first argument names no command."""

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        is_named = arguments[0] in self.commands
        return super().resolve_command(context, arguments if is_named else ["give", *arguments])


app = typer.Typer(
    help="What people think of answers.",
    cls=DefaultCommandGroup,
    no_args_is_help=True,
    context_settings={"ignore_unknown_options": True},  # they are those of `give`
)


@app.command()
@command
def give(
    answer_id: Annotated[str, typer.Argument(help="The id of an answer, as the gateway returned it.")],
    options: GlobalOptions,
    thumbs: Annotated[Thumbs, typer.Option(help="Whether the answer was good.")],
    comment: Annotated[str, typer.Option(help="Why.", show_default=False)] = "",
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Send the feedback to this gateway.", show_default=False)
    ] = None,
) -> None:
    """Rate an answer of a gateway. `give` can be left out.

    Without --server, the rating goes to the store of the settings, which must be the gateway's store.

    Example: rag feedback give ans_0123 --thumbs down --comment "outdated"
    """
    if server is None:
        feedback = Feedback(answer_id=answer_id, rating=RATINGS[thumbs], comment=comment)
        with open_replies(options) as replies:
            stored = FeedbackId(id=replies.add_feedback(feedback).id)
    else:
        from rag_cli.server_client import send_feedback

        names = ("config", "profile", "set", "store", "tenant")
        refuse_local_options([name for name in names if getattr(options, name)])
        stored = send_feedback(server, {"answer_id": answer_id, "rating": RATINGS[thumbs], "comment": comment})
    if options.json:
        print_json(stored)
    elif not options.quiet:
        typer.echo("thank you")


@app.command()
@command
def export(
    options: GlobalOptions,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Write the Parquet files to this folder.")],
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A YAML file with prices per million tokens: `MODEL: {prompt: 0.15, completion: 0.6}`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export the stored answers with their feedback: use, cost and quality, as Parquet.

    `replies.parquet` has one row per answer, `days.parquet` one per day, pipeline and collection.

    Example: rag feedback export --out usage --prices prices.yaml
    """
    from jobs.usage_files import write_usage
    from rag_core.evaluation.usage import read_prices

    table = read_prices(prices) if prices else {}
    with open_replies(options) as stored:
        replies = list(stored.read())
    facts = {"answers": len(replies), "days": write_usage(out, replies, table), "folder": str(out)}
    if options.json:
        print_json(facts)
    elif not options.quiet:
        print_facts(facts)


@app.command()
@command
def agreement(
    annotations: Annotated[
        Path, typer.Argument(help="One JSON object per line: `answer_id`, `annotator` and `label`.")
    ],
    options: GlobalOptions,
) -> None:
    """Compare the labels that annotators gave to the same answers: Cohen's kappa of every two of them.

    Example: rag feedback agreement labels.jsonl
    """
    from rag_core.evaluation.feedback import measure_agreement, read_annotations

    rows = [
        {
            "annotators": list(measured.annotators),
            "answers": measured.answers,
            "observed": round(measured.observed, 4),
            "kappa": None if measured.kappa is None else round(measured.kappa, 4),
            "disagreements": {" / ".join(pair): count for pair, count in sorted(measured.disagreements.items())},
        }
        for measured in measure_agreement(read_annotations(annotations))
    ]
    columns = ("annotators", "answers", "observed", "kappa", "disagreements")
    print_rows(rows, columns, options, "no two annotators have an answer in common")


@app.command()
@command
def drift(
    run: Annotated[Path, typer.Argument(help="The last run: a folder of `rag evaluate --out` with answers.parquet.")],
    options: GlobalOptions,
    days: Annotated[int, typer.Option(min=1, help="Compare the answers of this number of days.")] = 7,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write gauges in Prometheus' text format, too.", show_default=False),
    ] = None,
) -> None:
    """Compare the latest answers of a profile with those of an evaluation: how often they abstain, how sure they are.

    The difference of each measure has a 95 % interval. Prometheus' node exporter publishes the file of --metrics.

    Example: rag feedback drift runs/nightly --metrics /var/lib/node_exporter/rag.prom
    """
    from jobs.usage_files import read_run_answers, replace_text
    from rag_core.evaluation.drift import AnswerScore, format_drifts, measure_drift

    reference, settings = read_run_answers(run), options.settings
    start = datetime.now(UTC) - timedelta(days=days)
    with open_replies(options) as replies:
        live = [
            AnswerScore(finish=reply.finish, confidence=reply.confidence)
            for reply in replies.read()
            if reply.created_at >= start and reply.profile == settings.profile
        ]
    drifts = measure_drift(live, reference)
    if metrics:
        replace_text(metrics, format_drifts(drifts, settings.profile))
    rows = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(drifted).items()}
        for drifted in drifts
    ]
    columns = ("measure", "live", "run", "difference", "low", "high", "live_answers", "run_answers")
    print_rows(rows, columns, options, f"fewer than two answers of profile {settings.profile} in {days} days")
