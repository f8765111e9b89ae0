"""A small collection of each kind that has a profile of its own: articles, labels, trials. All of it is invented."""

import io
import json
import zipfile
from pathlib import Path

ARTICLES = {
    "heparin": (
        "Platelet counts under heparin in winter rowers",
        "Heparin can lower the number of platelets. We counted those of 42 rowers each morning for three weeks. "
        "The count fell below 100 in two rowers, and both recovered within nine days after heparin was stopped.",
    ),
    "kelp": (
        "Iodine in kelp soup and the thyroid",
        "Kelp contains more iodine than any other food on the island. A bowl of soup contained 1.6 milligrams. "
        "Thyroid hormones of 60 villagers were measured before and after a month of daily soup, and TSH doubled.",
    ),
    "tuning": (
        "Hearing thresholds of piano tuners",
        "Piano tuners hear loud tones for hours. Thresholds at 4 kHz were 12 decibels higher than those of clerks. "
        "Ear plugs with a flat response reduced the difference to 3 decibels over two years.",
    ),
    "moss": (
        "Moss dressings and the healing of burns",
        "Sphagnum moss absorbs twenty times its weight. Burns of the hand were dressed with moss or with gauze. "
        "They closed after 11 days under moss and after 14 days under gauze, and infections were equally rare.",
    ),
}
LABELS = {
    "tranquilor": ("Tranquilor tablets", "Take one tablet of 5 mg at bedtime.", "Do not drive within eight hours."),
    "gastrelan": ("Gastrelan syrup", "Take 10 ml three times daily before meals.", "Stop if the stool turns black."),
    "dermafix": ("Dermafix ointment", "Apply a thin layer twice daily.", "Avoid contact with the eyes."),
    "pulmovent": (
        "Pulmovent inhaler",
        "Inhale two puffs every six hours.",
        "More than twelve puffs a day are dangerous.",
    ),
}
TRIALS = {
    "NCT01000001": (
        "Naps after night shifts",
        "Nurses from 25 to 60 years who work nights.",
        "Sleep apnoea.",
        "Reaction time",
    ),
    "NCT01000002": (
        "Cold baths for gout",
        "Adults with two gout attacks in a year.",
        "Raynaud's disease.",
        "Joint swelling",
    ),
    "NCT01000003": (
        "Choirs for stiff lungs",
        "Patients with fibrosis who can stand.",
        "Oxygen at rest.",
        "Walking distance",
    ),
    "NCT01000004": (
        "Beans before dinner",
        "Adults with a fasting glucose above 6.",
        "Insulin treatment.",
        "Glucose after meals",
    ),
}
QUESTIONS = {
    "pmc": ("How far did platelets fall under heparin?", "heparin"),
    "dailymed": ("How many puffs of the inhaler are dangerous?", "pulmovent"),
    "clinicaltrials": ("Which adults with gout attacks can take part?", "NCT01000002"),
}
"""A question and the name of the document that answers it, by profile."""


def write_articles(folder: Path) -> Path:
    """Writes JATS articles with a suffix that does not tell what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, text) in ARTICLES.items():
        (folder / f"{name}.xml").write_text(
            f"<article><front><article-meta><title-group><article-title>{title}</article-title></title-group>"
            f"<abstract><p>{text}</p></abstract></article-meta></front>"
            f"<body><sec><title>Methods</title><p>Everybody gave consent. A nurse visited each week.</p></sec>"
            f"<sec><title>Results</title><p>{text}</p></sec></body></article>"
        )
    return folder


def write_labels(folder: Path) -> Path:
    """Writes an archive with structured product labels, named as DailyMed names its downloads."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for name, (title, dosage, warning) in LABELS.items():
            sections = "".join(
                f"<component><section><title>{heading}</title><text><paragraph>{text}</paragraph></text></section></component>"
                for heading, text in (("DOSAGE AND ADMINISTRATION", dosage), ("WARNINGS", warning))
            )
            label = f'<document xmlns="urn:hl7-org:v3"><title>{title}</title><component><structuredBody>{sections}'
            members.writestr(f"{name}.xml", f"{label}</structuredBody></component></document>")
    (folder / "dm_spl_daily_update_11252026.zip").write_bytes(archive.getvalue())
    return folder


def write_trials(folder: Path) -> Path:
    """Writes studies as ClinicalTrials.gov's interface returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (title, inclusion, exclusion, outcome) in TRIALS.items():
        criteria = f"Inclusion Criteria:\n\n{inclusion}\n\nExclusion Criteria:\n\n{exclusion}"
        study = {
            "title": title,
            "eligibilityModule": {"eligibilityCriteria": criteria},
            "outcomesModule": {"primaryOutcomes": [{"measure": outcome, "timeFrame": "12 weeks"}]},
        }
        (folder / f"{number}.json").write_text(json.dumps(study))
    return folder


WRITERS = {"pmc": write_articles, "dailymed": write_labels, "clinicaltrials": write_trials}
