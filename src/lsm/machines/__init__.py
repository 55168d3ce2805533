"""Every machine of lsm, by name.  Pure: no clock, no I/O, no logging, no trio."""

from __future__ import annotations

from lsm.machines.checkpoint import CHECKPOINT
from lsm.machines.encoder import ENCODER
from lsm.machines.load import LOAD
from lsm.machines.request import REQUEST
from lsm.machines.residency import RESIDENCY
from lsm.machines.sleep import SLEEP
from lsm.machines.slot import SLOT
from lsm.machines.table import Machine
from lsm.machines.token import TOKEN

MACHINES: dict[str, Machine] = {
    machine.name: machine for machine in (TOKEN, SLEEP, LOAD, RESIDENCY, REQUEST, SLOT, CHECKPOINT, ENCODER)
}
