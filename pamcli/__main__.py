"""python -m pamcli, and the commands `pam` and `pam-asp`.

Nothing is imported here but what the handler of Ctrl-C takes: before it listens, Python answers with a
traceback.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C while its modules are still read, or left, is as silent as in between."""

    def pam() -> Callable[[], NoReturn]:
        from pamcli.cli import main

        return main

    _run(pam)


def asp() -> NoReturn:
    """Run the matcher of tiles of the Ames Stereo Pipeline."""

    def matcher() -> Callable[[], NoReturn]:
        from pamcli.cli.ames import main

        return main

    _run(matcher)


def _run(imported: Callable[[], Callable[[], NoReturn]]) -> NoReturn:
    """Import a program and run it; where a package is missing that it takes, that is one line."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # Threads of torch wait for each other briefly, then sleep: else they use up the time of those that
        # wait for a core that another program has.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else ignored, as under nohup
    sys.unraisablehook = _unraisable
    try:
        if usual:
            signal.signal(signal.SIGINT, _end)
        try:
            program = imported()
        except ImportError as error:
            if os.environ.get("PAM_TRACEBACK"):
                raise
            from pamcli.errors import missing_package

            sys.exit(f"pam: error: {missing_package(error)}")
        program()
    finally:
        if usual:
            signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: object) -> NoReturn:
    os._exit(130)


def _unraisable(problem: sys.UnraisableHookArgs) -> None:
    """Ctrl-C in a place that can raise nothing, as when an object is deleted, ends the program."""
    if isinstance(problem.exc_value, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(problem)


if __name__ == "__main__":
    main()
