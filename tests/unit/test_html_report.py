"""The HTML report of made-up sessions: its sections, its size, and text that would be markup."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.engines.base import ModelInfo
from pytest_specgate.gates.base import Verdict
from pytest_specgate.measure.evidence import CaseEvidence
from pytest_specgate.measure.memory import parts_at_peak
from pytest_specgate.report.html.differences import Piece, differences
from pytest_specgate.report.html.embedded import embedded
from pytest_specgate.report.html.figures import MOST_KINDS, pair_figures
from pytest_specgate.report.html.page import page, write_html
from pytest_specgate.report.html.plots import plots
from pytest_specgate.report.json_report import report_document
from pytest_specgate.report.session_report import SessionReport
from pytest_specgate.stats import Paired, p95, p95_ratio
from tests.fakes import GB, failed_case, make_arm, make_case, pair_info

from .test_markdown_report import BASELINE
from .test_reports import (
    DRAFT,
    EXPLAIN_1,
    FAILURE,
    LATENCY,
    MEMORY,
    ODD_TEXT,
    PARITY,
    SPEEDUP,
    VERDICTS,
    make_report,
)


class Reader(HTMLParser):
    """The elements of a page with their attributes, and the text of each kind of element."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of SVG: empty."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """It ends; what was opened within it has ended before."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text counts for every element around it."""
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def count(self, tag: str) -> int:
        """Elements of one kind."""
        return sum(name == tag for name, _ in self.elements)


def parted(name: str, plain: str, speculative: str, *ks: int) -> CaseEvidence:
    """A prompt whose outputs part at token 2."""
    other = [make_arm(k, text=speculative, tokens=(1, 2, 8, 9)) for k in ks or (1,)]
    return make_case(name, make_arm(None, text=plain, tokens=(1, 2, 3, 4)), *other)


def sweep(*ks: int, kinds: Sequence[str] = ("json",)) -> tuple[CaseEvidence, ...]:
    """A timed prompt a kind, at each k."""
    return tuple(
        make_case(
            f"p{number}",
            make_arm(None, [1.6, 1.7, 1.5, 1.6, 1.65], peak=11 * GB),
            *(make_arm(k, [0.8, 0.9, 0.85, 0.8, 0.8], peak=12 * GB) for k in ks),
            kind=kind,
        )
        for number, kind in enumerate(kinds)
    )


def figures_in(text: str) -> Any:
    """The block of JSON."""
    (found,) = re.findall(
        r'<script type="application/json" id="specgate-report">(.*?)</script>', text, re.DOTALL
    )
    return json.loads(found)


def sections(text: str) -> list[str]:
    """The headings, in order."""
    return [" ".join(words.split()) for words in Reader(text).texts["h2"]]


# -- the page --------------------------------------------------------------------------------------


def test_a_failed_session() -> None:
    """Verdicts first, the worst of them on top; the evidence and advice of a failure are there."""
    case = parted("sum-02", "the supplier's liability", "the buyer shall")
    text = page(make_report(*VERDICTS, FAILURE, status="failed", cases=(EXPLAIN_1, case)))
    assert sections(text) == [
        *("Verdicts", "Failed", "Undecided", "Environment", "Measured"),
        *("Decision checklist", "All verdicts", "Raw figures"),
    ]
    read = Reader(text)
    gates = [row.split() for row in read.texts["tr"][1:5]]
    assert [re.split(r"\W", row[0])[0] for row in gates] == [
        *("parity", "latency", "speedup", "memory"),
    ]
    failure = next(words for words in read.texts["details"] if "parity[sum-02]" in words)
    for words in (*FAILURE.details, *FAILURE.advice, "k = 1: the outputs part at token 2"):
        assert words in failure
    assert {"supplier's", "buyer"} <= {w for m in read.texts["mark"] for w in m.split()}
    assert "latency p95 (k=3) is undecided: p95 cannot" in " ".join(read.texts["li"])


