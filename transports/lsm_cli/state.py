"""`lsm state`: the document of GET /lsm/state, for people."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

from lsm.errors import Unavailable

TIMEOUT_S = 5.0
MAX_BYTES = 4 << 20


def fetch_state(url: str, api_key: str) -> Any:
    """The state document of the server at `url`; without a scheme, http is meant.

    Raises Unavailable: nothing answers there, or something else does.
    """
    url = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
    address = f"{url}/lsm/state"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a server of one's own is not behind the proxy
    try:
        with opener.open(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        raise Unavailable(_refusal(address, error.code)) from None
    except (ValueError, HTTPException) as error:
        raise Unavailable(f"{address} does not answer as an lsm-server: {error}") from None
    except OSError as error:  # URLError is one
        reason = getattr(error, "reason", error)
        raise Unavailable(f"no server answers at {url} ({reason}): start lsm-server, or name its address with --url") from None


def _refusal(address: str, status: int) -> str:
    if status == 401:
        return f"{address} asks for a key: give it with --api-key or LLAMA_API_KEY"
    return f"{address} answers {status}: is it an lsm-server?"


def as_text(state: Mapping[str, Any]) -> str:
    """Token and queue first, then one block per model."""
    blocks = [_token_text(state["token"]), *_ledger_text(state), *(_model_text(model) for model in state["models"]), _counters_text(state)]
    return "\n\n".join(blocks)


def _token_text(token: Mapping[str, Any]) -> str:
    holder = token["holder"]
    held = "" if token["held_s"] is None else f" for {token['held_s']:.1f} s"
    first = f"device held by {_who(holder)}{held}" if holder else "nobody holds the device"
    waiting = [f"  {place}. {_who(waiter)}, waiting for {waiter['waited_s']:.1f} s" for place, waiter in enumerate(token["queue"], 1)]
    return "\n".join([first, *(["in line:", *waiting] if waiting else ["nobody waits"])])


def _ledger_text(state: Mapping[str, Any]) -> list[str]:
    """Nothing without a budget."""
    if not state["ledger"]:
        return []
    rows = [_page_text(page) for page in state["ledger"]]
    used = sum(sum(page["bytes"].values()) for page in state["ledger"])
    budget = "" if state["budget_bytes"] is None else f" of a budget of {_size(state['budget_bytes'])}"
    return ["\n".join([f"ledger: {_size(used)}{budget}", *rows])]


def _page_text(page: Mapping[str, Any]) -> str:
    classes = ", ".join(f"{name} {_size(size)}" for name, size in page["bytes"].items() if size) or "nothing"
    asks = f"; asks {', '.join(page['asks'])} to leave, misses {_size(page['missing_bytes'])}" if page["asks"] else ""
    return f"  {_who(page)}{'' if page['alive'] else ', dead'}: {classes}{asks}"


def _who(process: Mapping[str, Any]) -> str:
    return f"{process['alias'] or 'a stranger'} (process {process['pid']})"


def _model_text(model: Mapping[str, Any]) -> str:
    lines = [f"{model['alias']}: {model['why']}", f"  file      {model['path']}"]
    lines += [f"  {name:<9} {machine['state']} for {machine['since_s']:.1f} s" for name, machine in model["machines"].items()]
    heads = ("bytes", "device", "host", "pinned", "file", "registered")
    rows = [heads, *((name, *(_size(places[place]) for place in heads[1:])) for name, places in _used(model["bytes"]))]
    return "\n".join(lines + _table(rows))


def _used(classes: Mapping[str, Mapping[str, int]]) -> list[tuple[str, Mapping[str, int]]]:
    return [(name, places) for name, places in classes.items() if any(places.values())]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"  {row[0]:<9} " + " ".join(f"{cell:>12}" for cell in row[1:]) for row in rows]


def _counters_text(state: Mapping[str, Any]) -> str:
    counters = ", ".join(f"{name} {count}" for name, count in state["counters"].items())
    budget = state["budget_bytes"]
    return f"budget: {'one model at a time' if budget is None else _size(budget)}; {counters}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB"
