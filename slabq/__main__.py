"""``python -m slabq`` is the command ``slabq``."""

import sys

from slabq.cli import main

if __name__ == "__main__":
    sys.exit(main())
