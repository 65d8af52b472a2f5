"""Which options are about what a command prints?"""

from pamcli.cli.console import Console, listen
from pamcli.settings.options import Settings, flag

JSON = flag("Print one JSON object instead of text.", rich_help_panel="Output")
"""What commands with one answer take; those whose answer is a list take JSONL:"""
JSONL = flag("Print JSON instead of text, one object a line.", rich_help_panel="Output")


class Quiet(Settings, panel="Messages"):
    """How much is said, for commands without details."""

    quiet: bool = flag("Show no progress, only warnings and errors.", "-q")

    def console(self, *, jsonl: bool = False) -> Console:
        """Return the console that talks so, for the library, too. jsonl: results are to be JSON."""
        return listen(Console(quiet=self.quiet, verbose=getattr(self, "verbose", False), jsonl=jsonl))


class Messages(Quiet):
    """How much is said."""

    verbose: bool = flag("Say what is used and done.", "-v")
