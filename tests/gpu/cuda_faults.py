#!/usr/bin/env python3
"""The k-th CUDA call of a run fails, for want of memory or as a broken device does: no crash, no partial file, every item
written with the voxels of an undisturbed run or the CPU's, and a word about it where the CPU took over.

    tests/gpu/cuda_faults.py [MOST]    tries MOST calls of each kind, drawn at random (default 60); exit code 77 without a GPU

Environment: VOLPIPE, the program; VOLPIPE_FAIL_NTH, the library of tests/faults/fail_nth_call.cpp. Needs numpy alone.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import numpy as np

PROGRAM, LIBRARY = os.environ["VOLPIPE"], os.environ["VOLPIPE_FAIL_NTH"]
ITEMS = 3
SPEC = {
    "volpipe": 1,
    "stages": [{"op": "resample", "spacing": [1.5] * 3}, {"op": "gaussian", "sigma": 1}, {"op": "normalize"}],
    "outputs": {"image": {"path": "{stem}.nii"}},
}
# CPU and GPU agree to 1e-5 of the range of filters, which is below 8 standard deviations after normalize.
TOLERANCE = 8e-5


def write_nifti(path, values):
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *values.shape, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 16, 32)
    struct.pack_into("<8f", header, 76, *([1.0] * 8))
    struct.pack_into("<f", header, 108, 352)
    struct.pack_into("<B", header, 123, 2)
    struct.pack_into("<2h", header, 252, 0, 1)
    for row in range(3):
        struct.pack_into("<4f", header, 280 + 16 * row, *(1.0 if column == row else 0.0 for column in range(4)))
    header[344:348] = b"n+1\0"
    path.write_bytes(bytes(header) + values.astype("<f4").tobytes(order="F"))


def run(folder, output, kind=None, at=0, count=None):
    environment = dict(os.environ)
    if kind:
        environment |= {"LD_PRELOAD": LIBRARY, "FAIL_CALL": kind, "FAIL_AT": str(at)}
    if count:
        environment["FAIL_COUNT"] = str(count)
    command = [PROGRAM, "run", str(folder / "spec.json"), str(folder / "in"), "-o", str(output), "--device", "cuda:0"]
    return subprocess.run(
        command + ["--resume", "--progress", "none", "--threads", "2"], capture_output=True, text=True, env=environment, timeout=120
    )


def voxels(output):
    return {path.name: np.frombuffer(path.read_bytes()[352:], "<f4") for path in sorted(output.glob("*.nii"))}


def fault_of(folder, expected, kind, at):
    """What is wrong with the run whose call `at` fails; empty when nothing is."""
    output = folder / f"{kind}{at}"
    done = run(folder, output, kind, at)
    found = voxels(output) if output.exists() else {}
    if done.returncode != 0 or len(found) != ITEMS:
        return f"exit code {done.returncode}, {len(found)} files: {done.stderr[-300:]}"
    if any(".partial" in path.name for path in output.rglob(".*")):
        return "a partial file"
    if any(found[name].shape != values.shape or np.abs(found[name] - values).max() > TOLERANCE for name, values in expected.items()):
        return "other voxels"
    report = json.loads((output / "volpipe-report.json").read_text())
    on_cpu = [item for item in report["items"] if item["device"] == "cpu"]
    if any(not item.get("fallback_reason") and not report["fallback_reason"] for item in on_cpu):
        return "the CPU took over without a word"
    return ""


def main():
    devices = json.loads(subprocess.run([PROGRAM, "devices", "--json"], capture_output=True, text=True).stdout)
    listed = devices["devices"] if isinstance(devices, dict) else devices
    if not any(device["device"].startswith("cuda") and device.get("usable", True) for device in listed):
        print("no GPU can be used: skipped")
        return 77
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    failed = 0
    with tempfile.TemporaryDirectory(prefix="volpipe-faults-") as name:
        folder = pathlib.Path(name)
        (folder / "in").mkdir()
        draw = np.random.default_rng(0)
        for i in range(ITEMS):
            write_nifti(folder / "in" / f"v{i}.nii", draw.normal(100, 20, (20 + i, 18, 16)))
        (folder / "spec.json").write_text(json.dumps(SPEC))
        assert run(folder, folder / "undisturbed").returncode == 0
        expected = voxels(folder / "undisturbed")
        for kind in ("cuda_memory", "cuda_device"):
            run(folder, folder / f"count_{kind}", kind, -1, folder / "count")
            total = int((folder / "count").read_text())
            calls = random.Random(1).sample(range(1, total + 1), min(most, total))
            faults = {at: fault for at in calls if (fault := fault_of(folder, expected, kind, at))}
            print(f"{kind}: {len(calls)} of {total} calls tried, {len(faults)} faults")
            for at, fault in faults.items():
                print(f"  call {at}: {fault}")
            failed += len(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
