"""What all tests share: the recordings beside the checkout."""

import os
import signal
from pathlib import Path

import pytest

# A shell without job control makes what it starts in the background deaf to Ctrl-C, and
# everything that is started from there. Tests of interrupts need it heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DEFAULT = Path(__file__).resolve().parent.parent.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings and traces; a test that needs it is skipped without."""
    folder = Path(os.environ.get("SLABQ_SHARED", DEFAULT))
    if not folder.exists():
        pytest.skip("the recordings (../shared) are not beside the checkout")
    return folder