def test_a_passed_session() -> None:
    """Nothing failed, nothing undecided: no empty headings."""
    text = page(make_report(*PARITY, SPEEDUP, MEMORY, status="passed"))
    assert sections(text) == [
        *("Verdicts", "Environment", "Measured", "Decision checklist", "All verdicts"),
        "Raw figures",
    ]
    assert Reader(text).texts["h4"] == [
        *("Speedup", "End-to-end latency of both paths", "Accept lengths"),
        *("Acceptance by position", "Peak memory"),
    ]


def test_what_is_undecided_is_not_told_to_who_does_not_ask() -> None:
    """--spec-on-inconclusive=pass, as in the other reports."""
    assert "Undecided" in sections(page(make_report(LATENCY)))
    assert "Undecided" not in sections(page(make_report(LATENCY, quiet=True)))


def test_an_empty_session() -> None:
    """No pair, no verdict: a whole page that says so."""
    text = page(make_report(measured=(), environment={}, status="nothing judged"))
    assert "No gate was judged." in text
    assert Reader(text).count("svg") == 0
    assert figures_in(text)["status"] == "nothing judged"


def test_untimed_and_broken_prompts() -> None:
    """Acceptance is drawn, times are not; a prompt that could not be generated stands in no row."""
    cases = (make_case("a", make_arm(None), make_arm(3)), failed_case("b", "no kernel"))
    text = page(make_report(PARITY[0], cases=cases))
    assert Reader(text).texts["h4"] == ["Accept lengths", "Acceptance by position"]
    text = page(make_report(PARITY[0], cases=(failed_case("b", "no kernel"),)))
    assert "Nothing to draw: " in text


def test_against_a_baseline() -> None:
    """What changed, and each figure."""
    text = page(make_report(BASELINE, status="failed"))
    assert "Against main (k=3)" in sections(text)
    assert "not comparable: 1 prompt measured and not stored: a" in text
    for row in ("mlx 0.31.3 0.32.4", "speedup failed 1.50x 1.20x -20% -5%"):
        assert row.replace(" ", "") in [re.sub(r"\s", "", r) for r in Reader(text).texts["tr"]]


def test_environment_models_and_options() -> None:
    """Facts in words, both models, what was decoded with, the distributions folded."""
    facts = {
        "versions": {"mlx": "0.32.4"},
        "memory_bytes": 36 * GB,
        "low_power_mode": False,
        "distributions": {"numpy": "2.0", "mlx": "0.32.4"},
    }
    text = page(make_report(SPEEDUP, environment=facts))
    told = dict(zip(Reader(text).texts["dt"], Reader(text).texts["dd"], strict=True))
    assert told["memory"] == "36.00 GB"
    assert told["low power mode"] == "no"
    assert told["num_draft_tokens"] == "3"
    assert told["seed"] == "20260928"
    assert "<summary>2 installed distributions</summary>" in text
    assert "mlx-community/Qwen2.5-7B-Instruct-4bit" in text


def test_several_pairs_are_told_apart() -> None:
    """Each has its own tables and plots, whose ids differ; of many the first six are drawn."""
    report = make_report(SPEEDUP)
    text = page(replace(report, measured=report.measured * 8))
    assert "Pair 1 of 8" in text
    assert "Pair 8 of 8" in text
    assert text.count("Plots are drawn of the first 6 pairs.") == 2
    assert text.count("<h4>Peak memory</h4>") == 6
    ids = [a["id"] for _, a in Reader(text).elements if "id" in a]
    assert len(ids) == len(set(ids)) > 20


def test_it_loads_nothing_and_runs_nothing() -> None:
    """No script but the block of data, no address of another file."""
    read = Reader(page(make_report(*VERDICTS, FAILURE, status="failed")))
    assert [a for tag, a in read.elements if tag == "script"] == [
        {"type": "application/json", "id": "specgate-report"}
    ]
    assert not {"img", "iframe", "object", "embed", "form", "base"} & {t for t, _ in read.elements}
    for _, attributes in read.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    ids = {a.get("id") for _, a in read.elements}
    for tag, attributes in read.elements:
        if (target := attributes.get("xlink:href") or attributes.get("href") or "#")[1:]:
            assert tag == "link" or target[1:] in ids


