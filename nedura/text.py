"""Text that came from elsewhere, spoken times, and secrets that do not print themselves."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, NoReturn

__all__ = [
    "LineRedactor",
    "Secret",
    "clean",
    "clean_block",
    "counted",
    "one_line",
    "redact",
    "redact_words",
    "spoken_wait",
    "utc_text",
]

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?\Z", re.ASCII)

# C0, DEL, C1, line and paragraph separators, bidi marks and isolates, zero-width, BOM, tag characters, surrogates.
_HOSTILE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BLANKS: Final = re.compile(r"\s+")


def clean(value: object, limit: int = 200) -> str:
    """Make foreign text harmless for one line of any surface: no control, escape or direction characters.

    Args:
        value: anything; None becomes the empty string.
        limit: longest result in characters; a cut is marked with an ellipsis.
    """
    if value is None:
        return ""
    raw = str(value)[: limit * 8]
    text = _BLANKS.sub(" ", _HOSTILE.sub(" ", _ESCAPES.sub("", raw))).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def clean_block(value: object, limit: int = 4000) -> str:
    """`clean` for text of several lines: each line is cleaned, line ends stay."""
    lines = [clean(line, limit) for line in re.split(r"\r\n|\r|\n", str(value or "")[:limit])]
    return "\n".join(lines).strip("\n")


def one_line(value: object, limit: int = 500) -> str:
    """White space collapsed and cut: the form of reasons in receipts (facts/update.md 9.2)."""
    return clean(value, limit)


def counted(number: int, one: str, many: str = "") -> str:
    """A number and what it counts: 1 file, 2 files.

    Args:
        number: how many.
        one: the word for one of them.
        many: the word for any other number, where it is not the same with an s.
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


def utc_text(stamp: object) -> str:
    """A receipt's instant (ISO 8601, UTC) as people read it: 2026-12-01 01:26:40Z. What is no instant is shown as it is."""
    text = clean(stamp, 40)
    return f"{text[:10]} {text[11:19]}Z" if _INSTANT.match(text) else text


def spoken_wait(seconds: float) -> str:
    """A wait as people say it: a few seconds, about a minute, 5 minutes, 2 hours (facts/signin.md 3.3)."""
    if not math.isfinite(seconds) or seconds <= 15:
        return "a few seconds"
    if seconds < 90:
        return "about a minute"
    if seconds < 3600:
        return f"{round(seconds / 60)} minutes"
    hours = round(seconds / 3600)
    return "about an hour" if hours == 1 else f"{hours} hours"


