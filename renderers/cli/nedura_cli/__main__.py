"""`python -m nedura_cli` is the command."""

from nedura_cli.main import main

raise SystemExit(main())
