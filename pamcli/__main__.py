"""python -m pamcli, and the command `pam`."""

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C while its modules are still read, or left, is as silent as in between."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else ignored, as under nohup
    try:
        if usual:
            signal.signal(signal.SIGINT, _end)
        from pamcli.cli import main as command_line

        command_line()
    finally:
        if usual:
            signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: object) -> NoReturn:
    os._exit(130)


if __name__ == "__main__":
    main()
