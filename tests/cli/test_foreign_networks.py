"""--weights of networks that are not pam's own: as ONNX Runtime runs them in ten lines, of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import foreign_networks as made
import numpy as np
import pytest
from pam_program import pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")


SIZE = (64, 96)
"""Rows and columns of the pair, and of networks of one size."""
ODD = (50, 77)
"""Rows and columns of pictures that are multiples of nothing."""

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"

DISPARITY = ["disparity", "left.png", "right.png", "-o", "x.npy", "--overwrite", "--device", "cpu"]
SUPERRES = ["superres", "left.png", "right.png", "-o", "x.tif", "--output-right", "y.tif", "--overwrite"]


def session_of(path: Path) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)


def padded(view: np.ndarray, size: tuple[int, int], place: str) -> tuple[np.ndarray, slice, slice]:
    """A view (C, H, W) in `size`, its edges repeated, and where its pixels are in it."""
    rows, columns = size[0] - view.shape[1], size[1] - view.shape[2]
    above = {"centre": rows // 2, "top right": rows, "bottom right": 0}[place]
    before = columns // 2 if place == "centre" else 0
    grown = np.pad(view, ((0, 0), (above, rows - above), (before, columns - before)), mode="edge")
    return grown, slice(above, above + view.shape[1]), slice(before, before + view.shape[2])


def halved(view: np.ndarray) -> np.ndarray:
    import torch

    half = [side // 2 for side in view.shape[1:]]
    return torch.nn.functional.interpolate(
        torch.from_numpy(view.copy())[None], half, mode="bilinear", align_corners=True
    ).numpy()


@dataclass(frozen=True)
class Case:
    """A family: a network of its form, and what a script would do with it."""

    family: str
    make: Callable[[Path, tuple[int, int] | None], Path]
    feed: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
    """Inputs, of padded views (3, H, W) in 0 to 255."""
    read: Callable[[list[np.ndarray]], np.ndarray]
    place: str
    multiple: int
    only_fixed: bool = False

    def script(self, path: Path, size: tuple[int, int] | None) -> np.ndarray:
        """The disparity, without pam."""
        views = [
            np.asarray(Image.open(f"{side}.png"), np.float32).transpose(2, 0, 1) for side in ("left", "right")
        ]
        shape = views[0].shape[1:]
        full = size or tuple(-(-side // self.multiple) * self.multiple for side in shape)
        (left, rows, columns), (right, *_) = (padded(view, full, self.place) for view in views)
        return self.read(session_of(path)(self.feed(left, right)))[rows, columns]


def left_right(left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    return {"left": left[None], "right": right[None]}


MEAN, STD = (np.float32(each).reshape(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def grey(left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    weights = np.float32([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    return {"input": np.stack([(weights * view).sum(0) / 255 for view in (left, right)])[None]}


CASES = [
    Case("FoundationStereo", lambda path, size: made.two_views(path, size, output="disp"),
         left_right, lambda found: found[0][0, 0], "centre", 32),
    Case("Lite Any Stereo", lambda path, size: made.two_views(path, size, output="disparity"),
         left_right, lambda found: found[0][0, 0], "centre", 32),
    Case("RAFT-Stereo",
         lambda path, size: made.coarse_and_fine(
             path, size, outputs=("disparity", "upscaled_disparity"), coarse=2),
         left_right, lambda found: -found[1][0, 0], "centre", 32),
    Case("IGEV",
         lambda path, size: made.coarse_and_fine(path, size, outputs=("init_disp", "disp"), coarse=1),
         left_right, lambda found: found[1][0, 0], "centre", 32),
    Case("CREStereo", lambda path, size: made.crestereo(path, size or SIZE),
         lambda left, right: {
             "init_left": halved(left[::-1]), "init_right": halved(right[::-1]),
             "next_left": left[None, ::-1], "next_right": right[None, ::-1]},
         lambda found: found[0][0, 0], "top right", 32, only_fixed=True),
    Case("CREStereo", lambda path, size: made.two_views(path, size, output="output", channels=2),
         lambda left, right: left_right(left[::-1], right[::-1]),
         lambda found: found[0][0, 0], "top right", 32),
    Case("HITNet", made.hitnet, lambda left, right: {"input": np.concatenate([left, right])[None] / 255},
         lambda found: found[0][0, :, :, 0], "top right", 64),
    Case("HITNet", lambda path, size: made.hitnet(path, size, channels=2), grey,
         lambda found: found[0][0, :, :, 0], "top right", 64),
    Case("StereoNet",
         lambda path, size: made.two_views(path, size, names=("input.1", "input.83"), output="disp"),
         lambda left, right: {
             "input.1": (left / 255 - MEAN)[None] / STD, "input.83": (right / 255 - MEAN)[None] / STD},
         lambda found: found[0][0, 0], "bottom right", 16),
]  # fmt: skip


@pytest.mark.parametrize("fixed", [False, True], ids=["free", "fixed"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_a_known_network_finds_what_a_script_does(pair: Path, case: Case, fixed: bool) -> None:
    if case.only_fixed and not fixed:
        pytest.skip("its second size is half of the first, which a file states only for one size")
    for side in ("left", "right"):
        Image.open(f"{side}.png").crop((0, 0, ODD[1], ODD[0])).save(f"{side}.png")
    network = case.make(Path("net.onnx"), SIZE if fixed else None)
    run = succeed(*DISPARITY, "--weights", network)
    said = f"net.onnx runs in ONNX Runtime on cpu, recognised as {case.family} by its inputs and outputs"
    assert said in run.stderr
    expected = np.maximum(case.script(network, SIZE if fixed else None), 0)  # nothing is beyond infinity
    assert expected.shape == ODD
    assert np.std(expected) > 0.01
    assert np.abs(np.load("x.npy") - expected).max() < 1e-4


def test_an_image_that_needs_tiles_has_no_seams(here: Path) -> None:
    """A local network of one size, on an image that is larger, finds what it finds on the whole image."""
    left, right = (Image.open(SAMPLE / f"{side}.png").convert("RGB") for side in ("left", "right"))
    for name, view in (("left.png", left), ("right.png", right)):
        view.resize((185, 125)).crop((0, 0, 185, 121)).save(name)
    made.block_matcher(Path("whole.onnx"), None, reach=18)
    made.block_matcher(Path("part.onnx"), (64, 96), reach=18)
    found = {}
    for name in ("whole", "part"):
        size = "free" if name == "whole" else "96x64"
        Path(f"{name}.toml").write_text(made.DESCRIBED.format(name=name, size=size))
        run = succeed(*DISPARITY, "--weights", f"{name}.toml", "--output-right", "r.npy")
        found[name] = np.load("x.npy"), np.load("r.npy")
    assert "images of 185x121 are processed in 9 tiles of 96x64" in run.stderr
    for whole, part in zip(*found.values(), strict=True):
        assert np.std(whole) > 1
        assert np.abs(whole - part).max() < 0.1


def test_a_super_resolution_network_makes_what_a_script_does(small_pair: Path) -> None:
    for scale, size in ((2, None), (4, (32, 48)), (3, (16, 24))):
        made.side_by_side(Path("net.onnx"), scale, size)
        run = succeed(*SUPERRES, "--weights", "net.onnx", "--device", "cpu")
        assert "recognised as NAFSSR or CVHSSR by its inputs and outputs" in run.stderr
        views = [np.asarray(Image.open(f"{side}.png"), np.float32) / 255 for side in ("left", "right")]
        if size == (16, 24):
            assert "in 9 tiles of 24x16" in run.stderr
            made.side_by_side(Path("net.onnx"), scale)  # as a whole
        given = np.concatenate([view.transpose(2, 0, 1) for view in views])[None]
        (expected,) = session_of(Path("net.onnx"))({"input": given})
        for name, picture in (("x.tif", expected[0, :3]), ("y.tif", expected[0, 3:])):
            apart = np.abs(np.asarray(Image.open(name), float) - 255 * picture.transpose(1, 2, 0).clip(0, 1))
            assert apart.max() <= 0.501


def test_the_flow_that_another_file_finds(pair: Path) -> None:
    made.crestereo_with_flow(Path("second.onnx"), SIZE)
    made.two_views(Path("first.onnx"), (32, 48), output="output", channels=2)
    with unchanged():
        refuse(pam(*DISPARITY, "--weights", "second.onnx"), 4, "needs an initial flow", "--set initial=")
    succeed("weights", "describe", "second.onnx", "-o", "net.toml", "--set", "initial=first.onnx")
    succeed(*DISPARITY, "--weights", "net.toml")
    left, right = (
        np.asarray(Image.open(f"{side}.png"), np.float32).transpose(2, 0, 1)[::-1]
        for side in ("left", "right")
    )
    (flow,) = session_of(Path("first.onnx"))({"left": halved(left), "right": halved(right)})
    (found,) = session_of(Path("second.onnx"))({**left_right(left, right), "flow_init": flow})
    assert np.abs(np.load("x.npy") - np.maximum(found[0, 0], 0)).max() < 1e-4


def test_both_views_of_a_network_that_finds_both_at_once(pair: Path) -> None:
    """HITNet's second output is used as it is: the pair is not matched once more, mirrored."""
    made.hitnet(Path("net.onnx"), SIZE, right=True)
    succeed(*DISPARITY, "--output-right", "r.npy", "--weights", "net.onnx")
    left, right = (np.asarray(Image.open(f"{side}.png"), np.float32) for side in ("left", "right"))
    given = np.concatenate([left, right], axis=2).transpose(2, 0, 1)[None] / 255
    found = session_of(Path("net.onnx"))({"input": given})
    for name, expected in zip(("x.npy", "r.npy"), found, strict=True):
        assert np.abs(np.load(name) - np.maximum(expected[0, :, :, 0], 0)).max() < 1e-4