def test_the_block_of_figures_is_the_json_report() -> None:
    """Whole where there is room."""
    report = make_report(*VERDICTS, FAILURE, status="failed")
    assert figures_in(page(report)) == json.loads(json.dumps(report_document(report)))


def test_what_the_block_leaves_out() -> None:
    """The largest first; the block says so itself, and stays JSON."""
    report = make_report(*VERDICTS)
    whole = embedded(report, 10**9)
    assert whole.left_out == ()
    assert embedded(report, len(whole.text)).left_out == ()
    cut = embedded(report, len(whole.text) - 1)
    assert cut.left_out == ("token ids and the accept length of each block",)
    document = json.loads(cut.text)
    assert document["left_out"] == [*cut.left_out]
    assert "tokens" not in document["cases"][0]["arms"]["plain"]
    assert document["cases"][0]["arms"]["plain"]["trials"][0]["e2e_s"] == 1.6
    least = embedded(report, 0)
    assert json.loads(least.text)["cases"] == []
    assert len(least.left_out) == 4


def test_it_is_the_same_every_time() -> None:
    """No time, no random id."""
    report = make_report(*VERDICTS, FAILURE)
    assert page(report) == page(report)


def test_it_is_written_whole(tmp_path: Path) -> None:
    """Any text, as UTF-8; nothing is left behind where it cannot be written."""
    report = make_report(replace(FAILURE, details=(ODD_TEXT, "水")), status="failed")
    write_html(report, tmp_path / "new" / "out.html")
    assert (tmp_path / "new" / "out.html").read_text(encoding="utf-8") == page(report)
    with pytest.raises(OSError, match="directory"):
        write_html(report, tmp_path / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "out.html"]


# -- very many -------------------------------------------------------------------------------------

MOST = 5_000_000


def many(failed: bool) -> SessionReport:
    """1,000 prompts of long outputs, all timed and equal, or none."""
    words = " ".join(f"word{i}" for i in range(256))
    tokens, flags = range(100_000, 100_256), [i % 3 > 0 for i in range(256)]
    shared: dict[str, Any] = {"tokens": tokens, "flags": flags}
    cases, verdicts = [], []
    for i in range(1000):
        plain = make_arm(None, [1.6123456789] * 12, tokens=tokens, text=words)
        ours = make_arm(3, [0.8123456789] * 12, text=words, **shared)
        if failed:
            shared["tokens"] = [*tokens[:99], 5, *tokens[100:]]
            ours = make_arm(3, text=words.replace("word7", "WORD"), **shared)
        cases.append(make_case(f"prompt-{i:04d}", plain, ours, kind=f"kind {i % 5}"))
        verdict = replace(FAILURE if failed else PARITY[0], subject=f"prompt-{i:04d}")
        verdicts.append(verdict)
    status = "failed" if failed else "passed"
    return make_report(*verdicts, SPEEDUP, cases=tuple(cases), status=status)  # type: ignore[arg-type]  # one of the two


@pytest.mark.parametrize("failed", [False, True])
def test_a_thousand_prompts(failed: bool) -> None:
    """Under 5 MB, every prompt named, long lists folded; what was left out is said."""
    text = page(many(failed))
    assert len(text.encode()) < MOST
    assert text.count("<details") == text.count("</details>")
    assert all(f"prompt-{i:04d}" in text for i in (0, 500, 999))
    assert "Left out, to keep the file small: token ids and the accept length" in text
    assert figures_in(text)["left_out"]
    if failed:
        assert "<summary>980 failed verdicts more, in short</summary>" in text
        assert text.count('<div class="side">') == 2 * 1000
    else:
        (group,) = re.findall(
            r"<details[^>]*><summary><span class=\"status passed.*?</summary>", text, re.S
        )
        assert " open" not in group
        assert "1,001 verdicts" in group
        assert figures_in(text)["cases"][999]["arms"]["k=3"]["blocks"]["proposed"] == 258


