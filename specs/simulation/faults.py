"""What goes wrong in the first part of a run.  Each seed has its own mixture, so that some runs show one fault alone, and others many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from lsm.runtime.owner import MAP_ATTEMPTS
from specs.simulation.chance import Chance
from specs.simulation.server import Server, Setting

KERNEL_CALLS = 120  # two or three handoffs of one process


class Faults:
    def __init__(self, setting: Setting, servers: Sequence[Server]) -> None:
        self._setting, self._servers, self._chance = setting, servers, setting.chance
        kinds = (self.kill, self.kill_within_calls, self.stop, self.refuse_memory, self.break_file, self.change_file)
        self._kinds: list[Callable[[], None]] = [kind for kind in kinds if self._chance.random() < 0.6]
        self.counts = dict.fromkeys((kind.__name__ for kind in kinds), 0)

    async def run(self, pause_s: float) -> None:
        """Until cancelled."""
        kernel, chance = self._setting.kernel, self._chance
        kernel.lost_rings = chance.choice((0.0, 0.3, 1.0))
        kernel.scarcity = chance.choice((0.0, 0.0, 0.01))
        while True:
            await trio.sleep(chance.pause(pause_s))
            if self._kinds:
                kind = chance.choice(self._kinds)
                self.counts[kind.__name__] += 1
                kind()

    def end(self) -> None:
        setting = self._setting
        setting.calm = True
        setting.kernel.lost_rings = setting.kernel.scarcity = 0.0
        setting.device.refuse = 0
        for file in setting.files.values():
            file.broken = file.changed = False
        for server in self._servers:
            server.stop_next_after_s = None
            if server.life is not None:
                server.life.process.calls_to_live = -1

    # ---- the kinds ----------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        if (life := self._any().life) is not None:
            life.kill()

    def kill_within_calls(self) -> None:
        if (life := self._any().life) is not None:
            life.process.calls_to_live = self._chance.randrange(KERNEL_CALLS)

    def stop(self) -> None:
        """Now, and perhaps once more while the next life is still loading."""
        server = self._any()
        if server.life is not None:
            server.life.stop.set()
            server.stop_next_after_s = self._chance.choice((None, 0.0, self._chance.lasting(0.0, 1.0)))

    def refuse_memory(self) -> None:
        self._setting.device.refuse = self._chance.choice((1, MAP_ATTEMPTS - 1, 2 * MAP_ATTEMPTS))

    def break_file(self) -> None:
        self._spoil("broken")

    def change_file(self) -> None:
        self._spoil("changed")

    def _spoil(self, how: str) -> None:
        """For a while."""
        if not self._setting.files:
            return
        file = self._setting.files[self._chance.choice(sorted(self._setting.files))]
        setattr(file, how, True)
        self._setting.nursery.start_soon(_mend, file, how, self._chance.lasting(0.1, 10.0))

    def _any(self) -> Server:
        return self._chance.choice(self._servers)


async def _mend(file: object, how: str, after_s: float) -> None:
    await trio.sleep(after_s)
    setattr(file, how, False)


def random_pause_s(chance: Chance) -> float:
    """Between two faults: from a storm to hardly any."""
    return chance.choice((0.2, 1.0, 3.0))
