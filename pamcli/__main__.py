"""python -m pamcli, and the commands `pam` and `pam-asp`.

From here on Ctrl-C is silent. So nothing is imported before it is but what Python holds already: not even
`__future__`, and `_signal` in place of `signal`.
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
    """Run the command line; Ctrl-C while its modules are still read, or left, is as silent as in between."""
    _run()


def asp() -> "NoReturn":
    """Run the matcher of tiles of the Ames Stereo Pipeline."""
    _run(ames=True)


def _run(ames: bool = False) -> "NoReturn":
    """Import a program and run it; where a package is missing that it takes, that is one line."""
    sys.unraisablehook = _unraisable
    try:
        try:
            from pamcli.limits import Watch

            sys.meta_path.insert(0, Watch())
            if ames:
                from pamcli.cli.ames import main as program
            else:
                from pamcli.cli import main as program
        except MemoryError:  # of which nothing more can be imported
            sys.stderr.write("pam: error: not enough memory\n")
            sys.exit(5)
        except ImportError as error:
            if os.environ.get("PAM_TRACEBACK"):
                raise
            from pamcli.errors import convert_system_error, missing_package

            refused = convert_system_error(error)
            sys.stderr.write(f"pam: error: {refused or missing_package(error)}\n")
            sys.exit(refused.exit_code if refused else 1)
        program()
    finally:
        if _USUAL:
            _signal.signal(_signal.SIGINT, _end)


def _unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """Ctrl-C in a place that can raise nothing, as when an object is deleted, ends the program."""
    if isinstance(problem.exc_value, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(problem)


if __name__ == "__main__":
    main()
