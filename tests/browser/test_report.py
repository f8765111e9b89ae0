"""The report in Chromium, as a file. `make test-browser`; it is skipped where Playwright or Chromium is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from finished_runs import answer, finished_run, question, waterfall

from rag_core.evaluation.report_page.page import build_page, render_html

playwright = pytest.importorskip("playwright.sync_api", reason="requires the package playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="requires Chromium in PATH: apt-get install chromium"),
]

ATTACK = "</style><script>document.title = 'run'</script><img src=http://example.org/x.png>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    questions = [
        question(1, answer=answer()),
        question(2, rank=None, answer=answer(0.0, text=ATTACK), text=f"Where is {ATTACK}?"),
        *(question(number, rank=number) for number in range(3, 12)),
    ]
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render_html(build_page(finished_run(*questions, waterfall=waterfall("q2", "q3")))))
    return file


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The page; at the end no message may have been logged, and no other file requested."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(report.as_uri())
    yield opened
    context.close()
    assert messages == []
    assert {url for url in requests if not url.startswith("data:")} == {report.as_uri()}


def list_visible(page: Any) -> list[str]:
    return [row.locator("td").first.inner_text() for row in page.locator("#all tbody tr:visible").all()]


def test_text_of_a_question_cannot_run_as_a_script(page: Any) -> None:
    assert page.title() == "VALID: seals with default"
    assert "<script>" in page.locator("#worst").inner_text()


def test_the_verdict_and_the_losses_are_on_the_first_screen(page: Any) -> None:
    for selector in (".verdict", ".figures", "#losses"):
        box = page.locator(selector).bounding_box()
        assert box["y"] + box["height"] < 900


def test_the_tab_key_reaches_the_controls_in_the_order_of_the_page(page: Any) -> None:
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    order = ["A", "SUMMARY", "filter", "BUTTON"]
    assert sorted(order, key=reached.index) == order


def test_a_worst_question_opens_by_the_keyboard(page: Any) -> None:
    details = page.locator("details").first
    assert details.get_attribute("open") is not None
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    assert details.get_attribute("open") is None


def test_the_filter_shows_the_questions_that_contain_the_words(page: Any) -> None:
    page.get_by_label("Show questions that contain").fill("SEAL 1")
    assert list_visible(page) == ["q1", "q10", "q11"]
    assert page.get_by_role("status").inner_text() == "3 of 11"


def test_a_button_sorts_by_its_column_in_both_directions(page: Any) -> None:
    button = page.get_by_role("button", name="score")
    button.click()
    assert list_visible(page)[:2] == ["q2", "q11"]
    button.click()
    assert list_visible(page)[-1] == "q2"
    assert page.locator("#all th").nth(2).get_attribute("aria-sort") == "descending"


def test_colours_follow_the_system(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(251, 251, 250)", "rgb(20, 23, 26)"]


def test_a_narrow_window_needs_no_scrolling_sideways(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_every_chart_has_a_name(page: Any) -> None:
    charts = page.locator("svg[role=img]")
    assert charts.count() > 3
    assert all(chart.get_attribute("aria-label") for chart in charts.all())
