"""An executor of processes whose end can be brought about at any moment."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    ProcessPoolExecutor,
)
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

__all__ = ["Processes"]

T = TypeVar("T")


class Processes(Executor):
    """A `ProcessPoolExecutor` that can end its processes at once.

    The pool of CPython 3.11 gives every future of a process that ended an exception,
    in a thread of its own, and fails there when somebody had taken that future back.
    So nobody outside holds a future of the pool: each has one here that follows it.

    Parameters
    ----------
    count : int
        Processes, each a fresh interpreter that leaves Ctrl-C to the first process.
    """

    def __init__(self, count: int) -> None:
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `fn` in one of the processes; the future can be taken back."""
        outer: Future[T] = Future()
        with _interrupts_held():
            inner = self._pool.submit(fn, *args, **kwargs)
        inner.add_done_callback(lambda done: _follow(outer, done))
        return outer

    def terminate(self) -> None:
        """End the processes, whatever they are at."""
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the processes end once nothing is left to run."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back: a process that begins here holds it back all its life.

    That leaves it to the first process, from the first instruction of the others on.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(outer: Future[T], done: Future[T]) -> None:
    """Give `outer` what came of `done`, unless it was taken back meanwhile."""
    try:
        error, result = done.exception(), None
        if error is None:
            result = done.result()
    except CancelledError:
        outer.cancel()
        return
    with suppress(InvalidStateError):
        if error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(result)  # type: ignore[arg-type]
