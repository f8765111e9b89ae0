"""A chart, and the style that all charts share: direct labels, few lines, and colours that colour-blind people tell
apart (Okabe and Ito 2008)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from rag_core.errors import MissingExtraError

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise MissingExtraError("the extra [notebooks] is not installed: pip install 'rag-on-ray[notebooks]'") from error

BLUE, VERMILION, GREEN, ORANGE, PURPLE = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7"
INK, GREY, PALE = "#222222", "#767676", "#d9d9d9"
DOTS_PER_INCH = 160
STYLE: Any = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "font.size": 10,
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
}


@dataclass(frozen=True, slots=True, repr=False)
class Chart:
    """A figure of matplotlib, and its content in words, which is what terminals and screen readers get."""

    figure: Figure
    description: str

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        """Returns the picture at twice its displayed size, so that it is sharp on dense screens."""
        picture = BytesIO()
        self.figure.savefig(picture, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
        width = self.figure.get_figwidth() * DOTS_PER_INCH / 2
        return picture.getvalue(), {"width": round(width)}

    def __repr__(self) -> str:
        return self.description


@contextmanager
def new_axes(width: float, height: float, title: str) -> Iterator[tuple[Figure, Axes]]:
    """Yields a figure of this size in inches, with one pair of axes, in the common style."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        yield figure, figure.add_subplot()
