"""Start the commands `pam` and `pam-asp`, and `python -m pamcli`.

Ctrl-C must be silent from the first moment, so only modules that Python has already loaded are imported
before its handler is set: `_signal` instead of `signal`, and not even `__future__`.
"""

import os
import sys

try:
    import _signal  # type: ignore[import-not-found]

    def _end(number: int, frame: object) -> "NoReturn":
        os._exit(130)

    _USUAL = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler  # else ignored, as under nohup
    if _USUAL:
        _signal.signal(_signal.SIGINT, _end)
except KeyboardInterrupt:
    os._exit(130)

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    _run()


def asp() -> "NoReturn":
    """Run the tile matcher for the Ames Stereo Pipeline."""
    _run(ames=True)


def _run(ames: bool = False) -> "NoReturn":
    """Import a program and run it; print one line if a package is missing."""
    import gc

    gc.set_threshold(5_000)  # libraries make 200,000 objects, which Python would search 500 times for cycles
    sys.unraisablehook = _handle_unraisable
    try:
        try:
            from pamcli.limits import ImportWatch

            sys.meta_path.insert(0, ImportWatch())
            if ames:
                from pamcli.cli.ames import main as program
            else:
                from pamcli.cli import main as program
        except MemoryError:  # importing more would fail
            sys.stderr.write("pam: error: not enough memory\n")
            sys.exit(5)
        except ImportError as error:
            if os.environ.get("PAM_TRACEBACK"):
                raise
            from pamcli.errors import convert_system_error, describe_missing_package

            known = convert_system_error(error)
            sys.stderr.write(f"pam: error: {known or describe_missing_package(error)}\n")
            sys.exit(known.exit_code if known else 1)
        program()
    finally:
        gc.freeze()  # otherwise Python would search them again at its end, for half a second
        if _USUAL:
            _signal.signal(_signal.SIGINT, _end)


def _handle_unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """End the program at Ctrl-C in places that cannot raise, such as the deletion of an object."""
    if isinstance(problem.exc_value, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(problem)


if __name__ == "__main__":
    main()
