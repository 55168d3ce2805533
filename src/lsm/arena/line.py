"""A fair line for one GPU, shared by processes that may be killed at any moment.

    doorway    try `door.lock` for ourselves, then share `want.lock`: being in the line is a lock, not a message
    joining    in the door: sweep the dead, make a ticket one above the highest, lock it; open the door, ring the bell
    waiting    watch the nearest live ticket ahead; it hangs up when its owner leaves or dies, then look again
    taking     nobody ahead: try `token.lock`
    holding    listen to the bell, ask `wanted`; leave: the token first, then the ticket's name, then its lock

flock is the truth and a FIFO is the bell. `token.lock` alone gives exclusion; the line only gives order, so a mistake in the line
costs fairness, never two residents. What is to be done when stands in the token machine's table: this file only has the steps.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from lsm.arena import tickets
from lsm.arena.directory import open_directory, open_furniture, open_lock_file
from lsm.arena.flock import try_exclusive, try_shared, unlock
from lsm.errors import ArenaError, ArenaGone


class Line:
    """One place in the line of one arena; a process has one for each model. Every method returns at once.

    Used by one thread at a time. Two lines of one process exclude each other like two processes do.
    Raises ArenaError when the directory cannot be used, ArenaGone when it was deleted meanwhile.
    """

    def __init__(self, arena: Path | str, label: str = "") -> None:
        self.arena = Path(arena)
        self.label = label
        self._name = ""
        self._number = 0
        self._ticket_fd = self._bell_fd = -1
        self._in_door = self._shares_want = self._has_token = False
        with contextlib.ExitStack() as undo:
            self._arena_fd = _closing(undo, open_directory(self.arena))
            self._line_fd = _closing(undo, open_furniture(self.arena, self._arena_fd))
            self._door_fd = _closing(undo, open_lock_file(self.arena, self._arena_fd, "door.lock"))
            self._token_fd = _closing(undo, open_lock_file(self.arena, self._arena_fd, "token.lock"))
            self._want_fd = _closing(undo, open_lock_file(self.arena, self._arena_fd, "want.lock"))
            # Its own open file: a refused upgrade from shared to exclusive loses the share.
            self._probe_fd = _closing(undo, open_lock_file(self.arena, self._arena_fd, "want.lock"))
            self._files = undo.pop_all()
        _open_lines.add(self)

    @property
    def number(self) -> int:
        """The number on our ticket, 0 without one."""
        return self._number

    @property
    def has_token(self) -> bool:
        return self._has_token

    @property
    def bell_fd(self) -> int:
        """Readable when somebody joined the line; -1 while we do not hold the token."""
        return self._bell_fd

    # ---- joining ----------------------------------------------------------------------------------------------------

    def door_try(self) -> bool:
        """Enter the door and share `want.lock`: both or neither. False: somebody is just in the way, try again soon.

        A holder that looks owns `want.lock` for an instant, so its refusal is as ordinary as a busy door.
        """
        self._check_arena()
        _require(not self._in_door and not self._name, "door_try in the door or in the line")
        if not try_exclusive(self._door_fd):
            return False
        try:
            self._shares_want = try_shared(self._want_fd)
        finally:
            self._in_door = self._shares_want
            if not self._in_door:
                unlock(self._door_fd)
        return self._in_door

    def ticket_make(self) -> None:
        """Sweep the dead and make the next ticket, not locked yet. OSError (full disk): no ticket; the door is still ours."""
        _require(self._in_door and not self._name, "ticket_make outside the door, or twice")
        number = tickets.sweep(self._line_fd) + 1
        name = tickets.name_of(number, self.label)
        try:
            self._ticket_fd = tickets.create(self._line_fd, name)
        except FileNotFoundError as error:
            raise self._gone() from error
        self._number, self._name = number, name

    def ticket_lock(self) -> None:
        """Bring the ticket to life: the only exclusive lock this inode ever sees. Before the door opens, or a sweeper takes it.

        ArenaError: a foreign probe spoiled it; then the ticket is gone and the door open, only the share of `want.lock` is left.
        """
        _require(self._in_door and self._ticket_fd >= 0, "ticket_lock without a ticket in the door")
        if not try_exclusive(self._ticket_fd):
            self.ticket_unlink()
            self.ticket_close()
            self.door_open()
            raise ArenaError(f"arena {self.arena}: another program locks tickets in line/; look at /proc/locks instead")

    def door_open(self) -> None:
        """Let the next one in."""
        unlock(self._door_fd)
        self._in_door = False

    def want_drop(self) -> None:
        """Stop being seen by the holder: we have the token, or gave up."""
        unlock(self._want_fd)
        self._shares_want = False

    def bell_ring(self) -> None:
        """Tell the holder, after our share of `want.lock` is there to be found.

        Only a hint, so nothing that goes wrong here is an error: nobody listens, the bell is full of rings, no descriptor is left.
        """
        with contextlib.suppress(OSError):
            fd = os.open("bell", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=self._arena_fd)
            try:
                os.write(fd, b"!")
            finally:
                os.close(fd)

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def ahead(self) -> int:
        """A descriptor that hangs up when the nearest live ticket ahead is gone, which the caller closes; -1: we are first.

        Ask again after it hung up: it may have died in the middle of the line.
        """
        _require(bool(self._name), "ahead without a ticket")
        return tickets.nearest_alive_below(self._line_fd, self._number)

    def token_try(self) -> bool:
        """Take the token, for the first in line, and listen to the bell. False: a stranger or a dying holder's last instants.

        Listening starts before anybody looks, so a ring that is not heard is found by the first look.
        """
        self._check_arena()
        _require(bool(self._name) and not self._has_token, "token_try without a ticket, or twice")
        if not try_exclusive(self._token_fd):
            return False
        try:
            self._bell_fd = os.open("bell", os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=self._arena_fd)
        except BaseException as error:
            unlock(self._token_fd)
            if isinstance(error, FileNotFoundError):
                raise self._gone() from error
            raise
        self._has_token = True
        with contextlib.suppress(OSError):
            os.utime(self._token_fd)  # For `status`: since when it is held.
        return True

    # ---- holding ----------------------------------------------------------------------------------------------------

    def wanted(self) -> bool:
        """Does anybody wait? Level state that the kernel owns: nothing to miss, nothing stale, the dead do not count.

        Also true when the arena was deleted: whoever made it again cannot see that we hold the device, so we must not.
        """
        if self._is_gone() or not try_exclusive(self._probe_fd):
            return True
        unlock(self._probe_fd)
        return False

    def bell_hear(self) -> None:
        """Empty the bell after it became readable; then ask `wanted`."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell_fd, 4096):
                pass

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def token_drop(self) -> None:
        """Stop listening and let the token go. Only after the device has finished freeing."""
        if self._bell_fd >= 0:
            fd, self._bell_fd = self._bell_fd, -1
            os.close(fd)
        unlock(self._token_fd)
        self._has_token = False

    @contextlib.contextmanager
    def token_borrowed(self) -> Iterator[bool]:
        """The token for an instant, past the line, for what takes no time: True inside unless somebody has it.  Nobody is overtaken for
        long: to the first in line it is a busy token, as with a holder that is dying."""
        _require(not self._has_token, "token_borrowed with the token")
        self._check_arena()
        has_it = try_exclusive(self._token_fd)
        try:
            yield has_it
        finally:
            if has_it:
                unlock(self._token_fd)

    def ticket_unlink(self) -> None:
        """Remove our name. Before the lock goes: afterwards the name may be a newcomer's."""
        if self._name:
            tickets.unlink(self._line_fd, self._name)
            self._name, self._number = "", 0

    def ticket_close(self) -> None:
        """Let the lock and the writing end go together: whoever watches us wakes up."""
        if self._ticket_fd >= 0:
            fd, self._ticket_fd = self._ticket_fd, -1
            os.close(fd)

    def leave(self) -> None:
        """Give everything back, from any state, in the right order; each step is done even if one before it fails."""
        with contextlib.ExitStack() as steps:
            # Run from the last to the first.
            steps.callback(self.door_open)
            steps.callback(self.want_drop)
            steps.callback(self.ticket_close)
            steps.callback(self.ticket_unlink)
            steps.callback(self.token_drop)

    def close(self) -> None:
        """Leave, and close every descriptor. A second call does nothing."""
        if self in _open_lines:
            _open_lines.discard(self)
            with self._files:
                self.leave()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_arena(self) -> None:
        if self._is_gone():
            raise self._gone()

    def _is_gone(self) -> bool:
        return os.fstat(self._token_fd).st_nlink == 0

    def _gone(self) -> ArenaGone:
        return ArenaGone(f"arena {self.arena}: was deleted while in use; stop all models that use it, then start them again")

    def _abandon(self) -> None:
        """In a forked child: close the copies. The locks are the parent's; unlocking here would take them from it."""
        for fd in (self._ticket_fd, self._bell_fd):
            if fd >= 0:
                os.close(fd)
        self._ticket_fd = self._bell_fd = -1
        self._files.close()


_open_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def _abandon_all() -> None:
    for line in list(_open_lines):
        line._abandon()
    _open_lines.clear()


# A forked child that kept the descriptors would keep our locks alive after our death. Programs that are started by exec are no
# danger: every descriptor is close-on-exec.
os.register_at_fork(after_in_child=_abandon_all)


def _closing(files: contextlib.ExitStack, fd: int) -> int:
    files.callback(os.close, fd)
    return fd


def _require(condition: bool, what: str) -> None:
    """A step in the wrong state is a mistake in the caller's program, and a silent one would cost order: say it."""
    if not condition:
        raise RuntimeError(f"line used out of order: {what}")
