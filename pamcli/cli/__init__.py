"""The `pam` command: the only floor that parses options, prints, or exits."""

from __future__ import annotations

import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, NoReturn

import typer

from pamcli import __version__
from pamcli.cli import dataset, disparity, eval_disparity, eval_superres, superres, weights
from pamcli.cli.console import complain, guard_streams
from pamcli.errors import PamError

app = typer.Typer(
    name="pam",
    help="Stereo images: where each pixel of the left picture sits in the right one, and larger pictures "
    "with detail borrowed from each other.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it comes at once, and a pipe gets no decoration
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("disparity")(disparity.command)
app.command("superres")(superres.command)
measure = typer.Typer(help="Measure on data sets with ground truth.", no_args_is_help=True)
measure.command("disparity")(eval_disparity.command)
measure.command("superres")(eval_superres.command)
app.add_typer(measure, name="eval")
app.add_typer(weights.app, name="weights")
app.add_typer(dataset.app, name="dataset")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pam {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line and exit with the code of `pamcli.errors`.

    PAM_TRACEBACK=1 in the environment shows where an unexpected error came from.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn their developers, not the users of pam
    signal.signal(signal.SIGTERM, _terminate)
    guard_streams()
    try:
        app()
    except PamError as error:
        complain(str(error), error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # noqa: BLE001 - the one place where an unexpected error becomes a line
        complain(f"unexpected {type(error).__name__}: {error} (PAM_TRACEBACK=1 shows where)", error)
        code = 1
    sys.exit(code)


def _terminate(signal_number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signal_number)
