"""The Markdown report, line by line, and text that tries to be more than text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_specgate.baseline.compare import Compared, Figure
from pytest_specgate.baseline.tables import markdown_of
from pytest_specgate.gates.base import Verdict
from pytest_specgate.markdown_text import code_block, escaped, in_html, inline, table
from pytest_specgate.report.markdown import markdown, write_markdown
from pytest_specgate.stats import Estimate, NoiseFloor
from tests.fakes import make_arm, make_case

from .test_reports import FAILURE, ODD_TEXT, VERDICTS, make_report

GOLDEN = """\
## specgate: failed

| pair | model | size | dtype | k |
| --- | --- | --- | --- | --- |
| target | Qwen2.5-7B-Instruct-4bit | 8.00 GB | bfloat16/4-bit |  |
| draft | Qwen2.5-0.5B-Instruct-4bit | 1.00 GB | bfloat16 | 3 |

mlx 0.32.4, mlx-lm 0.32.2, GPU of paper, macOS 26.2, 36 GiB, on mains

### Gates

| gate | verdict | observed | limit | evidence |
| --- | --- | --- | --- | --- |
| parity | failed | 3 of 4 exact | exact | 12 tokens |
| speedup | passed | 3.17x [3.10, 3.25] | >= 1.15x | 3 prompts, 5 rounds |
| latency p95 | inconclusive | 0.80 s (max of 15) | <= 1.00x | 15 trials an arm |
| memory | passed | 10.80 GB (draft +1.80 GB) | >= 10% free | headroom 46% |

### Kinds of prompts

| kind | prompts | plain tok/s | spec tok/s | speedup | accepted | mean len | TTFT |
| --- | --- | --- | --- | --- | --- | --- | --- |
| explain | 2 | 1.9 | 5.0 | 3.00 | 0.40 | 1.00 | 0.20 s |
| python | 1 | 2.5 | 10.0 | 4.00 | 1.00 | 3.00 | 0.10 s |

### Failed

<details>
<summary><b>parity[sum-02]</b>: from output token 7 on the speculative text is not the target's \
own (k = 1)</summary>

```text
plain  the second clause limits the |supplier's liability
spec   the second clause limits the |the buyer shall
first difference   7 (k = 1)
```

- Do not rely on this pair's speculative output; run without the draft, and keep the saved case.
- Replay: pytest --spec-replay .specgate/failures/sum-02.json

</details>

### Undecided

- latency p95 (k=3) is undecided: p95 cannot be estimated from 15 trials in 5 rounds: it takes 60 \
trials an arm in at least 2 rounds. With 3 prompts that is --spec-rounds 20; or give more prompts.

<details>
<summary>Acceptance</summary>

```text
k = 3: accepted 7 of 13 proposed tokens (0.54) in 5 blocks
mean accept length 1.40, 2.40 tokens a target pass
accept lengths: 0 x 0, 1 x 4, 2 x 0, 3 x 1
by position: 1.00 0.20 0.33
by quarter: 0.56 - 0.50 -
by kind: explain 0.40, python 1.00
```

</details>

### Decision checklist

- [?] tokenizers equal: not measured, the gate preflight measures it
"""


def test_the_report() -> None:
    """Every line up to the checklist, whose own tests are elsewhere."""
    text = markdown(make_report(*VERDICTS, FAILURE, status="failed"))
    assert text.startswith(GOLDEN)
    assert text.endswith("--spec-save-baseline NAME stores it\n")
    assert text.count("\n- [") == 10


BASELINE = Verdict(
    "baseline",
    "k=3",
    "failed",
    "speedup: slower",
    observed_text="1 of 2 hold",
    limit_text="as main",
    evidence={
        "compared": "main",
        "changes": [{"name": "mlx", "then": "0.31.3", "now": "0.32.4"}],
        "not_comparable": ["1 prompt measured and not stored: a"],
        "figures": [
            {
                "name": "speedup",
                "status": "failed",
                "then": "1.50x",
                "now": "1.20x",
                "change": "-20%",
                "limit": "-5%",
                "reason": "slower",
            }
        ],
    },
)


def test_against_a_baseline() -> None:
    """Cause beside effect."""
    text = markdown(make_report(BASELINE, status="failed"))
    assert (
        """
### Against main (k=3)

| what changed | before | after |
| --- | --- | --- |
| mlx | 0.31.3 | 0.32.4 |

| figure | verdict | before | after | change | limit |
| --- | --- | --- | --- | --- | --- |
| speedup | failed | 1.50x | 1.20x | -20% | -5% |

