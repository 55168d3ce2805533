"""The export to Promela, on a table small enough to be read, and SPIN's verdict on a table that is wrong."""

from __future__ import annotations

import pytest

from lsm.machines.request import REQUEST
from lsm.machines.sleep import SLEEP
from lsm.machines.slot import SLOT
from lsm.machines.table import Edge, Machine, ignoring
from lsm.machines.token import TOKEN
from specs import spin
from specs.counts import REQUESTS
from specs.planting import at, without
from specs.promela import promela, promela_calls, promela_messages
from specs.worlds.token import KERNEL

LAMP = Machine(
    name="lamp",
    initial="off",
    states={"on": "light", "off": "dark"},
    facts={"paid": "the bill"},
    effects={"click": "noise", "glow": "light", "note": "nothing"},
    edges=(
        Edge("off", "press", "on", when=("paid",), do=("note", "click", "glow")),
        Edge("off", "press", "off", when=("!paid",), do=("click",)),
        Edge("on", "press", "off"),
    ),
)

EXPECTED = """\
/* Generated from the table 'lamp' by specs/promela.py: do not edit. */
#define off 0
#define on 1
#define dead 2
#define todo_on_press 0
#define next_is_click(k) ((k) == 1)
#define MACHINE_STEPS(i) \\
  :: atomic { state[i] == off && !todo[i] && ev_press(i) && fact_paid(i) -> at_press(i); todo[i] = 1; state[i] = on; settle(i); do_glow(i) } \\
  :: atomic { state[i] == off && !todo[i] && ev_press(i) && not_paid(i) -> at_press(i); todo[i] = 1; state[i] = off; settle(i) } \\
  :: atomic { state[i] == on && !todo[i] && ev_press(i) -> at_press(i); todo[i] = 0; state[i] = off; settle(i) } \\
  :: atomic { todo[i] == 1 -> todo[i] = 0; do_click(i) }
"""  # noqa: E501


def test_each_edge_and_each_kernel_call_is_one_step() -> None:
    assert promela(LAMP, kernel=("click",), at_once=("glow",)) == EXPECTED


CALLS = """\
/* Generated from the table 'bell' by specs/promela.py: do not edit. */
#define bell_still 0
#define bell_rings 1
inline bell_press(i) {
  if
  :: b_state[i] == bell_still && paid -> b_state[i] = bell_rings; do_click(i)
  :: b_state[i] == bell_still && !paid -> b_state[i] = bell_still
  :: b_state[i] == bell_rings -> skip
  :: else -> assert(false)
  fi
}
"""


def test_what_a_machine_tells_another_is_a_message() -> None:
    assert promela_messages([LAMP], {("lamp", "glow"): "lamp:press"}) == (
        "#define MSG_lamp_press 1\n#define do_glow(i) post(MSG_lamp_press)\n"
        "inline handle(message) {\n  if\n  :: message == MSG_lamp_press -> lamp_press(0)\n  fi\n}\n"
    )


def test_an_event_that_the_world_sends_is_a_call_for_each_edge() -> None:
    """What is ignored does nothing, what is refused fails."""
    bell = Machine(
        name="bell",
        initial="still",
        states={"rings": "noise", "still": "none"},
        facts={"paid": "the bill"},
        effects={"click": "noise"},
        edges=(Edge("still", "press", "rings", when=("paid",), do=("click",)), Edge("still", "press", "still", when=("!paid",))),
        ignores=ignoring("press", "rings"),
    )
    assert promela_calls(bell, "b") == CALLS


def test_every_effect_of_slots_and_requests_has_a_meaning_in_the_world() -> None:
    world = spin.SLOTS_WORLD.read_text()
    assert [name for name in {**REQUEST.effects, **SLOT.effects} if f"inline do_{name}(" not in world] == []


@pytest.mark.slow
@pytest.mark.skipif(not spin.available(), reason=spin.REMEDY)
def test_spin_catches_a_slot_that_leaks() -> None:
    """P13: the assertions of that world are awake, too."""
    leaks = at(REQUEST, "generating", "cancel", do=("report_cancelled",))
    assert spin.count_slots(request=leaks).errors == 1


@pytest.mark.slow
@pytest.mark.skipif(not spin.available(), reason=spin.REMEDY)
def test_spin_catches_a_cancel_without_effect() -> None:
    """P13."""
    deaf = without(REQUEST, ("prefilling", "cancel"), ignored=True)
    assert spin.count_slots(request=deaf).errors == 1


@pytest.mark.slow
@pytest.mark.skipif(not spin.available(), reason=spin.REMEDY)
def test_spin_catches_a_batch_without_its_memory() -> None:
    """S10: the assertions of the owner's world are awake."""
    early = at(TOKEN, "draining", "drained", do=("token_drop", "device_unmap"))
    assert spin.count_owner(REQUESTS, early).errors == 1


@pytest.mark.slow
@pytest.mark.skipif(not spin.available(), reason=spin.REMEDY)
def test_spin_catches_a_lost_wake_up() -> None:
    """S2: somebody who waits for ever is found, by the property that is about him and by no other."""
    forgets = at(SLEEP, "falling_asleep", "device_left", "demanded", target="asleep", do=())
    verdicts = spin.check_owner(REQUESTS, ("client_waits", "falling_asleep"), forgets)
    assert {name: verdict.errors for name, verdict in verdicts.items()} == {"client_waits": 1, "falling_asleep": 0}


def test_every_event_and_fact_of_the_token_has_a_meaning_in_the_world() -> None:
    """Else the C preprocessor would leave a call to nothing, which SPIN reports only as a syntax error."""
    world = spin.WORLD.read_text()
    names = [f"ev_{event}" for event in TOKEN.events] + [f"at_{event}" for event in TOKEN.events]
    names += [f"{kind}_{fact}" for fact in TOKEN.facts for kind in ("fact", "not")] + [f"do_{effect}" for effect in KERNEL + spin.AT_ONCE]
    assert [name for name in names if f"#define {name}(i)" not in world] == []


@pytest.mark.slow
@pytest.mark.skipif(not spin.available(), reason=spin.REMEDY)
def test_spin_catches_a_planted_mistake() -> None:
    """S1: the assertions of the Promela world are awake."""
    overtakes = at(TOKEN, "waiting", "ahead_gone", target="taking", do=("token_try",))
    assert spin.count_states(3, table=overtakes).errors == 1


def test_without_spin_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin.shutil, "which", lambda name: None)
    with pytest.raises(spin.SpinError, match="apt-get install"):
        spin.count_states(2)
