"""What a version must have before it may become current: without it nobody could start the command, finish the update, or serve."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nedura.errors import UpdateError
from nedura.product import Product
from nedura.text import clean

__all__ = ["check_essentials", "module_file"]

_WHY: Final = {
    "command": "the command that the launcher starts",
    "bootstrap": "what finishes an update",
    "gateway": "the gateway",
}


def module_file(tree: Path, product: Product, module: str) -> str:
    """The file by which `-m` starts a module, relative to the tree; empty when the tree has none."""
    for root in product.roots:
        base = f"{root}/{module.replace('.', '/')}".lstrip("/")
        for name in (f"{base}.py", f"{base}/__main__.py"):
            if (tree / name).is_file():
                return name
    return ""


def _parts(tree: Path, product: Product) -> dict[str, str]:
    """Essential parts that a tree has: kind -> file."""
    gateways = [name for module in product.gateway_modules if (name := module_file(tree, product, module))]
    found = {
        "command": module_file(tree, product, product.main_modules[0]),
        "bootstrap": product.bootstrap if (tree / product.bootstrap).is_file() else "",
        "gateway": gateways[0] if gateways else "",
    }
    return {kind: name for kind, name in found.items() if name}


def check_essentials(tree: Path, before: Path | None, product: Product) -> None:
    """Refuse a version without an essential part.

    Args:
        tree: the candidate's files.
        before: the files that run now; a part that they lack as well is not asked for (a host may have no gateway). The command
            always is.
        product: names the parts.

    Raises:
        UpdateError: one is missing; names its file.
    """
    had = _parts(before, product) if before is not None else {}
    have = _parts(tree, product)
    had.setdefault("command", f"{product.main_modules[0].replace('.', '/')}.py")
    for kind, name in had.items():
        if kind not in have:
            raise UpdateError(
                f"The new version lacks {clean(name, 120)}: {_WHY[kind]}.",
                stop_class="incomplete",
                advice="Nothing was changed. Tell whoever publishes it.",
            )
