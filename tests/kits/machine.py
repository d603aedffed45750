"""What the machine itself says about reaching a package index, read before `conftest` takes it away from the tests."""

from __future__ import annotations

import os
from typing import Final

PACKAGES: Final = {
    name: value
    for name, value in os.environ.items()
    if name.startswith(("PIP_", "UV_"))
    or name in ("SSL_CERT_FILE", "SSL_CERT_DIR")
    or name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
}
"""For a test that builds a real environment of packages, as a person on this machine would."""
