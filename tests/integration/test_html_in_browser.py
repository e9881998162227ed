"""The HTML report in a real browser: nothing is loaded, nothing runs, nothing sticks out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_specgate.report.html import write_html
from tests.fakes import make_arm, make_case
from tests.museum.pairs import save_saying
from tests.unit.test_reports import EXPLAIN_1, FAILURE, VERDICTS, make_report

from .conftest import Gate

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
SCRIPT = "<script>window.ran = true</script><img src=https://example.org/x onerror='ran = true'>"

Look = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=[*FLAGS])
        yield found
        found.close()


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """look(file, width, scheme): the opened page; at the end nothing may have gone wrong."""
    wrong: list[str] = []
    pages: list[Page] = []

    def look(file: Path, width: int = 1280, scheme: Any = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url == file.as_uri() or request.url.startswith("data:")
                else wrong.append(f"request: {request.url}")
            ),
        )
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield look
    for page in pages:
        assert page.evaluate("window.ran") is None
        assert page.evaluate("document.scripts.length") == 1
        page.close()
    assert wrong == []


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """A report of a made-up failure whose outputs, id and errors are full of markup."""
    case = make_case(
        SCRIPT,
        make_arm(None, text=f"the same {SCRIPT} plain", tokens=(1, 2, 3, 4)),
        make_arm(3, text=f"the same {SCRIPT} other \u202e" + "long" * 200, tokens=(1, 2, 3, 5)),
        kind=SCRIPT,
    )
    verdict = replace(FAILURE, subject=SCRIPT, reason=SCRIPT, details=(SCRIPT,), advice=(SCRIPT,))
    path = tmp_path / "failed.html"
    report = make_report(*VERDICTS, verdict, cases=(case, EXPLAIN_1), status="failed")
    write_html(report, path)
    return path


def test_a_real_session(gate: Gate, pytester: pytest.Pytester, look: Look, tmp_path: Path) -> None:
    """A model that says ``<script>`` for ever, asked by a prompt whose id is a whole one."""
    save_saying(tmp_path, "<script>")
    line = json.dumps({"id": SCRIPT, "kind": "html", "prompt": "say it"})
    (pytester.path / "prompts.jsonl").write_text(line + "\n", encoding="utf-8")
    result, report = gate(
        tmp_path,
        *("--spec-prompts=prompts.jsonl", "--spec-max-tokens=24", "--spec-rounds=5"),
        *("--spec-num-draft-tokens=1,3", "--spec-report=html:out.html"),
    )
    assert "<script>" in report["cases"][0]["arms"]["plain"]["text"]
    result.stdout.fnmatch_lines(["html report: *out.html"])
    page = look(pytester.path / "out.html")
    assert (
        page.title()
        == f"specgate: {report['status']}, {tmp_path.name}/target with the draft "
        + (f"{tmp_path.name}/draft")
    )
    text = page.locator("#specgate-report").text_content()
    assert text is not None
    assert json.loads(text) == report
    assert page.locator("svg.plot").count() == 6  # accept lengths are two
    assert page.get_by_text(SCRIPT).count() > 0
    row = page.locator("section:has(#verdicts) tbody tr", has_text="preflight")
    assert row.inner_text().split()[:3] == ["preflight", "\u2713", "passed"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_failure(failed: Path, look: Look, width: int, scheme: str) -> None:
    """What a model said stays text; the page is no wider than the window; it can be read."""
    page = look(failed, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    sides = page.locator(".side").all()
    assert len(sides) == 2
    assert all(SCRIPT in side.inner_text() for side in sides)
    assert "\\u202e" in sides[1].inner_text()
    boxes = [side.bounding_box() for side in sides]
    assert boxes[0] is not None
    assert boxes[1] is not None
    beside = boxes[0]["y"] == boxes[1]["y"]
    assert beside == (width > 500)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CONTRAST) == []


# the contrast of all text against what lies behind it, where that is below WCAG's 4.5
CONTRAST = """() => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => parts(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if ((parts(c)[3] ?? 1) > 0) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || e.closest('script, title, desc')) continue;
    const colour = e.closest('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color;
    const [a, b] = [light(colour), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.add(`${walk.currentNode.data} ${colour}`);
  }
  return [...low];
}"""


def test_printed(failed: Path, look: Look) -> None:
    """Dark ink on white, whatever the screen is set to; short lists are open, no text is cut."""
    page = look(failed, 718, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") == 718
    assert page.locator("dt", has_text="prefill_step_size").is_visible()
    assert not page.locator("nav").is_visible()


def test_lists_fold_without_a_program(failed: Path, look: Look) -> None:
    """By mouse and keyboard."""
    page = look(failed)
    option = page.locator("dt", has_text="prefill_step_size")
    assert not option.is_visible()
    page.get_by_text("decoding options").click()
    assert option.is_visible()
    page.keyboard.press("Enter")
    assert not option.is_visible()
