"""`lsm pull`: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

from lsm_cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_for_each_tenth_where_nobody_looks() -> None:
    """Command line: a log gets few lines, each whole, in order."""
    out = io.StringIO()
    progress = Progress("m", 100_000_000, out)
    for done in (1, 9_000_000, 10_000_000, 11_000_000, 55_000_000, 200_000_000):
        progress.show(done)
    progress.close()
    assert out.getvalue().splitlines() == [
        "m: 10.0 MB of 100.0 MB (10 %)",
        "m: 55.0 MB of 100.0 MB (50 %)",
        "m: 100.0 MB of 100.0 MB (100 %)",
    ]


def test_one_moving_line_on_a_terminal() -> None:
    """Command line: bytes, total and rate."""
    clock = iter((0.0, 2.0)).__next__
    out = Terminal()
    progress = Progress("m", 100_000_000, out, now=clock)
    progress.show(50_000_000)
    progress.close()
    assert out.getvalue() == f"\r\x1b[Km [{'#' * 14}{'.' * 14}] 50.0 MB of 100.0 MB, 25.0 MB/s\n"
