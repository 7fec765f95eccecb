"""`python -m dlcheck`."""

from __future__ import annotations

import sys

from dlcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
