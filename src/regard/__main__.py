"""``python -m regard``."""

from __future__ import annotations

import sys

from regard.cli.app import main

sys.exit(main())