# -- text from outside -----------------------------------------------------------------------------

WICKED = (
    "<script>x</script><img src=x onerror=y>' \" $\\frac{1 {{ 7*7 }} {% x %} ]]> --> "
    "</script></title></style></svg> \u202egnol\u200b \x1b[31m\x00 \ud800 @specgate-figures@"
)


def test_a_wicked_session() -> None:
    """In every place that shows a name, an output or an error: text, and what has no shape seen."""
    info = replace(pair_info().target, name=WICKED, dtype=WICKED, revision=WICKED)
    assert isinstance(info, ModelInfo)
    cases = (
        parted(WICKED, f"a {WICKED}", f"b {WICKED}", 1, 3),
        replace(failed_case("e", WICKED)),
        *sweep(3, kinds=(WICKED, "水水水水水水水水水水水水")),
    )
    verdicts = [
        replace(
            FAILURE, subject=WICKED, reason=WICKED, kind=WICKED, details=(WICKED,), advice=(WICKED,)
        ),
        replace(
            BASELINE,
            evidence={
                "compared": WICKED,
                "changes": [{"name": WICKED, "then": WICKED, "now": WICKED}],
                "not_comparable": [WICKED],
                "figures": [
                    dict.fromkeys(("name", "status", "then", "now", "change", "limit"), WICKED)
                ],
            },
        ),
        Verdict("latency", "k=3", "inconclusive", WICKED, observed_text=WICKED, limit_text=WICKED),
    ]
    report = make_report(
        *verdicts,
        cases=cases,
        environment={"versions": {"mlx": WICKED}, WICKED: WICKED, "distributions": {WICKED: "1"}},
        status="failed",
    )
    (pair,) = report.measured
    assert pair.info is not None
    report = replace(report, measured=(replace(pair, info=replace(pair.info, target=info)),))
    text = page(report)
    text.encode("utf-8")  # no half of a surrogate pair
    read = Reader(text)
    assert read.count("script") == 1
    assert not {"img", "x"} & {tag for tag, _ in read.elements}
    assert not any(name.startswith("on") for _, a in read.elements for name in a)
    assert not re.search("[\u202e\u200b\x1b\x00]", text)
    assert text.count("&lt;script&gt;x&lt;/script&gt;") > 15
    assert "{{ 7*7 }}" in text
    assert "\\u202egnol" in text
    assert figures_in(text)["status"] == "failed"


# -- what is drawn ---------------------------------------------------------------------------------


def test_figures_are_those_of_the_gates() -> None:
    """Speedup at each k with the same estimate; the limit is the gate's where there is but one."""
    report = make_report(SPEEDUP, cases=sweep(1, 3, kinds=("json", "python")), ks=(1, 3))
    found = pair_figures(report.measured[0], report.verdicts)
    assert found.speedup is not None
    whole, *kinds = found.speedup.rows
    assert [k for k, _ in whole.points] == [1, 3]
    row = list(zip([1.6, 1.7, 1.5, 1.6, 1.65], [0.8, 0.9, 0.85, 0.8, 0.8], strict=True))
    assert whole.points[0][1] == Paired([row, row]).speedup()
    assert [(row.name, row.prompts) for row in kinds] == [("json", 1), ("python", 1)]
    assert found.speedup.limit == 1.15
    other = replace(SPEEDUP, limit=2.0)
    both = pair_figures(report.measured[0], (SPEEDUP, other)).speedup
    assert both is not None
    assert both.limit is None
    (first, *_, last) = found.acceptances
    assert (first.lengths, first.censored, first.positions) == ((0, 4), 0, ((4, 4),))
    assert last.num_draft_tokens == 3
    assert [name for name, _ in found.memory] == ["plain", "k=1", "k=3"]


