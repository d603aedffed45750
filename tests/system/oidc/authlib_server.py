"""A second third-party server: Authlib on Flask, at the paths of the portal. Prints one ready line; POST /device decides."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749.grants import RefreshTokenGrant  # type: ignore[import-untyped]
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant, DeviceCredentialDict  # type: ignore[import-untyped]
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator  # type: ignore[import-untyped]
from flask import Flask, request
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

KEY = RSAKey.generate_key(2048, {"kid": "k", "alg": "RS256", "use": "sig"})
TTL = int(os.environ.get("DEVICE_TTL", "600"))
INTERVAL = int(os.environ.get("INTERVAL", "1"))
app = Flask(__name__)
web = make_server("127.0.0.1", 0, app, threaded=True)
ISSUER = f"http://127.0.0.1:{web.server_port}"
CODES: dict[str, Any] = {}
GRANTS: dict[str, tuple[str, bool]] = {}
LAST: dict[str, float] = {}
TOKENS: dict[str, Token] = {}


class Public(ClientMixin):  # type: ignore[misc]
    client_id = "hermes-cli"

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""

    def check_client_secret(self, client_secret: str) -> bool:
        return False

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "none"

    def check_response_type(self, response_type: str) -> bool:
        return False

    def check_grant_type(self, grant_type: str) -> bool:
        return True


class User:
    def __init__(self, name: str) -> None:
        self.name = name

    def get_user_id(self) -> str:
        return self.name


class Token(TokenMixin):  # type: ignore[misc]
    def __init__(self, user: User, data: dict[str, Any]) -> None:
        self.user, self.data = user, data

    def get_scope(self) -> str:
        return str(self.data.get("scope", ""))

    def check_client(self, client: Public) -> bool:
        return True


def save_token(token: dict[str, Any], asked: Any) -> None:
    TOKENS[token["refresh_token"]] = Token(asked.user, dict(token))


class Endpoint(DeviceAuthorizationEndpoint):  # type: ignore[misc]
    EXPIRES_IN, INTERVAL = TTL, INTERVAL
    CLIENT_AUTH_METHODS = ("none",)

    def get_verification_uri(self) -> str:
        return f"{ISSUER}/device"

    def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
        CODES[data["device_code"]] = DeviceCredentialDict(
            client_id=client_id, scope=scope, expires_at=time.time() + TTL, **data
        )


class Device(DeviceCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)

    def query_device_credential(self, device_code: str) -> Any:
        return CODES.get(device_code)

    def query_user_grant(self, user_code: str) -> Any:
        found = GRANTS.get(user_code)
        return (User(found[0]), found[1]) if found else None

    def should_slow_down(self, credential: Any) -> bool:
        now, previous = time.monotonic(), LAST.get(credential["device_code"])
        LAST[credential["device_code"]] = now
        return previous is not None and now - previous < INTERVAL - 0.05


class Refresh(RefreshTokenGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Any:
        return TOKENS.get(refresh_token)

    def authenticate_user(self, refresh_token: Any) -> User:
        return refresh_token.user  # type: ignore[no-any-return]

    def revoke_old_credential(self, refresh_token: Any) -> None:
        TOKENS.pop(refresh_token.data["refresh_token"], None)


class Generator(JWTBearerTokenGenerator):  # type: ignore[misc]
    def get_jwks(self) -> Any:
        return {"keys": [KEY.as_dict(private=True)]}

    def get_extra_claims(self, client: Any, grant_type: str, user: User, scope: str) -> dict[str, Any]:
        return {"email": f"{user.name}@example.test", "aud": "urn:test:api"}


server = AuthorizationServer(
    app, query_client=lambda name: Public() if name == "hermes-cli" else None, save_token=save_token
)
server.register_token_generator(
    "default", Generator(issuer=ISSUER, alg="RS256", refresh_token_generator=lambda **_: os.urandom(24).hex())
)
server.register_grant(Device)
server.register_grant(Refresh)
server.register_endpoint(Endpoint)


@app.post("/api/oauth/device/code")
def device_code() -> Any:
    return server.create_endpoint_response("device_authorization")


@app.post("/api/oauth/token")
def token() -> Any:
    return server.create_token_response()


@app.post("/device")
def decide() -> Any:
    GRANTS[request.form["user_code"]] = (request.form.get("login", "alice"), request.form["do"] == "approve")
    return "done"


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"ready": True, "issuer": ISSUER}) + "\n")
    sys.stdout.flush()
    web.serve_forever()
