"""``python -m jupyter_gpu_release.cli``."""

import sys

from .main import main

sys.exit(main())
