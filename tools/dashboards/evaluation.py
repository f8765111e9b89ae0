"""The scores of evaluations, their gate, and the drift of live answers."""

from tools.dashboards.grafana import Dashboard, Panel, Query, Row, Variable

EVALUATION = Dashboard(
    "rag-evaluation",
    "RAG / Evaluation",
    (
        Variable("profile", "rag_evaluation_score", "profile"),
        Variable("dataset", "rag_evaluation_score", "dataset"),
        Variable("measure", "rag_evaluation_score", "measure"),
    ),
    (
        Row(
            "Evaluations",
            (
                Panel(
                    title="Gate",
                    description="1 if the last evaluation passed its gate, 0 if it failed or was inconclusive.",
                    unit="none",
                    kind="stat",
                    floor=1,
                    queries=(
                        Query(
                            'min by (profile, dataset) (rag_gate_passed{profile=~"$profile",dataset=~"$dataset"})',
                            "{{profile}} {{dataset}}",
                        ),
                    ),
                ),
                Panel(
                    title="Age of the last evaluation",
                    description="36 hours warn.",
                    unit="s",
                    kind="stat",
                    limit=36 * 3600,
                    queries=(
                        Query(
                            "time() - max by (profile, dataset) "
                            '(rag_evaluation_timestamp_seconds{profile=~"$profile",dataset=~"$dataset"})',
                            "{{profile}} {{dataset}}",
                        ),
                    ),
                ),
                Panel(
                    title="Drift of live answers",
                    description="Mean over the latest live answers minus the mean of the last evaluation. Above 0.1 or "
                    "below -0.1 warns.",
                    unit="none",
                    signed=True,
                    limit=0.1,
                    floor=-0.1,
                    queries=(
                        Query(
                            'max by (profile, measure) (rag_live_score_drift{profile=~"$profile"})',
                            "{{profile}} {{measure}}",
                        ),
                    ),
                ),
                Panel(
                    title="Scores",
                    description="Means of the measures over the questions of the last evaluation.",
                    unit="none",
                    width=24,
                    queries=(
                        Query(
                            "max by (profile, dataset, measure) (rag_evaluation_score"
                            '{profile=~"$profile",dataset=~"$dataset",measure=~"$measure"})',
                            "{{profile}} {{dataset}} {{measure}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
