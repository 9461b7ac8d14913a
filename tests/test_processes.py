"""The processes that simulations run in: what they do when their end comes early."""

import os
import signal
import time

import pytest

from slabq.processes import Processes


def sleep_long():
    time.sleep(100)


def ignores_interrupts():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    return "still here"


def fail(text):
    raise ValueError(text)


@pytest.fixture
def processes():
    made = Processes(2)
    yield made
    made.terminate()
    made.shutdown(cancel_futures=True)


def test_what_a_function_returns_or_raises_comes_through_its_future(processes):
    good = processes.submit(max, 3, 4)
    bad = processes.submit(fail, "that is why")

    assert good.result(timeout=60) == 4
    with pytest.raises(ValueError, match="that is why"):
        bad.result(timeout=60)


def test_a_process_leaves_interrupts_to_the_first_one(processes):
    assert processes.submit(ignores_interrupts).result(timeout=60) == "still here"


def test_futures_taken_back_and_processes_ended_leave_no_trace(capfd):
    # An exception in a thread of the pool would be written to standard error.
    processes = Processes(2)
    futures = [processes.submit(sleep_long) for _ in range(40)]

    taken_back = [future.cancel() for future in futures]
    processes.terminate()
    processes.shutdown(cancel_futures=True)

    assert all(taken_back)
    assert capfd.readouterr() == ("", "")


def test_a_process_that_dies_ends_what_waits_for_it_with_an_error(processes):
    future = processes.submit(os._exit, 3)

    assert future.exception(timeout=60) is not None
