"""Lets `python -m renco` be the command `renco`."""

import sys

from renco.cli import main

if __name__ == "__main__":
    sys.exit(main())