def test_every_result_of_a_network_that_finds_one_view(pair: Path) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=32)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free"))
    results = ["--output-right", "r.npy", "--visible", "v.png", "--confidence", "c.tif", "--page", "p.html"]
    run = succeed(*DISPARITY, *results, "--weights", "net.toml", "--jsonl")
    assert run.records[0]["device"] == "onnxruntime cpu"
    left, right = np.load("x.npy"), np.load("r.npy")
    confidence, visible = np.asarray(Image.open("c.tif")), np.asarray(Image.open("v.png")) == 255
    row, column = np.argwhere(visible)[visible.sum() // 2]
    apart = left[row, column] - right[row, round(float(column - left[row, column]))]
    assert confidence[row, column] == pytest.approx(2 ** -float(apart**2), abs=1e-5)
    assert confidence[visible].mean() > confidence[~visible].mean() + 0.3
    assert (confidence[:, 0] == 0)[left[:, 0] > 0].all(), "a match outside of the right view"


def test_information_and_examination_take_a_description(pair: Path) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free"))
    (found,) = pam("weights", "info", "net.toml", "--json").records
    assert (found["task"], found["network"]) == ("disparity", "whole.onnx")
    assert pam("weights", "verify", "net.toml").lines[0].startswith("net.toml: ok")
    Path("whole.onnx").write_bytes(b"")
    refuse(pam("weights", "verify", "net.toml"), 4, "whole.onnx is not an ONNX file, or is damaged")


"""Figures of visibility, which methods side by side are not asked for."""


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('task = "disparity"', "", "task is missing"),
        ("white = 1", "white = 2", "white must be 1 or 255, got 2"),
        ("white = 1", "wite = 1", "unknown value 'wite' (did you mean white"),
        ('"left", right', '"right", right', "must include both images"),
        ('"disparity" }', '"left" }', "outputs of disparity must include disparity, got left"),
        ('"free"', '"100x100"\nmultiple = 32', "size 100x100 must be a multiple of 32"),
        ('"free"', '"10"', "size must "),
        ('"free"', '"65536x65536"', "has more than 67,108,864 pixels"),
        ('"whole.onnx"', '"a\\u0000b.onnx"', "net.toml: network: a path has at most 4096 characters"),
        (
            '"whole.onnx"',
            '"whole.onnx"\ninitial = "\\u0000"',
            "net.toml: initial: a path has at most 4096 characters",
        ),
        ("white = 1", "white = " + "1" * 5000, "net.toml is not a description of a network: a number has"),
        ("white = 1", "a" + ".a" * 50_000 + " = 1", "net.toml is not a description of a network: a line has"),
        ("white = 1", "white = " + "[" * 5000, "net.toml is not a description of a network"),
        ('"free"', '"free"\nlarger = "reduce"', "requires a fixed size"),
        ("white = 1", "white = ", "is not a description of a network: "),
        ("white = 1", "scale = 2", "superres requires a scale"),
        ("white = 1", "deviation = [0, 1, 1]", "deviation must be above 0"),
        ("left =", "links =", "does not have the inputs and outputs of its description"),
        ("whole.onnx", "gone.onnx", "gone.onnx does not exist"),
    ],
)
def test_descriptions_that_cannot_be(pair: Path, was: str, now: str, said: str) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    text = made.DESCRIBED.format(name="whole", size="free")
    assert was in text
    Path("net.toml").write_text(text.replace(was, now))
    with unchanged():
        refuse(pam(*DISPARITY, "--weights", "net.toml"), 4, said)


