"""Start the commands `pam` and `pam-asp`, and `python -m pamcli`.

Ctrl-C must be silent from the first moment, so only modules that Python has already loaded are imported
before its handler is set: `_signal` instead of `signal`, and not even `__future__`. The package, which is
imported first, sets it in its first lines where it sees that a program starts.
"""

import os
import sys

try:
    import _signal  # type: ignore[import-not-found]

    import pamcli  # which has set the handler already if it saw that the program starts

    # With nohup it is ignored.
    _USUAL = _signal.getsignal(_signal.SIGINT) in (_signal.default_int_handler, pamcli.end_silently)
    if _USUAL:
        _signal.signal(_signal.SIGINT, pamcli.end_silently)
except KeyboardInterrupt:
    os._exit(130)

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    _leave(_run())


def asp() -> "NoReturn":
    """Run the tile matcher for the Ames Stereo Pipeline."""
    _leave(_run(ames=True))


def _run(ames: bool = False) -> int:
    """Import a program, run it, and return its exit code; print one line if a package is missing."""
    import gc

    gc.set_threshold(5_000)  # libraries make 200,000 objects, which Python would search 500 times for cycles
    sys.unraisablehook = _handle_unraisable
    try:
        from pamcli.limits import ImportWatch

        sys.meta_path.insert(0, ImportWatch())
        if ames:
            from pamcli.cli.ames import main as program
        else:
            from pamcli.cli import main as program
    except MemoryError:  # importing more would fail
        sys.stderr.write("pam: error: not enough memory\n")
        return 5
    except ImportError as error:
        if os.environ.get("PAM_TRACEBACK"):
            raise
        from pamcli.errors import convert_system_error, describe_missing_package

        known = convert_system_error(error)
        sys.stderr.write(f"pam: error: {known or describe_missing_package(error)}\n")
        return known.exit_code if known else 1
    try:
        program()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _leave(code: int) -> "NoReturn":
    """End the process without finalising Python.

    A thread that waits for a pipe, or one of a library, may wake up while Python is finalised. If it then
    drops a tensor, PyTorch aborts the process although its results are complete.
    """
    import atexit

    if _USUAL:
        _signal.signal(_signal.SIGINT, pamcli.end_silently)
    atexit._run_exitfuncs()  # libraries end their processes and remove their temporary files
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - the program has reported its own errors
            code = code or 7
    os._exit(code)


def _handle_unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """End the program at Ctrl-C in places that cannot raise, such as the deletion of an object."""
    if isinstance(problem.exc_value, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(problem)


if __name__ == "__main__":
    main()
