"""Print the guide's page of options, which is derived from the settings classes.

python scripts/option_tables.py >pamcli/guide/options.md
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from inspect import get_annotations
from typing import Any

import pamcli
from pamcli.cli.groups import PANELS
from pamcli.settings.evaluation import LabelSettings, SubmitSettings
from pamcli.settings.options import option_names

COMMANDS: dict[str, type[Any]] = {
    "disparity": pamcli.MatchSettings,
    "superres": pamcli.UpscaleSettings,
    "rectify": pamcli.RectifySettings,
    "depth": pamcli.DepthSettings,
    "eval disparity": pamcli.EvaluateDisparitySettings,
    "eval superres": pamcli.EvaluateSuperresSettings,
    "submit": SubmitSettings,
    "dataset label": LabelSettings,
    "train disparity": pamcli.TrainDisparitySettings,
    "train superres": pamcli.TrainSuperresSettings,
    "dataset prepare-flickr1024": pamcli.PrepareSettings,
}
TITLE = """# Options and settings

Every option of a command is a field of its settings class, and a keyword of its Python function:
`--skip-existing` is `skip_existing`. Each stands once, with the commands that have it.

```sh
pam disparity --help
```
"""


def page() -> str:
    """Return the page in Markdown: a table for each heading of `--help`."""
    rows: dict[tuple[str, str], list[str]] = {}
    for command, settings in COMMANDS.items():
        for each in fields(settings):
            owner: Any = next(base for base in settings.__mro__ if each.name in get_annotations(base))
            if names := option_names(each.name, each):
                panel = each.metadata.get("rich_help_panel", owner.panel)
                rows.setdefault((panel, row(max(names, key=len), each)), []).append(command)
    parts = [TITLE]
    for panel in PANELS:
        of_panel = {start: commands for (of, start), commands in rows.items() if of == panel}
        if found := [f"{start} {', '.join(commands)} |" for start, commands in of_panel.items()]:
            parts += [f"\n## {panel}\n", "| option | default | | commands |", "| --- | --- | --- | --- |"]
            parts += found
    return "\n".join(parts) + "\n"


def row(name: str, each: Field[Any]) -> str:
    """Return the row of an option, without its commands."""
    default = "required" if each.default is MISSING else "" if each.default in (None, False) else each.default
    text = str(each.metadata["help"]).replace("|", "\\|").replace("<", "&lt;")
    return f"| `{name}` | {default} | {text} |"


if __name__ == "__main__":
    print(page(), end="")