def test_a_map_of_another_size_than_described(pair: Path) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free") + "resolution = 0.5")
    run = pam(*DISPARITY, "--weights", "net.toml")
    assert run.code == 4
    assert "output disparities has the shape 1x1x64x96, expected 48x32 px" in run.stderr


def test_what_does_not_fit_into_memory(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A free network that finds no memory for a pair, or none for itself, ends in one line."""
    import onnxruntime

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : Failed to allocate memory for requested buffer")

    made.block_matcher(Path("whole.onnx"), None, reach=4)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free"))
    monkeypatch.setattr(onnxruntime.InferenceSession, "run", fail)
    with unchanged():
        run = pam(*DISPARITY, "--weights", "net.toml")
    assert run.code == 5, run.stderr
    assert "not enough memory for a pair of 96x64" in run.complaints[-1]
    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with unchanged():
        refuse(pam(*DISPARITY, "--weights", "net.toml"), 5, "not enough memory for whole.onnx")


def test_what_a_network_by_others_cannot_do(pair: Path) -> None:
    made.two_views(Path("net.onnx"), None)
    made.two_views(Path("odd.onnx"), None, output="something")
    table = """
        2 --weights net.onnx --max-disparity 64 | no adjustable maximum disparity
        2 --weights net.onnx --effort fast | no rule for --effort
        2 --weights net.onnx --precision bf16 | has the precision fp32, not bf16
        5 --weights net.onnx --device openvino | ONNX Runtime does not support openvino | onnxruntime-openvino
        4 --weights odd.onnx | is not of a known family | pam weights describe
    """
    refuse_all(table, *DISPARITY)
    refuse_all("4 --weights net.onnx | does not upscale images", *SUPERRES)


@pytest.mark.parametrize(
    ("named", "command"),
    [
        ("x.npy", "disparity left.png right.png -o x.npy --weights net.toml"),
        (
            "x.npy",
            "disparity left.png right.png -o y.npy --output-right link.npy --weights net.toml",
        ),
        ("x.png", "superres left.png right.png -o x.png --weights net.toml"),
        ("x.csv", "eval disparity --data kitti2015:kitti --weights net.toml --per-image x.csv"),
        ("x.csv", "eval disparity --data kitti2015:kitti --method net.toml --table ./x.csv"),
        ("x.html", "eval superres --data pairs:. --weights net.toml --report x.html"),
        ("x.zip", "submit --data kitti2015:kitti --weights net.toml -o x.zip"),
        ("net.png", "weights describe net.toml -o net.toml"),
        ("x.toml", "weights describe net.toml -o x.toml"),
        ("x.png", "weights describe whole.onnx -o x.toml --set initial=x.png"),
    ],
)
def test_the_files_that_a_description_names_are_kept(
    pair: Path, kitti: Path, named: str, command: str
) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    made.block_matcher(Path(named), None, reach=4)
    Path("link.npy").symlink_to(named)
    text = made.DESCRIBED.format(name="whole", size="free")
    with_flow = text.replace('right = "right"', 'right = "right", flow = "flow/2"') + f'initial = "{named}"'
    for description in (text.replace("whole.onnx", named), with_flow):
        Path("net.toml").write_text(description)
        with unchanged():
            refuse(pam(command, "--overwrite"), 2, "would overwrite an input")


def test_pairs_are_not_labelled_over_the_network(pair: Path, mine: Path) -> None:
    Path("labelled/left").mkdir(parents=True)
    made.block_matcher(Path("labelled/left/a.png"), None, reach=4)
    text = made.DESCRIBED.format(name="whole", size="free").replace("whole.onnx", "labelled/left/a.png")
    Path("net.toml").write_text(text)
    command = ["dataset", "label", "pairs:mine", "-o", "labelled/", "--overwrite", "--weights", "net.toml"]
    with unchanged():
        refuse(pam(*command), 2, "labelled/left/a.png is an input and lies in the folder for the results")


def test_onnx_files_that_are_no_networks(pair: Path) -> None:
    graph = made.Graph()
    graph.node("Identity", "left", to="o")
    view = (1, 3, "h", "w")
    graph.save(Path("no_output.onnx"), {"left": view, "right": view}, {})
    graph.save(Path("large.onnx"), {"left": (1, 3, 10**6, 10**6)}, {"o": (1, 3, 10**6, 10**6)})
    graph = made.Graph()
    graph.node("Identity", graph.constant(np.float32([1])), to="o")
    graph.save(Path("no_input.onnx"), {}, {"o": (1,)})
    table = """
        4 --weights no_output.onnx | no_output.onnx has no output
        4 --weights no_input.onnx | no_input.onnx has no input
        4 --weights large.onnx | is larger than any supported image
    """
    refuse_all(table, *DISPARITY)
    refuse_all("4 no_output.onnx | no_output.onnx has no output", "weights info")
