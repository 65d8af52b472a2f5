"""A batch over a cluster of three nodes on this machine, of which one is killed in the middle."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ray_steps import WriteSteps, numbered
from unrectified import sample

from pamcli.batch.ray_cluster import MOST_HELD_JOBS, run_on_ray
from pamcli.errors import DeviceError, InputError, ModelError

ROOT = Path(__file__).parents[2]
NODES = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one core each; its workers find the tests' own modules."""
    pytest.importorskip("ray", reason="ray is not installed (pip install 'pamcli[ray]')")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), str(ROOT)]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}
        node = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
        started = Cluster(True, head_node_args={**node, "_system_config": quick})
        for _ in range(NODES - 1):
            started.add_node(**{key: value for key, value in node.items() if key != "include_dashboard"})
        yield started
        started.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_every_job_is_done_once_and_few_are_taken_ahead(cluster: Any, tmp_path: Path) -> None:
    taken, done = itertools.count(), 0

    def jobs() -> Iterator[int]:
        for number in [-1, *range(95), 99]:
            ahead = next(taken) - done
            assert ahead <= NODES * MOST_HELD_JOBS, f"{ahead} jobs are held"
            yield number

    outcomes = {}
    work = WriteSteps(tmp_path)
    for job, outcome in run_on_ray(numbered(jobs()), work, cluster.address, 1):
        assert job.line not in outcomes
        outcomes[job.line] = outcome
        done += 1
    assert sorted(outcomes) == [*range(-1, 95), 99]
    assert outcomes.pop(-1).status == "skipped"
    error = outcomes.pop(99)
    assert isinstance(error, InputError)
    assert str(error) == "99 is bad (leave it out)"
    assert outcomes == {n: str(n**2) for n in range(95)}
    assert {path.stem: path.read_text() for path in tmp_path.iterdir()} == {
        str(n): str(n**2) for n in range(95)
    }


@pytest.mark.filterwarnings("ignore")
def test_what_no_worker_can_load_ends_the_batch(cluster: Any, tmp_path: Path) -> None:
    steps = WriteSteps(tmp_path, broken="the weights are damaged")
    with pytest.raises(ModelError) as caught:
        list(run_on_ray(numbered(range(5)), steps, cluster.address, 1))
    assert str(caught.value) == "the weights are damaged (mend it)"
    with pytest.raises(DeviceError, match="no node of the cluster has 2 cores"):
        list(run_on_ray(numbered(range(5)), steps, cluster.address, 2))


@pytest.mark.filterwarnings("ignore")
def test_a_node_is_killed_and_the_results_are_those_of_one_process(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"l/{n}.png\tr/{n}.png\n" for n in range(12)))
    for side, view in zip("lr", sample((200, 40, 290, 101)), strict=True):
        (tmp_path / side).mkdir()
        for number in range(12):
            Image.fromarray(np.roll(view, number, axis=0)).save(tmp_path / side / f"{number}.png")
    command = [sys.executable, "-P", "-m", "pamcli", "disparity", "--pairs", "pairs.tsv", "--device", "cpu"]
    far = ["--engine", "ray", "--ray-address", cluster.address, "--ray-cores", "1"]
    options = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "text": True}
    node = cluster.worker_nodes.copy().pop()
    with subprocess.Popen([*command, *far, "-o", "far/"], stdout=subprocess.PIPE, **options) as run:
        told = [run.stdout.readline()]
        cluster.remove_node(node, allow_graceful=False)
        told += run.stdout.readlines()
    assert run.returncode == 0
    assert sorted(told) == sorted(f"far/l/{number}.pfm\n" for number in range(12))
    subprocess.run([*command, "-o", "near/", "--quiet"], check=True, capture_output=True, **options)
    far_files, near_files = (
        {path.name: path.read_bytes() for path in (tmp_path / place / "l").glob("[!.]*")}
        for place in ("far", "near")
    )  # without the temporary file that the killed node may have begun
    assert len(far_files) == 12
    assert far_files == near_files
