"""Runs SPIN on a world.  Needs `spin` and a C compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lsm.machines.checkpoint import CHECKPOINT
from lsm.machines.encoder import ENCODER
from lsm.machines.request import REQUEST
from lsm.machines.residency import RESIDENCY
from lsm.machines.slot import SLOT
from lsm.machines.table import Machine
from lsm.machines.token import TOKEN
from specs.promela import promela, promela_calls, promela_messages
from specs.worlds.budget import KERNEL as BUDGET_KERNEL
from specs.worlds.budget_state import Scenario
from specs.worlds.owner import TABLES as OWNER_TABLES
from specs.worlds.owner import tell_of
from specs.worlds.owner_state import Scenario as OwnerScenario
from specs.worlds.token import KERNEL

WORLD = Path(__file__).parent / "worlds" / "token.pml"
SLOTS_WORLD = WORLD.with_name("slots.pml")
CHECKPOINTS_WORLD = WORLD.with_name("checkpoints.pml")
ENCODER_WORLD = WORLD.with_name("encoder.pml")
OWNER_WORLD = WORLD.with_name("owner.pml")
BUDGET_WORLD = WORLD.with_name("budget.pml")
OPTIMISE = {2: "-O0", 3: "-O1"}  # of the C compiler, for N processes: small worlds are checked sooner than they are compiled
DEPTH = {4: 20_000_000}  # of the search, which is an error when it is too small
AT_ONCE = ("hold_start", "quantum_start", "quantum_stop")
REMEDY = "SPIN is missing: apt-get install -y --no-install-recommends spin gcc libc6-dev"


class SpinError(Exception):
    """SPIN did not give a verdict; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Verdict:
    states: int
    transitions: int
    errors: int


def available() -> bool:
    return shutil.which("spin") is not None and shutil.which("gcc") is not None


def count_states(n: int, defines: Sequence[str] = (), table: Machine = TOKEN, table_log2: int = 22) -> Verdict:
    """Every state of the world with `n` processes, without reduction; assertions are checked on the way."""
    return _run(n, defines, table, ["-DNOREDUCE", "-DSAFETY", "-DNOCLAIM"], [f"-w{table_log2}", f"-m{DEPTH.get(n, 2_000_000)}"])


def count_slots(defines: Sequence[str] = (), request: Machine = REQUEST, slot: Machine = SLOT) -> Verdict:
    """Every state of two slots and three requests; assertions are checked on the way."""
    return _count(SLOTS_WORLD, "slots_tables.pml", promela_calls(slot, "s") + promela_calls(request, "r"), defines)


def count_checkpoints(table: Machine = CHECKPOINT) -> Verdict:
    """Every state of a slot and its snapshots; assertions are checked on the way."""
    return _count(CHECKPOINTS_WORLD, "checkpoints_table.pml", promela_calls(table, "s"))


def count_encoder(defines: Sequence[str] = (), encoder: Machine = ENCODER, residency: Machine = RESIDENCY) -> Verdict:
    """Every state of an encoder, its model's residency and two requests; assertions are checked on the way."""
    return _count(ENCODER_WORLD, "encoder_tables.pml", promela_calls(encoder, "e") + promela_calls(residency, "r"), defines)


def count_owner(scenario: OwnerScenario) -> Verdict:
    """Every state of one model's owner; assertions are checked on the way."""
    return _run_owner(scenario, (), ["-DNOREDUCE", "-DSAFETY", "-DNOCLAIM"], ["-w22", "-m2000000"])


def check_passing(scenario: OwnerScenario, property: str) -> Verdict:
    """What `property` names in worlds/owner.pml comes to an end, on every run that is fair as specs/worlds/owner_claims.py says."""
    return _run_owner(scenario, ["-DLIVE"], ["-DNOREDUCE", "-DNFAIR=4"], ["-a", "-f", "-N", property, "-w22", "-m4000000"])


def _run_owner(scenario: OwnerScenario, defines: Sequence[str], compile_flags: Sequence[str], run_flags: Sequence[str]) -> Verdict:
    if not available():
        raise SpinError(REMEDY)
    values = {name.upper(): int(value) for name, value in asdict(scenario).items() if name not in ("inbox_limit", "mistake")}
    options = [f"-D{name}={value}" for name, value in values.items()] + [f"-DLIMIT={scenario.inbox_limit}"]
    tables = list(OWNER_TABLES.values())
    tells = {(table.name, effect): told for table in tables for effect in table.effects if (told := tell_of(table, effect))}
    calls = "".join(promela_calls(table, table.name[0]) for table in tables)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(OWNER_WORLD, folder)
        (Path(folder) / "owner_tables.pml").write_text(promela_messages(tables, tells) + calls)
        _call(folder, ["spin", "-a", *options, *defines, OWNER_WORLD.name])
        _call(folder, ["gcc", "-w", "-O1", "-DCOLLAPSE", "-DVECTORSZ=2048", *compile_flags, "-o", "pan", "pan.c"])
        return _verdict(_call(folder, ["./pan", *run_flags]))


