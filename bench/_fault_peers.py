"""Runs the scripts of `signin_faults` with one peer: `python _fault_peers.py msal|huggingface_hub URL LIVES`."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any


def msal(url: str, index: int, life: int) -> bool:
    import requests  # type: ignore[import-untyped]
    from msal.oauth2cli.oauth2 import Client  # type: ignore[import-not-found]

    client = Client({"token_endpoint": f"{url}/token"}, "hermes-cli", http_client=requests.Session())
    flow = {
        "device_code": f"msal.{index}",
        "interval": 1,
        "expires_in": life,
        "expires_at": time.time() + life,
    }
    return "access_token" in client.obtain_token_by_device_flow(flow)


def huggingface_hub(url: str, index: int, life: int) -> bool:
    from huggingface_hub import constants  # type: ignore[import-not-found]
    from huggingface_hub.utils import _oauth_device  # type: ignore[import-not-found]

    constants.ENDPOINT = url
    info: Any = {"device_code": f"hf.{index}", "interval": 1, "expires_in": life}
    return "access_token" in _oauth_device.poll_device_token(info)


def main() -> None:
    name, url, lives = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    run = {"msal": msal, "huggingface_hub": huggingface_hub}[name]
    results: dict[int, str] = {}

    def one(index: int) -> None:
        try:
            results[index] = "completed" if run(url, index, lives[index]) else "refused"
        except Exception as error:  # whatever ends a peer's login is its result
            results[index] = type(error).__name__

    run(url, 0, lives[0])  # imports are paid before the clock of a short code runs
    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(lives))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([results[index] for index in range(len(lives))]))


if __name__ == "__main__":
    main()
