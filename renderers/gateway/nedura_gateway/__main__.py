"""`python -m nedura_gateway` is the gateway."""

from nedura_gateway.main import main

raise SystemExit(main())
