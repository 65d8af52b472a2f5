"""pam submit: the archive that a benchmark's server takes."""

from __future__ import annotations

from pathlib import Path

from pamcli.cli import options
from pamcli.cli.evaluate import Disparities, Exact
from pamcli.cli.groups import option
from pamcli.cli.network import Matching
from pamcli.errors import UsageError
from pamcli.files.outputs import check_new_file
from pamcli.registry.catalog import keep_networks


class Submitted(Disparities):
    """Results to submit."""

    prediction_seconds: float | None = option(
        "State these seconds for each pair, which the program took; for Middlebury and ETH3D.",
        metavar="S",
    )


class Archive(options.NewFile):
    """Where the archive goes."""

    output: Path = option("The archive to write.", "-o", default=..., metavar="FILE.zip")


def command(
    given: Submitted, to: Archive, network: Matching, compute: Exact, messages: options.Messages
) -> None:
    """Write the archive for KITTI 2012 or 2015, Middlebury or ETH3D, of a network's results or of files.

    It is read back and verified; an incomplete one is refused before the network runs.

    $ pam submit --data middlebury:MiddEval3 -o middlebury.zip
    $ pam submit --data middlebury:MiddEval3 --weights pasmnet -o pasmnet.zip
    """
    console = messages.console()
    given.check(network)
    check_new_file(to.output, ".zip", overwrite=to.overwrite)
    keep_networks([to.output], network.weights)
    sets = given.opened(console)
    from pamcli.evaluation.submissions import plan_submission, submit

    rules, seconds = plan_submission(sets), given.prediction_seconds
    if given.predictions is not None and bool(rules.seconds) != (seconds is not None):
        if seconds is not None:
            raise UsageError("--prediction-seconds is about Middlebury's or ETH3D's archive")
        said = f"a submission to {rules.kind} states the runtime, which files do not tell"
        raise UsageError(said, "--prediction-seconds S says it")
    method = given.method_alone(network, compute, console, seconds=seconds)
    with console.progress("pairs", sum(map(len, sets))) as bar:
        written = submit(to.output, rules, sets, method, bar.advance, bar.watch)
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.pictures} pictures, {written.files} files, verified")
    console.path(to.output)
