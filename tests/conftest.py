"""What all tests share: the recordings beside the checkout."""

import os
from pathlib import Path

import pytest

DEFAULT = Path(__file__).resolve().parent.parent.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings and traces; a test that needs it is skipped without."""
    folder = Path(os.environ.get("SLABQ_SHARED", DEFAULT))
    if not folder.exists():
        pytest.skip("the recordings (../shared) are not beside the checkout")
    return folder
