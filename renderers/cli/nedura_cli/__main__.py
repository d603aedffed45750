"""`python -m nedura_cli` is the command."""

from nedura_cli.main import program

raise SystemExit(program())
