"""How long a session may go on measuring."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """Seconds from now on; what would not fit into the rest is not begun."""

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The clock starts now.

        Args:
            seconds: None for no limit.
            clock: in seconds.
        """
        self._seconds = seconds
        self._clock = clock
        self._begin = clock()

    def exceeded_by(self, seconds: float) -> str | None:
        """Why so many seconds more are too many, or None."""
        if self._seconds is None:
            return None
        used = self._clock() - self._begin
        if used + seconds <= self._seconds:
            return None
        return f"the time budget of {self._seconds:g} s (--spec-budget) is used up"
