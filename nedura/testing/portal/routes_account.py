"""Account, recommended models and a small inference surface (facts/signin.md 1.4-1.6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from nedura.testing.portal.exchange import Answer, failure, json_answer

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Ask

__all__ = ["account", "bearer_claims", "chat", "models", "recommended_models"]

WELCOME_MODEL: Final = "nous/welcome"


def bearer_claims(portal: Portal, ask: Ask) -> dict[str, Any] | None:
    """Claims of a live bearer of ours: signed, not expired, its family not revoked."""
    claims = portal.store.mint.claims(ask.bearer)
    if claims is None or claims.get("exp", 0) <= portal.now():
        return None
    family = next((f for f in portal.store.families if f.number == claims.get("fam")), None)
    return None if family is not None and family.revoked else claims


def account(portal: Portal, ask: Ask) -> Answer:
    """Who the bearer is and what they pay for."""
    claims = bearer_claims(portal, ask)
    found = portal.store.by_sub(str(claims.get("sub"))) if claims else None
    if found is None:
        return failure(401, "invalid_token")
    paid = found.tier == "paid"
    organisation = f"nas_org:{found.sub}"
    return json_answer(
        {
            "user": {"email": found.email, "privy_did": f"did:privy:{found.sub}"},
            "organisation": {"id": organisation},
            "subscription": {
                "plan": found.plan if paid else "Free",
                "tier": int(paid),
                "monthly_charge": 20 if paid else 0,
                "current_period_end": None,
                "credits_remaining": 1000 if paid else 0,
                "rollover_credits": 0,
            },
            "paid_service_access": {
                "allowed": paid,
                "paid_access": paid,
                "reason": None if paid else "no_usable_credits",
                "organisation_id": organisation,
                "effective_at_ms": int(portal.now() * 1000),
                "has_active_subscription": paid,
                "active_subscription_is_paid": paid,
                "subscription_tier": int(paid),
                "subscription_monthly_charge": 20 if paid else 0,
                "subscription_credits_remaining": 1000 if paid else 0,
                "purchased_credits_remaining": 0,
                "total_usable_credits": 1000 if paid else 0,
            },
        }
    )


def recommended_models(portal: Portal, ask: Ask) -> Answer:
    """The public list."""
    knobs = portal.knobs

    def rows(names: tuple[str, ...]) -> list[dict[str, str]]:
        return [{"modelName": name} for name in names]

    def first(names: tuple[str, ...]) -> dict[str, str] | None:
        return {"modelName": names[0]} if names else None

    return json_answer(
        {
            "paidRecommendedModels": rows(knobs.paid_models),
            "freeRecommendedModels": rows(knobs.free_models),
            "paidRecommendedCompactionModel": first(knobs.paid_models),
            "freeRecommendedCompactionModel": first(knobs.free_models),
            "paidRecommendedVisionModel": None,
            "freeRecommendedVisionModel": None,
        }
    )


def models(portal: Portal, ask: Ask) -> Answer:
    """Ids the bearer may use."""
    claims = bearer_claims(portal, ask)
    if claims is None:
        return failure(401, "invalid_token")
    guest = claims.get("account_tier") == "anonymous"
    names = (WELCOME_MODEL,) if guest else (*portal.knobs.paid_models, *portal.knobs.free_models)
    return json_answer({"data": [{"id": name} for name in names]})


def chat(portal: Portal, ask: Ask) -> Answer:
    """A chat completion that repeats what was said, streamed when asked for."""
    claims = bearer_claims(portal, ask)
    if claims is None:
        return failure(401, "invalid_token")
    model = ask.json.get("model")
    if (claims.get("account_tier") == "anonymous") != (model == WELCOME_MODEL):
        return failure(400, "wrong_host", "this host serves another kind of account only")
    messages = ask.json.get("messages") or [{}]
    said = str(messages[-1].get("content", "")) if isinstance(messages[-1], dict) else ""
    words = f"You said: {said}".split(" ")
    if not ask.json.get("stream"):
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": " ".join(words)},
            "finish_reason": "stop",
        }
        return json_answer({"object": "chat.completion", "model": model, "choices": [choice]})
    pieces = [_delta(word if number == 0 else f" {word}") for number, word in enumerate(words)]
    return Answer(
        headers={"content-type": "text/event-stream"}, pieces=(*pieces, b"data: [DONE]\n\n"), pause=0.01
    )


def _delta(text: str) -> bytes:
    row = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
    return f"data: {json.dumps(row)}\n\n".encode()
