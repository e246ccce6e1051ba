"""``python -m geodax`` is the command line."""

from geodax.cli import main

raise SystemExit(main())
