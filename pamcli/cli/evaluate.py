"""pam eval: how far disparities are from the truth, and what enlarged pictures are worth beside bicubic."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from pamcli.cli.completing import one_or_all
from pamcli.cli.console import JSONL, Console, Messages
from pamcli.settings.evaluation import EvaluateDisparitySettings, EvaluateSuperresSettings
from pamcli.settings.options import flag

if TYPE_CHECKING:
    from pamcli.evaluation.results import Evaluation

AS_JSON = flag("Print one JSON object instead of tables.", "--json", rich_help_panel="Output")


def disparity(settings: EvaluateDisparitySettings, messages: Messages, as_json: bool = AS_JSON) -> None:
    """Measure disparity on data sets with ground truth: of a network, or of files by any program.

    Figures are given pooled over all pixels of a set (the headline) and as means of the pictures.

    $ pam eval disparity --data kitti2015:kitti --method ours=pasmnet2 --method opencv --report both.html
    $ pam eval disparity --data kitti2015:kitti --predictions made/ --protocol kitti --protocol raft-stereo
    """
    from pamcli.evaluation.measure import measure_disparity

    console = messages.console(jsonl=as_json)
    _show(measure_disparity(settings, console), settings, console)


def superres(settings: EvaluateSuperresSettings, messages: Messages, as_json: bool = AS_JSON) -> None:
    """Measure super-resolution on data sets: of a network, or of pictures by any program.

    Pictures are cut to a multiple of the scale, reduced by MATLAB's bicubic, rounded to 8 bits, enlarged, and
    compared in 8 bits; bicubic's figures always stand beside. Degraded ones are also denoised by OpenCV and
    enlarged by bicubic.

    $ pam eval superres --scale 4 --data 'kitti2012/testing:kitti2012?first=20' --save larger/ --compare
    $ pam eval superres --scale 4 --data kitti2012/testing:kitti2012 --degrade jpeg=75,noise=3 --baseline-only
    """
    from pamcli.evaluation.measure import measure_superres

    console = messages.console(jsonl=as_json)
    _show(measure_superres(settings, console), settings, console)


def _show(found: Evaluation, settings: Any, console: Console) -> None:
    """Write the files that were asked for, then print the tables, or everything as JSON."""
    from pamcli.evaluation.measure import write_files

    try:
        write_files(found, settings)
    finally:  # what was measured for hours is printed, whatever became of the files
        # On stdout, too: a table that was kept without them cannot be compared with anything.
        lines = [f"{name}: {value}" for name, value in found.facts]
        lines += [f"note: {note}" for note in found.notes]
        tables = found.text(shutil.get_terminal_size().columns).split("\n")
        console.answer(found.json(), *tables, "", *lines)


def protocols(name: str | None = one_or_all("the rules", "protocols"), jsonl: bool = JSONL) -> None:
    """Show what papers and benchmarks mean by their figures of disparity: rules by name, for --protocol.

    With a name: which figures are stated under these rules, on what data sets they differ, and the source.

    $ pam eval protocols
    $ pam eval protocols raft-stereo
    """
    from pamcli.evaluation.protocols import PROTOCOLS, check_protocol

    console = Console(jsonl=jsonl)
    if name is not None:
        check_protocol(name)
    for each in [name] if name else PROTOCOLS:
        row = PROTOCOLS[each]
        told = {", ".join(data) or "any data": rules.figures() for data, rules in row.told()}
        entry = {"name": each, "about": row.about, "source": row.source, "figures": told}
        if name is None:
            console.answer(entry, f"{each:18} {row.about}")
        else:
            lines = [
                line for data, each in told.items() for line in (f"{data}:", *(f"  {one}" for one in each))
            ]
            console.answer(entry, row.about, f"source: {row.source}", "", *lines)
