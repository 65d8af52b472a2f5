"""Networks in ONNX files, run by ONNX Runtime: what the streamed ones do, for the whole picture at once."""

import hashlib
import importlib
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pamcli.errors import DeviceError, ModelError, UsageError
from pamcli.inference.device import Compute
from pamcli.inference.memory import is_memory_error
from pamcli.inference.pictures import Enlarge
from pamcli.inference.strip_choice import Footprint
from pamcli.inference.whole import whole_footprint
from pamcli.networks.parallax import valid_mask
from pamcli.registry.spec import ModelSpec
from pamcli.streaming.matching import StreamedMatching
from pamcli.streaming.passrnet import Write
from pamcli.streaming.rolling import Rows

SUFFIX = ".onnx"
DYNAMIC = "dynamic"  # the size of a file that takes pictures of any

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
ON_CPU = "CPUExecutionProvider"


_SEAL = b"\x72\x4a\x0a\x06sealed\x12\x40"  # field 14 of 74 bytes: key of 6 and value of 64


def sealed(data: bytes) -> bytes:
    """An ONNX file with the sha256 of its bytes as one more of its metadata, which may stand last."""
    return data + _SEAL + hashlib.sha256(data).hexdigest().encode()


def require_as_sealed(path: Path) -> None:
    """Raises ModelError where a file has been sealed, and is not as it was then."""
    data = path.read_bytes()
    if _SEAL in data[-100:] and data != sealed(data[: data.rindex(_SEAL)]):
        raise ModelError(
            f"{path} is damaged, or another program has changed it since its export", "export it again"
        )


def library(name: str) -> Any:
    """An optional library. Raises UsageError."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", "pip install 'pamcli[onnx]'") from None


class OnnxNetwork:
    """A network of `onnx_export.export`; `match` and `enlarge` are those of the streamed networks."""

    def __init__(self, model: Path | bytes, device: str = "auto", precision: str = "auto") -> None:
        """`model`: a file, or its bytes. `device`: auto, cpu, cuda, cuda:N, tensorrt, tensorrt:N.

        `precision`: auto, or that of the file. Raises ModelError, DeviceError, UsageError.
        """
        runtime = library("onnxruntime")
        name = "the network" if isinstance(model, bytes) else str(model)
        providers, where = _providers(runtime.get_available_providers(), device)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        try:  # of bytes: so it cannot name other files
            data = model if isinstance(model, bytes) else model.read_bytes()
            with redirect_stdout(io.StringIO()):  # it prints when it tries again
                self.session = runtime.InferenceSession(data, options, providers=providers)
            self.said: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        except FileNotFoundError:
            raise ModelError(f"no weights file {name}", "pam weights export makes one") from None
        except OSError as error:
            raise ModelError(f"cannot read {name}: {error.strerror}") from error
        except Exception as error:  # its own classes
            raise ModelError(f"{name} is no ONNX file, or is damaged", "export it again") from error
        if self.session.get_providers()[0] != (providers[0][0] if providers else ON_CPU):
            raise DeviceError(f"ONNX Runtime cannot use {where} here", "use `device` cpu")
        said = self.said
        try:
            self.spec = ModelSpec.from_metadata(said)
            sides = re.fullmatch(r"(\d{1,5})x(\d{1,5})", said["size"])
            self.size = None if said["size"] == DYNAMIC or sides is None else (int(sides[1]), int(sides[2]))
            stored = said["precision"]
        except (ModelError, KeyError) as error:
            raise ModelError(
                f"{name} does not say which network it holds", "pam weights export does"
            ) from error
        if precision not in ("auto", stored):
            raise UsageError(f"{name} computes in {stored}, not in {precision}", "export it anew")
        self.compute = Compute(torch.device("cpu"), stored, f"onnxruntime {where}")

    def checked(self, max_disparity: int | None, min_disparity: int, enlarge: Enlarge) -> Enlarge:
        """The enlargement that is possible: what is searched is fixed in the file. Raises UsageError."""
        limit = self.spec.max_disparity
        if max_disparity != limit or (limit is not None and (min_disparity or enlarge not in (1, "auto"))):
            searched = (
                "any disparity" if limit is None else f"disparities from 0 to {limit} px, not enlarged,"
            )
            raise UsageError(f"the exported network searches {searched} alone", "export it anew")
        return enlarge if limit is None else 1.0

    def footprint(self, width: int, height: int) -> Footprint:
        """Of a padded pair. A GPU's memory is ONNX Runtime's affair."""
        if self.session.get_providers()[0] != ON_CPU:
            return Footprint(fixed=0, per_row=1, rows=(height, height, height))
        return whole_footprint(self.spec, width, height)

    def match(
        self,
        rows: Rows,
        height: int,
        width: int,
        max_disparity: int | None = None,
        *,
        strip: int | None = None,
        confidence: bool = False,
    ) -> StreamedMatching:
        """As of `StreamedPASMnet.match`, of rows in [0, 1]."""
        disparity, received, sure = self._run(rows(0, height))
        return StreamedMatching(disparity, valid_mask(received), received, sure if confidence else None)

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """As of `StreamedPASSRnet.enlarge`."""
        for view, picture in enumerate(self._run(rows(0, height))[: 2 if both else 1]):
            write(view, 0, picture[0])

    def _run(self, both: Tensor) -> list[Tensor]:
        views = both.cpu().numpy()
        try:
            found = self.session.run(None, {"left": views[:1], "right": views[1:]})
        except Exception as error:  # its own classes
            if is_memory_error(RuntimeError(str(error))):
                raise MemoryError from error
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(f"ONNX Runtime cannot run the network: {reason}", "export it anew") from error
        return [torch.from_numpy(each) for each in found]


def _providers(available: list[str], device: str) -> tuple[list[tuple[str, dict[str, str]]], str]:
    """What ONNX Runtime is to use, and its name. Raises DeviceError."""
    kind, _, number = device.partition(":")
    if device == "auto":
        kind = "cuda" if PROVIDERS["cuda"] in available else "cpu"
    if kind == "cpu":
        return [(ON_CPU, {})], kind
    if PROVIDERS.get(kind) not in available:
        raise DeviceError(
            f"ONNX Runtime has no {kind} here", "use `device` cpu, or pip install onnxruntime-gpu"
        )
    chosen = {"device_id": number or "0"}
    names = [kind, "cuda"] if kind == "tensorrt" and PROVIDERS["cuda"] in available else [kind]
    return [
        *((PROVIDERS[name], chosen) for name in names),
        (ON_CPU, {}),
    ], kind if device == "auto" else device
