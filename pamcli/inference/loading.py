"""A network on a device: from its weights or an exported file, and in strips of how many rows it runs."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pamcli import winograd
from pamcli.errors import DeviceError, UsageError
from pamcli.inference.device import Compute
from pamcli.inference.foreign import ForeignNetwork
from pamcli.inference.memory import (
    choose_strip,
    free_memory,
    keep_freed_memory,
    memory_errors,
    taken_memory,
)
from pamcli.inference.onnx_file import SUFFIX, OnnxNetwork, is_exported
from pamcli.inference.pictures import PairRows, Pixels
from pamcli.inference.whole import WholeNetwork
from pamcli.registry import description
from pamcli.registry.architectures import loaded
from pamcli.registry.catalog import locate
from pamcli.registry.load import Network, load_network
from pamcli.registry.spec import ModelSpec
from pamcli.streaming.matching import Progress
from pamcli.streaming.rolling import folded

AnyNetwork = Network | OnnxNetwork | ForeignNetwork
AnySpec = ModelSpec | description.Description


def portions(progress: Progress | None, work: Sequence[float]) -> list[Progress]:
    """Split the progress of several pieces of work, one after the other: what the share of each is told to.

    `work`: how long each takes, in any unit. `progress` is told the share of all.
    """
    if progress is None:
        return [lambda share: None] * len(work)
    ends = list(itertools.accumulate(work))

    def portion(begin: float, size: float) -> Progress:
        return lambda share: progress((begin + share * size) / ends[-1])

    return [portion(end - size, size) for end, size in zip(ends, work, strict=True)]


def load(
    weights: str | Path, device: str, precision: str, *, network_from: str | None = None
) -> tuple[AnyNetwork, AnySpec, Compute]:
    """What a `weights` value names; on a CPU `precision` "auto" is the fastest that changes next to nothing.

    network_from: "module:function" that makes the network which `weights` describes.
    Raises ModelError, DeviceError, UsageError.
    """
    path = locate(weights)
    if network_from is not None and path.suffix != description.SUFFIX:
        raise UsageError(
            "`network_from` takes a description as `weights`",
            "pam weights describe --network-from MODULE:FUNCTION -o NET.toml writes one",
        )
    if path.suffix == SUFFIX and is_exported(path):
        exported = OnnxNetwork(path, device, precision)
        return exported, exported.spec, exported.compute
    if path.suffix in (SUFFIX, description.SUFFIX):
        foreign = ForeignNetwork.load(path, device, precision, network_from)
        return foreign, foreign.spec, foreign.compute
    compute = Compute.choose(device, precision, reduce=True)  # first: a wrong device needs no weights
    network, spec = load_network(path)
    gains = compute.may_reduce() and not winograd.available()  # beside it int8 is 1.16 times as fast as fp32
    if precision == "auto" and gains and _in_eight_bits(spec):
        compute = replace(compute, precision="int8")
    elif precision == "auto" and not spec.row.sixteen_bits:
        compute = replace(compute, precision="fp32")
    return network, spec, compute


def _in_eight_bits(spec: ModelSpec) -> bool:
    return spec.row.eight_bits and spec.streamed


class NetworkOnDevice:
    """What a matcher and an upscaler share: the network as it runs, and the memory that it may take."""

    def __init__(self, network: AnyNetwork, spec: AnySpec, compute: Compute, max_memory: int | None) -> None:
        """The network as it is now: a copy is made for inference. Raises UsageError."""
        self.spec, self.compute, self.max_memory = spec, compute, max_memory
        self.network: Any = network
        self.streamed: Any = network
        """Has `match` or `enlarge`, and `footprint`."""
        self.size: tuple[int, int] | None = None
        if isinstance(network, OnnxNetwork | ForeignNetwork):
            self.size = network.size
        else:
            assert isinstance(spec, ModelSpec)
            if compute.device.type == "mps":
                said = "an Apple GPU has no float64, in which networks of pam are made ready"
                raise DeviceError(said, "use `device` cpu")
            with memory_errors(f"the network does not fit into the memory of {compute.device}"):
                self.network = folded(network).to(compute.device)
            self.streamed = _streamed(self.network, spec, compute)
            if spec.streamed:
                winograd.make_ready(self.network)
        limits = [max_memory, free_memory(compute.device) if compute.device.type == "cpu" else None]
        keep_freed_memory(min((limit for limit in limits if limit is not None), default=None))
        self._taken = taken_memory(compute.device)

    @property
    def foreign(self) -> ForeignNetwork | None:
        """The network, where it is not pam's own."""
        return self.network if isinstance(self.network, ForeignNetwork) else None

    def departure(self, height: int, width: int) -> str | None:
        """Say what is done to pictures of a size (px) that the network itself does not do; None: nothing.

        Only a network that was exported for one size departs from itself.
        """
        if isinstance(self.network, ForeignNetwork):
            return self.network.departure(height, width)
        if self.size in (None, (height, width)):
            return None
        return f"pictures of {width} x {height} px are {self._padded()}"

    def _padded(self) -> str:
        assert self.size is not None
        return f"padded to {self.size[1]} x {self.size[0]}, the size that the network was exported for"

    def _strip(self, pair: PairRows, given: tuple[Pixels, Pixels], results: int = 0, **asked: Any) -> int:
        """Rows of a pair to compute at a time, where this is `asked` for.

        `given`: the pictures that the pair was made from. `results`: bytes that are held beside. Raises
        DeviceError.
        """
        found = self.streamed.footprint(pair.width, pair.height, **asked)
        if given[0] is not pair.views[0]:
            results += sum(view.nbytes for view in pair.views)
        return choose_strip(
            found.with_results(results),
            width=given[0].shape[1],
            height=given[0].shape[0],
            pictures=sum(view.nbytes for view in given),
            device=self.compute.device,
            max_memory=self.max_memory,
            taken=self._taken,
        )


def _streamed(network: Any, spec: ModelSpec, compute: Compute) -> Any:
    """A network whose batch norm is folded, as it runs in the precision asked for. Raises UsageError."""
    eight_bits = compute.precision == "int8"
    if eight_bits and not _in_eight_bits(spec):
        raise UsageError(f"{spec.architecture} does not compute in int8", "use `precision` fp32 or auto")
    if not spec.streamed:
        return WholeNetwork(network, spec, compute)
    how = {"eight_bits": True} if eight_bits else {}
    return loaded(spec.row.streamed)(network, compute.dtype, **how)