- not comparable: 1 prompt measured and not stored: a
"""
        in text
    )
    same = replace(BASELINE, evidence={**BASELINE.evidence, "changes": []})
    text = markdown(make_report(same, status="failed"))
    assert "\nnothing changed in environment, models, prompts and decoding\n" in text


def test_noise_trials_and_false_alarms() -> None:
    """As the terminal says them."""
    floor = NoiseFloor(0.06, Estimate(0.0, 0.01), Estimate(0.001, 0.0005), 0.021)
    report = make_report(*(replace(v, false_alarm=0.01) for v in VERDICTS))
    measured = replace(report.measured[0], noise=floor, trials=(30, 72))
    text = markdown(replace(report, measured=(measured,)))
    assert "\n\nnoise: plain against plain 1.00x [0.98, 1.02], CV 6.0% a trial, drift " in text
    assert "\n\n30 of at most 72 timed trials were run.\n" in text
    assert text.endswith("\n\nChance of a false alarm in this session: at most 6.0%.\n")


def test_an_empty_session_is_a_whole_report() -> None:
    """No empty tables."""
    text = markdown(make_report(measured=(), environment={}, status="nothing judged"))
    assert text.startswith("## specgate: nothing judged\n\n### Decision checklist\n")
    assert text.endswith("\n\nNo gate was judged.\n")
    assert "|" not in text


def test_what_is_undecided_is_not_told_to_who_does_not_ask() -> None:
    """--spec-on-inconclusive=pass, as on the terminal."""
    assert "### Undecided" not in markdown(make_report(*VERDICTS, quiet=True))


def test_many_failures_are_cut() -> None:
    """A comment on GitHub has its limit."""
    failures = [replace(FAILURE, subject=f"p{i}") for i in range(1000)]
    text = markdown(make_report(*failures, status="failed"))
    assert text.count("<details>") == text.count("</details>") == 20 + 1  # and acceptance
    assert "\n... and 980 verdicts more: `--spec-report json:PATH` has them all.\n" in text
    assert len(text) < 65_536


# -- text that nobody vouches for ------------------------------------------------------------------

WICKED = "<script>x</script> |a| `b` **c** [d](http://e) @f &lt; ~g~ $h$ _i_\n# j"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plain words, 3.17x [3.10, 3.25] <= 5 && max_tokens", None),
        ("-5%", None),
        ("org/model@1.0", None),
        ("<script>", "\\<script>"),
        ("</details>", "\\</details>"),
        ("<!-- x", "\\<!-- x"),
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("`x`", "\\`x\\`"),
        ("**x**", "\\*\\*x\\*\\*"),
        ("_x_ a__b", "\\_x\\_ a\\_\\_b"),
        ("[x](y)", "[x\\](y)"),
        ("[x]: y", "[x\\]: y"),
        ("~~x~~ $y$", "\\~\\~x\\~\\~ \\$y\\$"),
        ("&lt; &#60; & b", "\\&lt; \\&#60; & b"),
        ("ping @user", "ping @<!-- -->user"),
        ("two\nlines\x1b[31m", "two\\\\nlines\\\\x1b[31m"),
    ],
)
def test_text_within_a_line(text: str, words: str | None) -> None:
    """Shown, not obeyed; what does no harm stays readable."""
    assert inline(text) == (text if words is None else words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# x", "\\# x"),
        ("> x", "\\> x"),
        ("- x", "\\- x"),
        ("12. x", "12\\. x"),
        ("===", "\\==="),
        ("      x", "x"),
        ("1.5 x", "1\\.5 x"),
    ],
)
def test_text_that_begins_a_line(text: str, words: str) -> None:
    """No heading, no list, no code."""
    assert escaped(text) == words


def test_a_block_of_code_holds_fences() -> None:
    """Its own is longer."""
    assert code_block(["a", "````", "b\nc"]) == ["`````text", "a", "````", "b\\nc", "`````"]


def test_a_table_keeps_its_columns() -> None:
    """Whatever stands in a cell."""
    _, _, row = table(("a", "b"), [(WICKED, "end")])
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert row.endswith(" | end |")


def test_a_wicked_session() -> None:
    """In every place that shows a name or an output, as in the report's own lines."""
    report = make_report(
        replace(FAILURE, subject=WICKED, reason=WICKED, details=(WICKED,), advice=(WICKED,)),
        replace(BASELINE, evidence={**BASELINE.evidence, "not_comparable": [WICKED]}),
        Verdict("latency", "k=3", "inconclusive", WICKED),
        cases=(make_case("a", make_arm(None), make_arm(3), kind=WICKED),),
        environment={"versions": {"mlx": WICKED}, "os": ODD_TEXT},
        status="failed",
    )
    lines = markdown(report).splitlines()
    fences = [i for i, line in enumerate(lines) if line.startswith("```")]
    outside = [line for i, line in enumerate(lines) if sum(f <= i for f in fences) % 2 == 0]
    assert len(outside) < len(lines)
    for line in (line for line in outside if not line.startswith("<summary>")):
        assert not re.search(r"(?<!\\)<script|(?<!\\)\*\*c|\[d\]\(|@f", line), line
        assert line.isprintable()
    assert f"<b>parity[{in_html(WICKED)}]</b>" in "\n".join(lines)
    assert in_html(WICKED).startswith("&lt;script&gt;x&lt;/script&gt; |a| `b` **c**")


def test_a_comparison_of_two_files_is_safe_too() -> None:
    """A kind of prompts stands in the name of a figure."""
    figure = Figure(f"acceptance {WICKED}", "failed", "1", "0", "-1", "-0.03", "less")
    lines = markdown_of(Compared((), (figure,), (), ("a",)), "then -> now")
    assert lines[-1].startswith("- **acceptance \\<script>")
    assert lines[-1].endswith(" failed**: less")


def test_it_is_written_whole(tmp_path: Path) -> None:
    """Any text, as UTF-8."""
    report = make_report(replace(FAILURE, details=(ODD_TEXT, "水")), status="failed")
    write_markdown(report, tmp_path / "new" / "out.md")
    assert (tmp_path / "new" / "out.md").read_text(encoding="utf-8") == markdown(report)
