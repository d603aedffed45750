"""Twenty scripted token endpoints for `signin_faults`: what goes wrong between a code and its token."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

PENDING: Final = "authorization_pending"
SCRIPTS: Final[dict[str, tuple[str, ...]]] = {
    "no fault": (PENDING, PENDING),
    "connection reset": ("reset",),
    "connection reset three times": ("reset", "reset", "reset"),
    "cut in the headers": ("cut_head",),
    "cut in the body": ("cut_body",),
    "not HTTP": ("garbage",),
    "502 page": ("502",),
    "503 page, Retry-After 2": ("503",),
    "500 with a JSON code": ("500_json",),
    "504 twice": ("504", "504"),
    "429 without a body": ("429",),
    "429 with a JSON code": ("429_json",),
    "429 with a JSON code, Retry-After 2": ("429_json_after",),
    "408": ("408",),
    "firewall page (403, mitigated)": ("403_mitigated",),
    "a page with status 200": ("200_page",),
    "slow_down": ("slow_down", PENDING),
    "slow_down, then 502": ("slow_down", "502"),
    "flapping server": ("reset", PENDING, "503", PENDING, "429", PENDING, "502", PENDING),
    "two slow_downs, approval in the last seconds": ("slow_down", "slow_down"),
}
"""Name -> the answers before the token; the last one has a code that lives 12 s."""

_STATUS: Final = {
    "502": 502,
    "503": 503,
    "504": 504,
    "429": 429,
    "408": 408,
    "403_mitigated": 403,
    "200_page": 200,
}


def life_of(name: str) -> int:
    return 12 if "last seconds" in name else 60


class Scripted(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers.get("content-length", 0))).decode())
        if self.path.endswith("/device/code"):
            self._device(self.path.split("/")[1])
            return
        code = body.get("device_code", [""])[0]
        client, _, index = code.partition(".")
        del client
        name = list(SCRIPTS)[int(index)]
        with self.server.lock:
            step = self.server.steps.get(code, 0)
            self.server.steps[code] = step + 1
        script = SCRIPTS[name]
        self._step(script[step] if step < len(script) else "token")

    def _device(self, code: str) -> None:
        index = int(code.partition(".")[2])
        host = f"http://127.0.0.1:{self.server.server_port}"
        self._json(
            200,
            {
                "device_code": code, "user_code": "BCDF-GHJK", "verification_uri": f"{host}/device",
                "expires_in": life_of(list(SCRIPTS)[index]), "interval": 1,
            },
        )  # fmt: skip

    def _step(self, step: str) -> None:
        match step:
            case "reset":
                self.connection.close()
                self.close_connection = True
            case "cut_head" | "cut_body" | "garbage":
                raw = {
                    "cut_head": b"HTTP/1.1 400 Bad Request\r\nContent-Ty",
                    "cut_body": b'HTTP/1.1 400 X\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"err',
                    "garbage": b"\x00\x01\x02 nonsense\r\n\r\n",
                }[step]
                self.wfile.write(raw)
                self.close_connection = True
            case "token":
                self._json(
                    200, {"access_token": self.server.token, "token_type": "Bearer", "expires_in": 3600}
                )
            case "500_json":
                self._json(500, {"error": "server_error"})
            case "429_json":
                self._json(429, {"error": "rate_limited"})
            case "429_json_after":
                self._json(429, {"error": "rate_limited"}, ("Retry-After", "2"))
            case "authorization_pending" | "slow_down":
                self._json(400, {"error": step})
            case _:
                extra = [("Retry-After", "2")] if step == "503" else []
                extra += [("x-vercel-mitigated", "challenge")] if step == "403_mitigated" else []
                page = b"" if step == "429" else b"<html>not what you asked for</html>"
                self._send(_STATUS[step], page, "text/html", *extra)

    def _json(self, status: int, value: Any, *extra: tuple[str, str]) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", *extra)

    def _send(self, status: int, body: bytes, kind: str, *extra: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *extra):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, token: str) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.token, self.steps, self.lock = token, dict[str, int](), threading.Lock()


@contextmanager
def endpoint(token: str) -> Iterator[str]:
    """Serve the scripts; a device code `client.N` takes script N for that client."""
    server = Endpoint(token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        time.sleep(0.1)
        server.server_close()