def test_many_kinds_are_cut_and_it_is_said() -> None:
    """Lines of twenty kinds are none that anybody can read."""
    kinds = [f"kind {i}" for i in range(MOST_KINDS + 3)]
    report = make_report(SPEEDUP, cases=sweep(3, kinds=kinds))
    found = pair_figures(report.measured[0], report.verdicts)
    assert found.speedup is not None
    assert len(found.speedup.rows) == 1 + MOST_KINDS
    speedup, *_ = plots(found, "a")
    assert speedup.caption.endswith(" 3 kinds more in the table of kinds.")
    assert all(f">{kind}<" in speedup.svgs[0] for kind in kinds[:MOST_KINDS])


def test_a_tail_of_few_trials_is_no_p95() -> None:
    """Below sixty the largest is marked, and named so."""
    few = pair_figures(make_report(cases=sweep(3)).measured[0], ())
    plain, ours = few.latencies
    assert (plain.tail, plain.p95, plain.trials) == ("max of 5", 1.7, 5)
    assert ours.points[0] == (0.8, 0.2)
    assert ours.points[-1] == (0.9, 1.0)
    enough = pair_figures(make_report(cases=sweep(3, kinds=["json"] * 12)).measured[0], ())
    assert {row.tail for row in enough.latencies} == {"p95"}
    captions = [plots(found, "a")[1].caption for found in (few, enough)]
    assert captions[0].endswith("A p95 takes 60 trials; with fewer the largest is marked.")
    assert captions[1] == "All timed trials of each path. Marked is p95: plain 1.7 s, k=3 0.9 s."


def test_one_p95_is_that_of_the_ratio() -> None:
    """Harrell and Davis on log seconds, both."""
    plain = [[1.0, 1.2, 1.1], [2.0, 2.5, 2.2]]
    ours = [[0.5, 0.6, 0.7], [1.0, 1.5, 1.2]]
    tail = p95_ratio(plain, ours, seed=1)
    for rows, known in ((plain, tail.plain), (ours, tail.speculative)):
        assert p95([value for row in rows for value in row]) == pytest.approx(known, rel=1e-12)


def test_parts_of_a_peak() -> None:
    """They add up to it; no trial, no parts."""
    arms = [make_arm(3, [1.0], peak=peak) for peak in (10 * GB, 12 * GB)]
    parts = parts_at_peak(pair_info(), arms)
    assert parts is not None
    assert (parts.target_weights, parts.draft_weights, parts.caches) == (8 * GB, GB, 3 * 10**8)
    assert parts.working == 12 * GB - 9 * GB - 3 * 10**8
    assert parts_at_peak(pair_info(), [make_arm(3)]) is None
    assert parts_at_peak(pair_info(), [make_arm(3, [1.0], peak=None)]) is None
    assert parts_at_peak(pair_info(), []) is None


