"""`python -m replan`."""

import sys

from replan.cli import main

if __name__ == "__main__":
    sys.exit(main())
