"""Events of the completion that others than the pipeline do not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, final

import attrs

from nedura.errors import UpdateError
from nedura.text import clean

__all__ = ["EVENTS", "PackageReport", "package_report", "refusal_report"]


@final
@attrs.frozen(kw_only=True)
class PackageReport:
    """What the package step said, filed in the update's receipt.

    Attributes:
        sections: `pm_*` -> content, as JSON can say it. `pm_refusal` says why there is no new environment.
    """

    kind: ClassVar[str] = "package_report"
    sections: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def copy(self) -> str:
        """Chat form: nothing; a failure has its own line."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form: nothing; steps and failures have their own lines."""
        return ""


def package_report(answer: Mapping[str, Any]) -> PackageReport:
    """The report of an environment step, from what `ensure_environment` or the bootstrap answered; unknown keys are left out."""
    packages = answer.get("packages")
    dropped = answer.get("dropped")
    ok = bool(answer.get("ok", True))
    sections: dict[str, Any] = {
        "pm_environment": {
            "ok": ok,
            "hash": clean(answer.get("hash", ""), 64),
            "built": bool(answer.get("built", False)),
            "tool": clean(answer.get("tool", ""), 40),
            "seconds": _seconds(answer.get("seconds")),
        },
        "pm_packages": {
            clean(name, 80): clean(version, 40)
            for name, version in (packages.items() if isinstance(packages, Mapping) else ())
        },
        "pm_dropped_variables": [clean(name, 80) for name in dropped] if isinstance(dropped, list) else [],
    }
    if not ok:
        sections["pm_refusal"] = {
            "reason": clean(answer.get("reason", ""), 500),
            "stop_class": clean(answer.get("stop_class", ""), 40) or "dependencies",
            "advice": clean(answer.get("advice", ""), 300),
        }
    return PackageReport(sections=sections)


def refusal_report(error: UpdateError) -> PackageReport:
    """The report of an environment step that failed before the commit."""
    return package_report(
        {"ok": False, "reason": error.message, "stop_class": error.stop_class, "advice": error.advice}
    )


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


EVENTS: Final = (PackageReport,)
