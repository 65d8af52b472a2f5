"""What is asked for, as jobs: which pairs, and where their results go."""

import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Self, TypedDict, TypeVar

from pamcli.batch import LOG
from pamcli.batch.frames import are_videos, pair_frames
from pamcli.batch.job import Job
from pamcli.batch.video_results import STORED, frames_folder, video_places
from pamcli.errors import PamError, UsageError
from pamcli.files.finding import counted, listed, shown
from pamcli.files.outputs import (
    OutputKind,
    OutputPlan,
    SeenPaths,
    check_beside,
    check_collisions,
    check_existing,
    plan_outputs,
)
from pamcli.files.pairing import (
    STDIN,
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
from pamcli.files.suffixes import PackedLayout

Item = TypeVar("Item")
Place = str | Path
"""A file, a folder, a template with `{}`, or `-`: the bytes of the one result come back in the outcome."""
MAX_PIXELS = 400_000_000


class BatchOptions(TypedDict, total=False):
    """What every function that works off files can be told, under the names of the command line's options."""

    pairs: Place | None
    """A list of pairs, left<TAB>right[<TAB>output] a line, in place of inputs; `-`: from stdin."""
    null: bool
    """The list is NUL-separated: left NUL right NUL."""
    packed: PackedLayout | None
    """The inputs are pictures that hold both views, in this layout."""
    root: Place | None
    """Results of a list mirror the left pictures' paths below this folder; None: the current one."""
    start: int
    """Number of the first left frame of a video that is taken, from 0."""
    every: int
    """Step from a frame that is taken to the next one."""
    count: int | None
    """How many frames are taken at most; None: to the end."""
    offset: int | Literal["auto"]
    """The right video shows this many frames later what the left one shows; auto: measured by its motion."""
    shard: tuple[int, int] | None
    """(I, N): every N-th pair alone, from the I-th on, counted from 1."""
    skip_unpaired: bool
    """Go on without pictures that have no partner."""
    max_pixels: int | None
    """Refuse pictures with more pixels, before decoding them; None: no limit."""
    skip_existing: bool
    """Leave out pairs whose results all exist."""
    overwrite: bool
    """Replace results that exist."""
    engine: Literal["local", "ray"]
    """ray: spread the batch over a cluster."""
    ray_address: str
    """Address of the cluster; auto: the one that this machine belongs to; local: this machine alone."""
    ray_cores: int | None
    """Cores for each of Ray's workers without a GPU."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which pairs are to be worked off, and how. Its fields are those of `BatchOptions`."""

    inputs: Sequence[Place] = ()
    pairs: Place | None = None
    null: bool = False
    packed: PackedLayout | None = None
    root: Place | None = None
    start: int = 0
    every: int = 1
    count: int | None = None
    offset: int | Literal["auto"] = 0
    shard: tuple[int, int] | None = None
    skip_unpaired: bool = False
    max_pixels: int | None = MAX_PIXELS
    skip_existing: bool = False
    overwrite: bool = False
    engine: Literal["local", "ray"] = "local"
    ray_address: str = "auto"
    ray_cores: int | None = None

    def __post_init__(self) -> None:
        if self.overwrite and self.skip_existing:
            raise UsageError("`overwrite` and `skip_existing` contradict each other", "give one of them")
        if self.root is not None and not Path(self.root).is_dir():
            raise UsageError(f"`root` {shown(self.root)} is no folder")
        if self.shard is not None and not 1 <= self.shard[0] <= self.shard[1]:
            raise UsageError(f"`shard` {self.shard} is none", "(I, N) with I from 1 to N")
        if self.start < 0 or self.every < 1 or (self.count is not None and self.count < 1):
            raise UsageError("`start` is 0 or more, `every` and `count` are 1 or more")
        if not self.remote and (self.ray_cores, self.ray_address) != (None, "auto"):
            raise UsageError("`ray_address` and `ray_cores` are about `engine` ray", "add that, or drop them")

    @property
    def remote(self) -> bool:
        """Other machines do the work."""
        return self.engine == "ray"

    @property
    def about_videos(self) -> list[str]:
        """Names of the options for videos that are given."""
        usual = {"start": 0, "every": 1, "count": None, "offset": 0}
        return [name for name, value in usual.items() if getattr(self, name) != value]

    @property
    def part(self) -> slice:
        """The shard's pairs among all."""
        return slice(None) if self.shard is None else slice(self.shard[0] - 1, None, self.shard[1])


@dataclass
class Plan:
    """The jobs of a batch, made anew each time that they are asked for: there may be a million."""

    request: Request
    names: OutputPlan
    pairing: Pairing | None
    """None: a list that is worked off as it is read."""
    returned: Mapping[str, Path]
    """The result that is handed back, and a name with the suffix of its format; or none."""
    read: Sequence[Place]
    """Files besides the pictures that no result may overwrite."""
    videos: Mapping[str, Path] = field(default_factory=dict)
    """The results that are videos, by the names of their kinds."""

    @classmethod
    def asked(
        cls,
        request: Request,
        results: Mapping[OutputKind, Place | None],
        format_name: str | None = None,
        *,
        found: Callable[[], Pairing] | None = None,
        read: Iterable[Place | None] = (),
        tag: str = "",
    ) -> Self:
        """Find the pairs and plan their results, before any work. Raises UsageError and InputError.

        results: what is asked for, the main result first. found: finds the inputs, where they are no pairs of
        pictures. read: other files that no result may overwrite. tag: what a suggested name ends with.
        """
        inputs = [*map(str, request.inputs)]
        if request.packed is None and request.pairs is None and hold_both_views(inputs):
            request = replace(request, packed="auto")
        # Who spreads a list over machines does not wait until it is read, either.
        stream = request.remote or str(request.pairs) == str(STDIN)
        options = {kind: None if place is None else str(place) for kind, place in results.items()}
        named = request.pairs is not None or any(options.values())
        main = next(iter(options))
        alone = found is not None or request.packed is not None
        if not named and len(inputs) > (1 if alone else 2) and not os.path.exists(inputs[-1]):
            hint = f"if it names the result: {main.option} {shlex.quote(inputs[-1])}"
            raise UsageError(f"no such file: {shown(inputs[-1])}, and no result is asked for", hint)
        pairing = found() if found else _find_pairs(request, inputs, stream)
        many = pairing is None or pairing.batch
        if not named:
            key = "results/" if pairing is None or many else next(iter(pairing.pairs)).key or main.name
            example = key if many else f"{Path(key).name}{tag}{main.suffixes[0]}"
            raise UsageError("no result is asked for", f"say where to: {main.option} {shlex.quote(example)}")
        videos = video_places(options, pairing, format_name)
        in_files = {kind: None if text == "-" else text for kind, text in options.items()}
        for kind in in_files:
            if kind.name in videos:
                in_files[kind] = f"{frames_folder(videos[kind.name])}/{{}}{STORED}"
        names = plan_outputs(in_files, batch=many, format_name=format_name)
        others = [name for name in (*read, request.pairs) if name is not None]
        plan = cls(request, names, pairing, _returned(options, format_name, many), others, videos)
        if pairing is None:
            return plan
        if request.skip_unpaired:
            for path in pairing.unpaired:
                LOG.warning("%s has no partner and is left out", path)
        else:
            require_all_paired(pairing)
        names.check(pairing.pairs)
        check_collisions(pairing.pairs, map(names.paths, pairing.pairs), others)
        first = next(iter(pairing.pairs))
        for video in videos.values():
            check_beside(video, [first.left, first.right or first.left, *others])
        files = itertools.chain([videos], map(names.paths, plan.share(pairing.pairs)))
        check_existing(files, overwrite=request.overwrite, skip_existing=request.skip_existing)
        return plan

    @property
    def many(self) -> bool:
        """Whether a pair that fails fails alone."""
        return self.pairing is None or self.pairing.batch

    def share(self, items: Iterable[Item]) -> Iterator[Item]:
        """Pick this part of the batch from the items of all pairs."""
        part = self.request.part
        return itertools.islice(items, part.start, None, part.step)

    @property
    def total(self) -> int | None:
        """Number of jobs, unknown while a list is still arriving."""
        if self.pairing is None:
            return None
        return len(range(len(self.pairing.pairs))[self.request.part])

    @cached_property
    def whole_videos(self) -> frozenset[str]:
        """The videos that stay as they are: they exist, and no frames wait to replace them."""
        if not self.request.skip_existing:
            return frozenset()
        there = {name for name, video in self.videos.items() if video.exists()}
        waiting = {name for name in there if frames_folder(self.videos[name]).exists()}
        if waiting:  # perhaps a folder alone, which something else lies in
            places = [self.names.paths(pair) for pair in self.pairing.pairs] if self.pairing else []
            waiting = {name for name in waiting if any(os.path.exists(each[name]) for each in places)}
        return frozenset(there - waiting)

    @property
    def outputs(self) -> Iterator[Path]:
        """All results that are known before the work."""
        for job in self.jobs if self.pairing else ():
            yield from job.files.values()

    @property
    def jobs(self) -> Iterator[Job]:
        """What there is to do."""
        if self.pairing is None:
            return self.share(self._streamed())
        return map(self._job, self.share(self.pairing.pairs))

    def _streamed(self) -> Iterator[Job]:
        """Jobs of a list that arrives line by line."""
        given, seen = self.request, SeenPaths(read=self.read)
        assert given.pairs is not None
        with open_pair_list(Path(given.pairs)) as lines:
            for line, item in iter_pair_list(lines, given.null, _path(given.root)):
                if isinstance(item, PamError):
                    yield Job(None, error=item, line=line)
                else:
                    yield self._job(item, seen)

    def _job(self, pair: PairName, seen: SeenPaths | None = None) -> Job:
        """Make the job of a pair; whatever is wrong with the pair fails it alone."""
        given = self.request
        try:
            files = self.names.paths(pair)
            if seen is not None:
                seen.add(pair, files)
            check_existing([files], overwrite=given.overwrite, skip_existing=given.skip_existing)
        except PamError as error:
            return Job(pair, error=error, line=pair.line)
        skip = given.skip_existing and bool(files) and all(self._exists(*file) for file in files.items())
        places = {**files, **self.returned}
        returned = next(iter(self.returned), None)
        return Job(pair, places, returned, skip, line=pair.line, videos=self.videos)

    def _exists(self, name: str, path: Path) -> bool:
        """Whether a result exists: a frame, too, in a video that stays."""
        return os.path.exists(path) or name in self.whole_videos  # of os.path: names that are too long, too


def _path(place: Place | None) -> Path | None:
    return None if place is None else Path(place)


def _find_pairs(request: Request, inputs: list[str], stream: bool) -> Pairing | None:
    """The pairs; None: they are streamed."""
    root = _path(request.root)
    if "" in inputs or request.pairs == "":
        raise UsageError("the name of a picture or list is empty", "an unset variable of the shell, perhaps?")
    if request.null and request.pairs is None:
        raise UsageError("`null` is about the list of `pairs`, and there is none")
    if are_videos(inputs):
        return _find_frames(request, inputs)
    if alone := request.about_videos:
        raise UsageError(f"`{alone[0]}` is about videos, and none is given")
    if request.pairs is not None:
        if inputs or request.packed:
            given = f"the argument {inputs[0]}" if inputs else "`packed`"
            raise UsageError(f"`pairs` and {given} contradict each other", "give one of them")
        return None if stream else Pairing(read_pair_list(Path(request.pairs), request.null, root))
    if request.packed is not None:
        if "-" in inputs:
            if len(inputs) > 1:
                raise UsageError("- stands for one picture on stdin", "give it alone")
            return Pairing((PairName(STDIN, None, "stdin"),), batch=False)
        return resolve_packed(inputs, by_suffix=request.packed == "auto", root=root)
    if root is not None:
        raise UsageError(
            "`root` is about the list of `pairs` and pictures that hold both views", "leave it out"
        )
    if "-" in inputs:
        raise UsageError("stdin gives one picture that holds both views", "add `packed` lr, rl, tb or bt")
    if len(inputs) != 2:
        raise UsageError(
            f"a left and a right picture are needed, {len(inputs) or 'none'} given",
            "two folders or two quoted templates make a batch; `packed` takes pictures that hold both views",
        )
    return resolve_pairs(*inputs)


def _find_frames(request: Request, inputs: list[str]) -> Pairing:
    """The frames of one or two videos. Raises UsageError, InputError."""
    for name, given in (("pairs", request.pairs), ("root", request.root)):
        if given is not None:
            raise UsageError(f"`{name}` is about pictures, and {shown(inputs[0])} is a video", "leave it out")
    if request.packed == "auto":
        raise UsageError("a video does not say how it holds both views", "`packed` lr, rl, tb or bt")
    if len(inputs) != (1 if request.packed else 2):
        raise UsageError(
            f"{counted(len(inputs), 'video')} given: {listed(inputs)}",
            "a left and a right one, or one that holds both views and `packed` lr, rl, tb or bt",
        )
    if request.packed and request.offset:
        raise UsageError("`offset` is about two videos, and one holds both views", "leave it out")
    return pair_frames(
        inputs, start=request.start, every=request.every, count=request.count, offset=request.offset
    )


def _returned(
    options: Mapping[OutputKind, str | None], format_name: str | None, many: bool
) -> dict[str, Path]:
    """The result that is asked for as `-`, if there is one."""
    kinds = [kind for kind, text in options.items() if text == "-"]
    if not kinds:
        return {}
    if len(kinds) > 1:
        both = f"{kinds[0].option} - and {kinds[1].option} -"
        raise UsageError(f"{both} would both go to stdout", "give one of them")
    if many:
        raise UsageError(
            f"{kinds[0].option} - takes one pair, not a batch", "name a folder or a template with {}"
        )
    main = next(iter(options))
    suffix = f".{format_name}" if format_name and kinds[0].suffixes == main.suffixes else kinds[0].suffixes[0]
    return {kinds[0].name: Path(f"standard output{suffix}")}
