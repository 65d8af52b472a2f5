"""What the options of a command ask for, as jobs: which pairs, and where their results go."""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pamcli.cli.console import Console, reading_stdin
from pamcli.cli.options import Pairs, Results, at_most_one
from pamcli.errors import PamError, UsageError
from pamcli.files.finding import video_error
from pamcli.files.outputs import (
    OutputKind,
    OutputPlan,
    SeenPaths,
    check_collisions,
    check_existing,
    plan_outputs,
)
from pamcli.files.pairing import (
    BadLine,
    Pairing,
    PairName,
    hold_both_views,
    iter_pair_list,
    open_pair_list,
    read_pair_list,
    require_all_paired,
    resolve_packed,
    resolve_pairs,
)
from pamcli.files.suffixes import VIDEO_SUFFIXES

Item = TypeVar("Item")
STDIN = Path("-")
STDIN_NAME = "standard input"


@dataclass(frozen=True, slots=True)
class Target:
    """Where one result of a pair goes."""

    name: str
    """What kind of result it is: "disparity", "right_disparity" ..."""
    suffix: str
    """Suffix of its format, in lower case with dot."""
    path: Path | None
    """None: its bytes go to stdout."""

    def __str__(self) -> str:
        return "standard output" if self.path is None else str(self.path)


@dataclass(frozen=True, slots=True)
class Job:
    """A pair with the places of its results; or what is wrong with a line of a streamed list."""

    pair: PairName | None
    targets: Sequence[Target] = ()
    skip: bool = False
    error: PamError | None = None
    line: int | None = None
    """Line of the list that the pair comes from."""

    @property
    def names(self) -> list[str]:
        """The pictures, as messages name them."""
        pictures = (self.pair.left, self.pair.right) if self.pair else ()
        return [STDIN_NAME if path == STDIN else str(path) for path in pictures if path is not None]

    @property
    def outputs(self) -> dict[str, Path]:
        """The files of the results."""
        return {target.name: target.path for target in self.targets if target.path is not None}


@dataclass(frozen=True)
class Plan:
    """The jobs of a command, made anew each time that they are asked for: there may be a million."""

    selection: Pairs
    results: Results
    names: OutputPlan
    pairing: Pairing | None
    """None: a list that is worked off as it is read."""
    stdout: Sequence[Target]
    read: Sequence[str]
    """Files besides the pictures that no result may overwrite."""

    @property
    def batch(self) -> bool:
        """Whether a pair that fails fails alone."""
        return self.pairing is None or self.pairing.batch

    def share(self, items: Iterable[Item]) -> Iterator[Item]:
        """Pick this part of the batch from the items of all pairs."""
        part = self.selection.shard or slice(None)
        return itertools.islice(items, part.start, None, part.step)

    @property
    def total(self) -> int | None:
        """Number of jobs, unknown while a list is still arriving."""
        if self.pairing is None:
            return None
        return len(range(len(self.pairing.pairs))[self.selection.shard or slice(None)])

    @property
    def outputs(self) -> Iterator[Path]:
        """All results that are known before the work."""
        for job in self.jobs if self.pairing else ():
            yield from job.outputs.values()

    @property
    def jobs(self) -> Iterator[Job]:
        """What there is to do."""
        if self.pairing is None:
            return self.share(self._streamed())
        return map(self._job, self.share(self.pairing.pairs))

    @property
    def all_jobs(self) -> Iterator[Job]:
        """The jobs of the whole batch, whichever part is to be done; none while a list is still arriving."""
        return map(self._job, self.pairing.pairs if self.pairing else ())

    def _streamed(self) -> Iterator[Job]:
        """Jobs of a list that arrives line by line."""
        given, seen = self.selection, SeenPaths(read=self.read)
        assert given.pairs is not None
        with reading_stdin() if given.pairs == "-" else open_pair_list(Path(given.pairs)) as lines:
            for item in iter_pair_list(lines, given.null, given.root):
                yield self._job(item, seen)

    def _job(self, item: PairName | BadLine, seen: SeenPaths | None = None) -> Job:
        """Make the job of a pair; whatever is wrong with the pair fails it alone."""
        if isinstance(item, BadLine):
            return Job(None, error=item.error, line=item.line)
        skip = self.results.skip_existing
        try:
            outputs = self.names.paths(item)
            if seen is not None:
                seen.add(item, outputs)
            check_existing([outputs], overwrite=self.results.overwrite, skip_existing=skip)
        except PamError as error:
            return Job(item, error=error, line=item.line)
        skip = skip and bool(outputs) and all(map(os.path.exists, outputs.values()))
        files = [Target(name, path.suffix.lower(), path) for name, path in outputs.items()]
        return Job(item, [*files, *self.stdout], skip, line=item.line)


