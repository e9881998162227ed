"""Reports: they show what was measured and judged, and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .session_report import SessionReport

__all__ = ["SessionReport", "builtin_reports"]


def builtin_reports() -> Mapping[str, Callable[[SessionReport, Path], None]]:
    """Kind -> what writes it."""
    from .csv_report import write_csv
    from .html import write_html
    from .json_report import write_json
    from .markdown import write_markdown

    return {"csv": write_csv, "html": write_html, "json": write_json, "markdown": write_markdown}
