"""python -m evaluation"""

import sys

from evaluation.cli import main

sys.exit(main())
