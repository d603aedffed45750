"""The gateway as a script path, for supervisors that start files."""

from nedura_gateway.main import main

if __name__ == "__main__":
    raise SystemExit(main())
