"""The HTML report: one file that needs nothing else, for a person who is to decide.

``figures`` gathers what is drawn, ``plots`` draws it by ``drawing``, ``differences`` sets outputs
side by side, ``embedded`` makes the block of raw figures, ``page`` puts all into
``report.html.j2``.
"""

from .page import write_html

__all__ = ["MODULES", "write_html"]

MODULES = ("jinja2", "matplotlib")  # of the extra ``report``
