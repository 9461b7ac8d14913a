"""A progress bar is shown for what takes longer than two seconds, on a terminal only.

It goes to standard error, so that standard output holds results and nothing else.
"""

import sys
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["ProgressBar", "ProgressFunction"]

ProgressFunction = Callable[[float], object]

DELAY_S = 2.0


class ProgressBar:
    """A bar with the time left, fed with the fraction done.

    Parameters
    ----------
    title : str
        What is going on.
    total : int, default 1
        Number of equal parts, each told from 0 to 1 after `begin_part`.
    show : bool, optional
        Default: only if standard error is a terminal.

    Examples
    --------
    >>> with ProgressBar("hackbench", show=False) as bar:
    ...     bar(0.5)
    """

    def __init__(self, title: str, total: int = 1, *, show: bool | None = None) -> None:
        self._title = title
        self._total = max(total, 1)
        self._done = 0
        self._show = sys.stderr.isatty() if show is None else show
        self._start_s = monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, fraction: float) -> None:
        """Show that `fraction` of the current part is done."""
        if not self._show:
            return
        if self._bar is None and monotonic() - self._start_s < DELAY_S:
            return
        if self._bar is None:
            # Known before it starts, so that an interrupt at any time ends it.
            self._bar = self._make()
            self._bar.start()
        done = (self._done + min(max(fraction, 0.0), 1.0)) / self._total
        left = _time_left(monotonic() - self._start_s, done)
        self._bar.update(
            self._bar.task_ids[0], completed=done, left=left, description=self._title
        )

    def begin_part(self, number: int, title: str) -> None:
        """Note that part `number`, from 0, begins and what it is."""
        self._done, self._title = number, title
        self(0.0)

    def _make(self) -> "Progress":
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(file=sys.stderr),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        bar.add_task(self._title, total=1.0, left="")
        return bar


def _time_left(elapsed_s: float, done: float) -> str:
    """Write the time left if the rest goes as fast as what is done."""
    if done <= 0.0:
        return ""
    seconds = round(elapsed_s * (1.0 - done) / done)
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02d}:{seconds % 60:02d} left"