def test_plots_are_for_all_eyes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Title and description, the page's colours alone, markers and dashes that differ.

    Whatever a matplotlibrc says, and without a word where no cache can be written.
    """
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "#123456")
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "path")
    before = dict(mpl.rcParams)
    report = make_report(SPEEDUP, cases=sweep(1, 2, 3, kinds=("json", "python")), ks=(1, 2, 3))
    drawn = plots(pair_figures(report.measured[0], report.verdicts), "a")
    assert dict(mpl.rcParams) == before
    for plot in drawn:
        for svg in plot.svgs:
            assert re.match(
                r'<svg [^>]*role="img" aria-labelledby="(\S+)-t \1-d"><title id="\1-t">', svg
            )
            assert not re.search("#[0-9a-f]{6}|<style|font-family|<g id", svg)
            assert "var(--ink)" in svg
        assert len({sample for sample, _ in plot.legend}) == len(plot.legend)
        assert len({re.sub('color:[^"]*', "", s) for s, _ in plot.legend[:6]}) == len(
            plot.legend[:6]
        )
    titles = [plot.title for plot in drawn]
    assert titles[0] == "Speedup over num_draft_tokens"
    axes = "".join(svg for plot in drawn for svg in plot.svgs)
    for label in (
        *("num_draft_tokens k (tokens)", "speedup, plain / speculative (x)"),
        *("end-to-end seconds of a trial (s)", "share of trials at or below"),
        *("accept length (tokens)", "position in the block (token)", "peak memory (GB)"),
    ):
        assert f">{label}<" in axes


# -- outputs side by side --------------------------------------------------------------------------


def test_what_differs_is_marked() -> None:
    """Word by word; the ids from the first that differs on."""
    (found,) = differences(parted("a", "one two three four", "one 2 three four"), least=False)
    plain, ours = found.sides
    assert plain.pieces == (Piece("one ", False), Piece("two", True), Piece(" three four", False))
    assert ours.pieces == (Piece("one ", False), Piece("2", True), Piece(" three four", False))
    assert (found.first, plain.ids, ours.ids) == (2, ((1, 2), (3, 4)), ((1, 2), (8, 9)))


def test_a_chance_match_is_not_shared_text() -> None:
    """A blank between two words that differ."""
    (found,) = differences(parted("a", "see aa bb", "see cc dd"), least=False)
    assert [piece.text for piece in found.sides[0].pieces if piece.differs] == ["aa bb"]


def test_an_output_that_ends_first() -> None:
    """Its end is what differs."""
    (found,) = differences(parted("a", "one two", "one two three"), least=False)
    assert [side.ended for side in found.sides] == [True, False]
    assert found.sides[1].pieces[-1] == Piece(" three", True)


def test_equal_texts_of_different_ids() -> None:
    """Said so."""
    case = parted("a", "one", "one")
    (found,) = differences(case, least=False)
    assert found.text_equal
    verdict = replace(FAILURE, subject="a")
    assert "the texts are equal" in page(make_report(verdict, cases=(case,), status="failed"))


def test_long_outputs_are_cut_around_the_place() -> None:
    """And it is said how much is not shown; a worst case ends soon."""
    case = parted("a", "a" * 5000 + "x" * 5000, "a" * 5000 + "yx" * 2500)
    for least in (False, True):
        (found,) = differences(case, least=least)
        for side in found.sides:
            shown = sum(len(piece.text) for piece in side.pieces)
            assert shown + side.before + side.after == 10_000
            assert shown < 1100


def test_a_failed_gate_is_not_buried_under_prompts() -> None:
    """The first twenty failures of each gate come before the rest."""
    failures = [replace(FAILURE, subject=f"p{i}") for i in range(30)]
    slow = replace(SPEEDUP, status="failed", reason="too slow")
    text = page(make_report(*failures, slow, status="failed"))
    shown, folded = text.split("<summary>10 failed verdicts more, in short</summary>")
    assert "too slow" in shown
    assert "<b>parity[p19]</b>" in shown
    assert "<b>parity[p20]</b>" in folded


def test_each_k_that_differs() -> None:
    """The first of them alone where it is one failure of very many."""
    case = parted("a", "one two", "one 2", 1, 3)
    assert [d.num_draft_tokens for d in differences(case, least=False)] == [1, 3]
    assert [d.num_draft_tokens for d in differences(case, least=True)] == [1]


def test_one_prompt_on_two_pairs() -> None:
    """The failure shows the outputs of its own: those that part where it says."""
    early = parted("a", "one two", "one 2")
    late = make_case("a", make_arm(None, text="p" * 4), make_arm(1, text="q", tokens=(1, 2, 3, 9)))
    report = make_report(
        replace(FAILURE, subject="a", observed=3.0), cases=(early,), status="failed"
    )
    (pair,) = report.measured
    text = page(replace(report, measured=(pair, replace(pair, cases=(late,)))))
    assert "<mark>pppp</mark>" in text
    assert "<mark>two</mark>" not in text


def test_nothing_heavy_is_loaded_with_the_module() -> None:
    """A session that wants no HTML report does not pay for it."""
    import subprocess

    code = (
        "import sys, pytest_specgate.report.html\n"
        "print({'jinja2', 'matplotlib', 'numpy', 'difflib'} & set(sys.modules) - {'difflib'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# -- a sweep, and quality --------------------------------------------------------------------------


def _swept() -> SessionReport:
    """One k in use, another recommended, and what is predicted of both."""
    name = DRAFT.short
    rows = [
        {
            "num_draft_tokens": k,
            "speedup": 1.0 + k / 10,
            "verify": 1.5,
            "rest": 0.25 if k < 3 else -0.1,
        }
        for k in range(1, 17)
    ]
    candidates = [
        {
            "draft": name,
            "num_draft_tokens": k,
            "speedup": speedup,
            "interval": [speedup - 0.1, speedup + 0.1],
            "acceptance_rate": 0.5,
            "p95_ratio": None,
            "peak": "1.00 GB",
            "rounds": 7,
            "beaten": k == 3,
            "excluded": None,
        }
        for k, speedup in ((1, 1.5), (3, 1.2))
    ]
    best = {"draft": name, "num_draft_tokens": 1}
    evidence = {
        "configured": {"draft": name, "num_draft_tokens": 3},
        "candidates": candidates,
        "mix": {"best": best, "advised": best, "equals": [], "pays": "passed"},
        "predictions": {name: {"rows": rows, "draft": 0.1, "plain_s": 0.02}},
    }
    verdict = Verdict(
        *("recommended", "pair", "failed", "k=1 is faster"),
        details=("over <b>the</b> mix: k=1",),
        evidence=evidence,
    )
    cases = tuple(
        make_case(
            f"p{i}",
            make_arm(None, (1.0,) * 7),
            *(make_arm(k, (1 / (1 + k / 10),) * 7) for k in (1, 3)),
        )
        for i in range(2)
    )
    return make_report(verdict, cases=cases, ks=(1, 3), status="failed")


def test_a_sweep_has_its_table_and_what_was_predicted() -> None:
    """The line over k, the time of a block, and lines that stay text."""
    report = _swept()
    (pair,) = report.measured
    figures = pair_figures(pair, report.verdicts)
    assert figures.speedup is not None
    assert figures.speedup.predicted == ((1, 1.1), (2, 1.2), (3, 1.3))
    blocks = [(b.num_draft_tokens, b.draft_s, b.verify_s, b.rest_s) for b in figures.block_times]
    expected = [(1, 0.002, 0.03, 0.005), (3, 0.006, 0.03, -0.002)]
    assert blocks == [pytest.approx(row) for row in expected]
    titles = {plot.title: plot for plot in plots(figures, "x")}
    assert ("predicted", "2", "1.200x", "") in titles["Speedup over num_draft_tokens"].rows
    assert ("3", "6.00 ms", "30.00 ms", "-2.00 ms") in titles["Time of a block"].rows
    assert "below 0" in titles["Time of a block"].caption
    text = page(report)
    assert "<h2>Sweep</h2>" in text
    assert "over &lt;b&gt;the&lt;/b&gt; mix" in text


def test_without_a_sweep_nothing_is_predicted() -> None:
    (pair,) = (report := make_report(*VERDICTS)).measured
    figures = pair_figures(pair, report.verdicts)
    assert figures.block_times == ()
    assert figures.speedup is not None
    assert figures.speedup.predicted == ()
    assert "<h2>Sweep</h2>" not in page(report)


def test_outputs_that_fail_a_check_are_listed() -> None:
    """Its message is what a model said in part: text."""
    kind = {"kind": "json", "prompts": 1, "outputs": 2, "plain_passed": 2}
    failing = {
        "prompt": "a",
        "kind": "json",
        "sample": 1,
        "arm": "k=3",
        "check": "json",
        "message": "found <script>",
    }
    evidence = {"quality": [{**kind, "speculative_passed": 1}], "failing": [failing]}
    report = make_report(Verdict("quality", "k=3", "failed", "1 of 2", evidence=evidence))
    text = page(report)
    assert "<h2>Quality (k=3)</h2>" in text
    assert "found &lt;script&gt;" in text