def _count(world: Path, tables_name: str, tables: str, defines: Sequence[str] = ()) -> Verdict:
    if not available():
        raise SpinError(REMEDY)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(world, folder)
        (Path(folder) / tables_name).write_text(tables)
        _call(folder, ["spin", "-a", *defines, world.name])
        _call(folder, ["gcc", "-w", "-O0", "-DNOREDUCE", "-DSAFETY", "-DNOCLAIM", "-o", "pan", "pan.c"])
        return _verdict(_call(folder, ["./pan", "-w22", "-m100000"]))


def count_budget(scenario: Scenario, table: Machine = TOKEN) -> Verdict:
    """Every state of processes under a budget; assertions are checked on the way."""
    return _run_budget(scenario, (), table, ["-DNOREDUCE", "-DSAFETY", "-DNOCLAIM"], ["-w22", "-m2000000"])


def check_room(scenario: Scenario, defines: Sequence[str] = (), table: Machine = TOKEN) -> Verdict:
    """Whoever waits comes to be awake, on every run that is weakly fair to every process, clock and load."""
    return _run_budget(scenario, ("-DLIVE", *defines), table, ["-DNFAIR=3"], ["-a", "-f", "-N", "served", "-w22", "-m2000000"])


def _run_budget(
    scenario: Scenario, defines: Sequence[str], table: Machine, compile_flags: Sequence[str], run_flags: Sequence[str]
) -> Verdict:
    if not available():
        raise SpinError(REMEDY)
    sizes = [f"-DN={scenario.n}", f"-DBUDGET={scenario.budget}", f"-DLEAVES={scenario.leaves}", f"-DSTAYS={scenario.stays}"]
    happens = {"NO_CRASH": scenario.crash, "NO_ESCAPES": scenario.escapes, "SURE_RINGS": scenario.rings_lost, "IDLE": scenario.serves}
    options = [*sizes, *(f"-D{name}" for name, yes in happens.items() if not yes), *defines]
    nothing = [f"#define do_{effect}(i) skip\n" for effect in table.effects if effect not in (*BUDGET_KERNEL, *AT_ONCE)]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(BUDGET_WORLD, folder)
        (Path(folder) / "budget_table.pml").write_text("".join(nothing) + promela_calls(table, "p"))
        _call(folder, ["spin", "-a", *options, BUDGET_WORLD.name])
        _call(folder, ["gcc", "-w", "-O1", "-DCOLLAPSE", "-DVECTORSZ=2048", *compile_flags, "-o", "pan", "pan.c"])
        return _verdict(_call(folder, ["./pan", *run_flags]))


def check_served(n: int, defines: Sequence[str] = (), table: Machine = TOKEN) -> Verdict:
    """Whoever has a ticket gets the token, on every run that is weakly fair to every process, clock and load."""
    return _run(n, ["-DLIVE", *defines], table, ["-DNFAIR=3"], ["-a", "-f", "-N", "served", "-w22", "-m2000000"])


def _run(n: int, defines: Sequence[str], table: Machine, compile_flags: Sequence[str], run_flags: Sequence[str]) -> Verdict:
    if not available():
        raise SpinError(REMEDY)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(WORLD, folder)
        (Path(folder) / "token_table.pml").write_text(promela(table, KERNEL, AT_ONCE))
        _call(folder, ["spin", "-a", f"-DN={n}", *defines, WORLD.name])
        _call(folder, ["gcc", "-w", OPTIMISE.get(n, "-O2"), "-DCOLLAPSE", "-DVECTORSZ=2048", *compile_flags, "-o", "pan", "pan.c"])
        return _verdict(_call(folder, ["./pan", *run_flags]))


def _call(folder: str, command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode != 0 or "max search depth too small" in text or re.search(r"spin: .*[Ee]rror", text):
        raise SpinError(f"{' '.join(command)}\n{text}")
    return text


def _verdict(text: str) -> Verdict:
    found = [re.search(rf"{words}", text) for words in (r"(\d+) states, stored", r"(\d+) transitions", r"errors: (\d+)")]
    states, transitions, errors = (int(match[1]) if match else None for match in found)
    if states is None or transitions is None or errors is None:
        raise SpinError(text)
    return Verdict(states, transitions - 1, errors)  # SPIN counts the step into the initial state, too