def plan_jobs(
    selection: Pairs,
    results: Results,
    options: Mapping[OutputKind, str | None],
    format_name: str | None,
    console: Console,
    *,
    found: Pairing | None = None,
    stream: bool = False,
    read: Iterable[str | None] = (),
) -> Plan:
    """Find the pairs and plan their results, before any work. Raises UsageError and InputError.

    stream: a list in a file is worked off as it is read, too, as one that arrives on stdin.
    found: the inputs, where they are no pairs of pictures.
    read: other files that no result may overwrite.
    """
    if selection.layout is None and selection.pairs is None and hold_both_views(selection.inputs or ()):
        selection = replace(selection, packed="auto")
    stream = stream or selection.pairs == "-"
    pairing = found or _find_pairs(selection, stream)
    batch = pairing is None or pairing.batch
    if not any(options.values()) and selection.pairs is None:
        kind = next(iter(options))
        raise UsageError("no result is asked for", f"say where to, as in -o {kind.name}{kind.suffixes[0]}")
    in_files = {kind: None if text == "-" else text for kind, text in options.items()}
    names = plan_outputs(in_files, batch=batch, format_name=format_name)
    stdout = _stdout_targets(options, format_name, batch, console)
    others = [name for name in (*read, selection.pairs) if name is not None]
    plan = Plan(selection, results, names, pairing, stdout, others)
    if pairing is None:
        return plan
    if selection.skip_unpaired:
        for path in pairing.unpaired:
            console.warn(f"{path} has no partner and is left out")
    else:
        require_all_paired(pairing)
    outputs = names.all_paths(pairing.pairs)
    check_collisions(pairing.pairs, outputs, others)
    check_existing(plan.share(outputs), overwrite=results.overwrite, skip_existing=results.skip_existing)
    return plan


def _find_pairs(selection: Pairs, stream: bool) -> Pairing | None:
    """The pairs; None: they are streamed."""
    inputs = selection.inputs or []
    if "" in inputs or selection.pairs == "":
        raise UsageError("the name of a picture or list is empty", "an unset variable of the shell, perhaps?")
    if selection.null and selection.pairs is None:
        raise UsageError("--null is about the list of --pairs, and there is none")
    if selection.pairs is not None:
        given = f"the argument {inputs[0]}" if inputs else "--packed"
        at_most_one({"--pairs": True, given: inputs or selection.layout})
        if stream:
            return None
        return Pairing(read_pair_list(Path(selection.pairs), selection.null, selection.root))
    if selection.layout is not None:
        if "-" in inputs:
            if len(inputs) > 1:
                raise UsageError("- stands for one picture on stdin", "give it alone")
            return Pairing((PairName(STDIN, None, "stdin"),), batch=False)
        return resolve_packed(inputs, by_suffix=selection.packed == "auto", root=selection.root)
    if selection.root is not None:
        raise UsageError(
            "--root is about the list of --pairs and pictures that hold both views", "leave it out"
        )
    if "-" in inputs:
        raise UsageError("stdin gives one picture that holds both views", "add --packed lr, rl, tb or bt")
    for name in inputs:
        if Path(name).suffix.lower() in VIDEO_SUFFIXES and os.path.isfile(name):
            raise video_error(name)
    if len(inputs) != 2:
        raise UsageError(
            f"a left and a right picture are wanted, {len(inputs)} given",
            "two folders or two quoted templates make a batch; --packed takes pictures that hold both views",
        )
    return resolve_pairs(*inputs)


def _stdout_targets(
    options: Mapping[OutputKind, str | None], format_name: str | None, batch: bool, console: Console
) -> list[Target]:
    """The result that is asked for as `-`, if there is one."""
    kinds = [kind for kind, text in options.items() if text == "-"]
    if not kinds:
        return []
    option = "-o -" if kinds[0].option == "--output" else f"{kinds[0].option} -"
    if len(kinds) > 1:
        raise UsageError(f"{option} and {kinds[1].option} - would both go to stdout", "give one of them")
    if batch:
        raise UsageError(f"{option} takes one pair, not a batch", "name a folder or a template with {}")
    if console.jsonl:
        raise UsageError(f"{option} and --jsonl would both go to stdout", "drop one of them")
    if sys.stdout.isatty():
        raise UsageError(f"{option} would write binary data to the terminal", "pipe it, or name a file")
    main = next(iter(options))
    suffix = f".{format_name}" if format_name and kinds[0].suffixes == main.suffixes else kinds[0].suffixes[0]
    return [Target(kinds[0].name, suffix, None)]
