"""Write the guide's pages of options, which are derived from the settings classes.

python scripts/option_tables.py
"""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pamcli
from pamcli.cli.groups import PANELS
from pamcli.settings.batches import ViewSettings
from pamcli.settings.data import LabelSettings
from pamcli.settings.evaluation import SubmitSettings
from pamcli.settings.options import Option, list_options

GUIDE = Path(__file__).parents[1] / "pamcli" / "guide"
PAGES: dict[str, tuple[str, dict[str, type[Any]]]] = {
    "options.md": (
        """# Options for processing images

Look up the options of `pam disparity`, `superres`, `rectify`, `depth` and `view`. Each option is also a
field of the settings class and a keyword of the Python function: `--skip-existing` is `skip_existing`.

```sh
pam disparity --help
```

See also: [options for evaluation and training](options-training.md).
""",
        {
            "disparity": pamcli.MatchSettings,
            "superres": pamcli.UpscaleSettings,
            "rectify": pamcli.RectifySettings,
            "depth": pamcli.DepthSettings,
            "view": ViewSettings,
        },
    ),
    "options-live.md": (
        """# Options for live cameras

Look up the options of `pam live`. Each option is also a field of `LiveSettings` and a keyword of
`pamcli.live`: `--camera-size` is `camera_size`.

```sh
pam live --help
```

See also: [live](live.md), [options for processing images](options.md).
""",
        {"live": pamcli.LiveSettings},
    ),
    "options-training.md": (
        """# Options for evaluation, training and data sets

Look up the options of `pam eval`, `submit`, `train` and `dataset`. Each option is also a field of the
settings class and a keyword of the Python function: `--max-gt` is `max_gt`.

```sh
pam train disparity --help
```

See also: [options for processing images](options.md), [recipes](recipes.md) for `--set`.
""",
        {
            "eval disparity": pamcli.EvaluateDisparitySettings,
            "eval superres": pamcli.EvaluateSuperresSettings,
            "submit": SubmitSettings,
            "dataset label": LabelSettings,
            "train disparity": pamcli.TrainDisparitySettings,
            "train superres": pamcli.TrainSuperresSettings,
            "dataset prepare-flickr1024": pamcli.PrepareSettings,
        },
    ),
}
"""Name, introduction, and settings class by command, of each page."""


def page(name: str) -> str:
    """Return a page in Markdown: a table for each heading of `--help`."""
    title, commands_of = PAGES[name]
    rows: dict[tuple[str, str], list[str]] = {}
    for command, settings in commands_of.items():
        for each in list_options(settings).values():
            if each.names:
                rows.setdefault((each.panel, row(each)), []).append(command)
    parts = [title.rstrip("\n")]
    for panel in PANELS:
        of_panel = {start: commands for (of, start), commands in rows.items() if of == panel}
        if found := [f"{start} {', '.join(commands)} |" for start, commands in of_panel.items()]:
            parts += [
                f"\n## {panel}\n",
                "| option | default | meaning | commands |",
                "| --- | --- | --- | --- |",
            ]
            parts += found
    return "\n".join(parts) + "\n"


def row(each: Option) -> str:
    """Return the row of an option, without its commands."""
    default = each.metadata.get("show_default") or each.default
    default = "required" if default is MISSING else "" if default in (None, False) else default
    text = str(each.metadata["help"]).replace("|", "\\|").replace("<", "&lt;")
    return f"| `{max(each.names, key=len)}` | {default} | {text} |"


if __name__ == "__main__":
    for name in PAGES:
        (GUIDE / name).write_text(page(name), encoding="utf-8")