class Secret:
    """A value that must not be printed: its repr is masked, and it cannot be serialised by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself. Only stores and request builders call this."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('…')"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not serialisable")


_SECRET_FLAG: Final = re.compile(
    r"(?i)(--(?:[a-z0-9-]*(?:token|api-key|password|passwd|passphrase|secret|authorization|credentials?|access-key|private-key"
    r"|session-key)|pass|auth)|\bsshpass\s+-p)(=|\s+)(\S+)"
)
_LOGIN_FLAG: Final = re.compile(r"((?:\s|^)(?:-u|--user|--proxy-user)[=\s]+[^\s:]+:)(\S{4,})")
_KEY_HEAD: Final = "-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_KEY_END: Final = "-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BLOCK: Final = re.compile(
    rf"(?s:{_KEY_HEAD}.{{0,20000}}?{_KEY_END})"
    # a block that was cut: base64 and what stands between its lines, real or escaped line ends and the start of a log line
    rf"|{_KEY_HEAD}(?:(?:\s|\\[nrt]|[^\n]{{0,60}}\| )*[A-Za-z0-9+/=]{{1,80}}(?=\s|\\|…|[\"',]|$))*"
)
_SECRET_SHAPES: Final = re.compile(
    r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"  # JWT
    r"|\banon_[A-Za-z0-9_-]{6,}"
    r"|(?i:\bbearer\s+[A-Za-z0-9._~+/=-]{8,})"
    r"|(?<=://)[^/\s:@]*:[^/?#\s]+(?=@)|(?i:(?<=https://)|(?<=http://))[^/?#\s]+(?=@)"  # URL userinfo; of http also one alone
    r"|(?i:(?<=%3A%2F%2F)(?:(?!%2F|%40)\S)+(?=%40)|(?<=%253A%252F%252F)(?:(?!%252F|%2540)\S)+(?=%2540))"  # percent-encoded, also twice
    r"|(?i:(?<=authorization)[\"']?\s*[:=]\s*[\"']?(?:basic|token|digest|negotiate)\s+[^\s\"']{4,})"
    r"|(?i:(?<=cookie)[\"']?\s*:[^\r\n]{4,})"
    r"|\b\d{8,10}:[A-Za-z0-9_-]{30,}\b"  # Telegram bot token
    r"|\b(?:sk-|gh[pousr]_|github_pat_|xox[abeprs]-)[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"  # model, forge, chat, cloud keys
    r"|\b(?:glpat-|pypi-|xai-|dckr_pat_|ya29\.)[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{30,}|\bsyt_[A-Za-z0-9_]{10,}"
    r"|\b(?:hf_|npm_)[A-Za-z0-9]{16,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{10,}"
    r"|\b[MNO][A-Za-z0-9_-]{22,}\.[A-Za-z0-9_-]{5,7}\.[A-Za-z0-9_-]{25,}"  # Discord bot token
)
_SECRET_QUERY: Final = re.compile(
    r"(?i)([?&](?:key|code|sig|signature|auth|x-amz-signature|x-amz-credential)=)([^&\s\"'<>]{6,})"
    r"|([\"'](?:auth|refresh|credentials?)[\"']\s*:\s*[\"'])([^\"']{6,})"  # docker's config, stores as JSON
)
_SECRET_VARIABLE: Final = re.compile(
    r"(\b[A-Z][A-Z0-9_]*_(?:KEY|PASS|PWD|PAT|AUTH|CREDENTIALS?|PASSPHRASE|COOKIE)[\"']?\s*[:=]\s*[\"']?"  # environment dumps
    r"|\b_auth\s*[:=]\s*[\"']?|\bmachine\s+\S+\s+login\s+\S+\s+password\s+)([^\s\"']{4,})"  # npm, netrc
)
_SECRET_PAIR: Final = re.compile(
    r"(?i)(\b[\w.-]*(?:token|secret|password|passwd|api[_-]?key|authorization|private[_-]?key|access[_-]?key)[\"']?\s*[:=]\s*(?:b?[\"'])?)"
    r"([^\s\"',;}{]{6,})"
)


def redact(text: str) -> str:
    """Mask what looks like a credential: JWTs, our token shapes, URL userinfo, values of secret-named flags, keys and variables.

    A second net behind `Secret`, for log lines, command lines shown to people and debug bundles.
    """
    text = _KEY_BLOCK.sub("[redacted]", text)
    text = _SECRET_FLAG.sub(r"\1\2[redacted]", text)
    text = _LOGIN_FLAG.sub(r"\1[redacted]", text)
    text = _SECRET_SHAPES.sub("[redacted]", text)
    text = _SECRET_QUERY.sub(lambda found: f"{found[1] or found[3]}[redacted]", text)
    text = _SECRET_VARIABLE.sub(r"\1[redacted]", text)
    return _SECRET_PAIR.sub(r"\1[redacted]", text)


def redact_words(words: Sequence[str]) -> list[str]:
    """`redact` for a command line that is a list: what follows a secret-named flag as a word of its own is masked, too."""
    found = []
    for before, word in zip(("", *words), words, strict=False):
        alone = redact(f"{before} {word}") != f"{redact(before)} {redact(word)}" and before.startswith("-")
        found.append("[redacted]" if alone and word else redact(word))
    return found


class LineRedactor:
    """`redact` for the lines of one stream as they come: a private key goes over many of them."""

    LONGEST: Final = 400

    def __init__(self) -> None:
        self._inside = 0

    def __call__(self, line: str) -> str:
        """The line without what looks like a credential; lines inside a private key are masked whole."""
        if self._inside:
            self._inside = 0 if re.search(_KEY_END, line) else self._inside - 1
            return "[redacted]"
        if re.search(_KEY_HEAD, line) and not re.search(_KEY_END, line):
            self._inside = self.LONGEST
        return redact(line)
