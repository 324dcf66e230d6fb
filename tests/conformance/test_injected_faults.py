"""The k-th call of one kind fails, for every k: no crash, no partial file, the right exit code, and a run that goes on.

Environment: VOLPIPE_FAIL_NTH, the library of tests/faults/fail_nth_call.cpp.
"""

import json
import os
import random
import subprocess

import nibabel
import numpy as np
import pytest

from support import PROGRAM
from test_batch import partial_files, results

LIBRARY = os.environ["VOLPIPE_FAIL_NTH"]
SPEC = {
    "volpipe": 1,
    "stages": [{"op": "resample", "spacing": [2, 2, 2]}, {"op": "normalize"}],
    "outputs": {"image": {"path": "{dir}/{stem}.nii.gz"}},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    (folder / "in").mkdir()
    draw = np.random.default_rng(1)
    for i in range(3):
        data = draw.normal(100, 20, (12 + i, 9, 7)).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), folder / "in" / f"v{i}.nii.gz")
    (folder / "spec.json").write_text(json.dumps(SPEC))
    return folder


def run(folder, output, device="cpu", fail=None, at=0, count=None):
    environment = dict(os.environ)
    if fail:
        environment |= {"LD_PRELOAD": LIBRARY, "FAIL_CALL": fail, "FAIL_AT": str(at)}
    if count:
        environment["FAIL_COUNT"] = str(count)
    return subprocess.run(
        [PROGRAM, "run", str(folder / "spec.json"), str(folder / "in"), "-o", str(output), "--resume"]
        + ["--device", device, "--threads", "2", "--progress", "none"],
        capture_output=True,
        text=True,
        env=environment,
    )


def calls_of(folder, output, kind, device="cpu"):
    done = run(folder, output, device, kind, -1, output.parent / f"count_{kind}")
    assert done.returncode == 0, done.stderr
    return int((output.parent / f"count_{kind}").read_text())


def check_fault(folder, output, expected, kind, at, codes, device="cpu"):
    done = run(folder, output, device, kind, at)
    assert done.returncode in codes, (kind, at, done.returncode, done.stderr)
    left = results(output) if output.exists() else {}
    assert all(expected[name] == value for name, value in left.items()), (kind, at)
    # Who is ended from outside leaves its hidden files to the next run.
    assert done.returncode < 0 or not (output.exists() and partial_files(output)), (kind, at)
    if done.returncode == 0:
        assert left == expected, (kind, at, done.stderr)
    else:
        assert done.stderr, "a fault is said"
        again = run(folder, output, device)
        assert again.returncode == 0 and results(output) == expected, (kind, at, again.stderr)
        assert not partial_files(output), (kind, at)


# A call may fail that nobody needs (a folder's sync, the number of calls varies by a few): then all is there, exit 0.
@pytest.mark.parametrize("kind", ["write", "sync", "rename", "open"])
def test_every_call_of_the_system(small, tmp_path, kind):
    total = calls_of(small, tmp_path / "undisturbed", kind)
    expected = results(tmp_path / "undisturbed")
    assert len(expected) == 3 and total >= 4
    for at in range(1, total + 1):
        check_fault(small, tmp_path / f"{kind}{at}", expected, kind, at, {0, 1, 2, 4})


# The JSON library allocates in its destructors, which may not throw: where it finds no memory there, the process ends.
ENDED_BY_JSON = -6


def test_every_allocation(small, tmp_path):
    total = calls_of(small, tmp_path / "undisturbed", "new")
    expected = results(tmp_path / "undisturbed")
    moments = random.Random(3).sample(range(1, total + 1), min(total, 250))
    for at in moments:
        check_fault(small, tmp_path / f"new{at}", expected, "new", at, {0, 1, 2, 4, 70, ENDED_BY_JSON})
