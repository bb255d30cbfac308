"""`python -m replan.cli` is the command `replan`."""

import sys

from . import main

sys.exit(main())
