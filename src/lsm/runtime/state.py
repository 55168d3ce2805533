"""The document of `GET /lsm/state`: one JSON value for people's tools, tests and the page.  A glance; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsm.arena.ledger_status import Account, accounts
from lsm.arena.status import Status
from lsm.arena.status import status as arena_status
from lsm.errors import ArenaError
from lsm.runtime.engine_port import CLASSES
from lsm.runtime.owner import Owner
from lsm.runtime.room_effects import size_text
from lsm.values import Counters

_PLACES = ("device", "host", "file", "pinned", "registered")


def document(owners: Iterable[tuple[Owner, Path]], arena: Path, budget_bytes: int | None) -> dict[str, Any]:
    """`bytes` are per class and place; `since_s`, `held_s`, `waited_s` are seconds; `queue` is in the order of the line.

    `ledger`: what all models of the arena have on the device under a budget, by class.
    """
    owners = list(owners)
    line = _line(arena)
    return {
        "models": [_model(owner, path, line) for owner, path in owners],
        "token": _token(line),
        "budget_bytes": budget_bytes,
        "ledger": [_account(account) for account in _accounts(arena)],
        "counters": {name: sum(owner.counts[name] for owner, _ in owners) for name in ("handoffs", "wakes", "refusals")},
    }


def _model(owner: Owner, path: Path, line: Status) -> dict[str, Any]:
    return {
        "alias": owner.alias,
        "path": str(path),
        "machines": owner.machines(),
        "bytes": {name: {place: owner.sizes.bytes.get(name, {}).get(place, 0) for place in _PLACES} for name in CLASSES},
        "why": _why(owner, line),
        "prompt_cache": _prompt_cache(owner.activity.counters),
        "requests": {"running": owner.running, "waiting": owner.waiting},
    }


def _prompt_cache(counters: Counters) -> dict[str, int]:
    """Of prompts in host memory, and of snapshots there or beside the slots."""
    return {
        "entries": counters.prompt_cache_entries,
        "tokens": counters.prompt_cache_tokens,
        "bytes": counters.prompt_cache_bytes,
        "hits": counters.prompt_cache_hits,
        "checkpoints": counters.checkpoints,
        "checkpoint_bytes": counters.checkpoint_bytes,
    }


def _why(owner: Owner, line: Status) -> str:
    """Why the model is where it is, in words, as far as its machines show it."""
    match owner.state("token"):
        case "doorway" | "joining" | "waiting" | "taking":
            return f"waits for {line.holder.label or f'process {line.holder.pid}'}" if line.holder else "takes its turn"
        case "clearing":
            asks = ", ".join(owner.room.asks)
            short = f"{size_text(owner.room.missing_bytes)} more than the budget has left"
            return f"waits until {asks} has left: needs {short}" if asks else "looks for room on the device"
        case "waking":
            return "is being loaded" if owner.state("load") == "loading" else "is moving into device memory"
        case "retrying":
            return "the device had no room; trying again"
        case "awake":
            return "serves" if owner.running else "nobody else waits for the device"
        case "draining" | "sleeping":
            return "is leaving device memory"
        case _:
            return owner.why or ("nobody needs it" if owner.state("load") == "ready" else "has not been loaded")


def _line(arena: Path) -> Status:
    try:
        return arena_status(arena)
    except ArenaError:
        return Status(None, ())


def _accounts(arena: Path) -> tuple[Account, ...]:
    try:
        return accounts(arena)
    except (ArenaError, OSError):
        return ()


def _account(account: Account) -> dict[str, Any]:
    return {
        "alias": account.label,
        "pid": account.page.pid,
        "alive": account.alive,
        "bytes": dict(account.page.sizes),
        "busy": account.page.busy,
        "asks": list(account.asks),
        "missing_bytes": account.page.needs,
    }


def _token(line: Status) -> dict[str, Any]:
    holder = line.holder
    return {
        "holder": None if holder is None else {"pid": holder.pid, "alias": holder.label},
        "held_s": None if holder is None or holder.held_s is None else round(holder.held_s, 3),
        "queue": [{"pid": w.pid, "alias": w.label, "waited_s": round(w.waited_s, 3)} for w in line.waiting],
    }
