"""python -m pamcli, and the command `pam`."""

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C while its modules are still read ends it as silently as later."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else ignored, as under nohup
    if usual:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from pamcli.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
