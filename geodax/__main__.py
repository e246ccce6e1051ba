"""``python -m geodax`` is the command line."""

from geodax.app import main

raise SystemExit(main())
