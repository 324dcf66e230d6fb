#!/usr/bin/env python3
"""Times the expression stage on the CPU beside numpy for the same arithmetic on the same voxels; prints a Markdown table.

usage: expressions.py [--bench PROGRAM] [--size 256] [--threads N] [--runs 9] [--out FILE]

volpipe runs as `volpipe run` does (volpipe_stage_bench: parsed, planned, its group run); numpy evaluates the expression as
one would write it, in float32 on one thread, as it always does. The results must agree to 1e-5 of the range.
"""
import argparse
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def laplacian(v):
    p = np.pad(v, 1, mode="symmetric")
    c = slice(1, -1)
    return (p[c, c, 2:] + p[c, c, :-2] + p[c, 2:, c] + p[c, :-2, c] + p[2:, c, c] + p[:-2, c, c] - np.float32(6) * v)


CASES = {
    "expression of 8": lambda v: np.abs(v * 2 - 1) * np.float32(0.5) + np.clip(v, -1, 1) * v,
    "expression where": lambda v: np.where(v > v.mean(), (v - v.mean()) / v.std(), 0),
    "expression of functions": lambda v: np.exp(-v * v) * np.sin(3 * v),
    "expression Laplacian": laplacian,
    "z-score": lambda v: (v - v.mean()) / v.std(),
    "clip and scale": lambda v: (np.clip(v, -1, 1) + 1) * np.float32(0.5),
}


def milliseconds(call, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        result = call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=str(HERE.parents[1] / "build/dev/bin/volpipe_stage_bench"))
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out")
    options = parser.parse_args()
    n = options.size
    voxels = np.random.default_rng(0).standard_normal((n, n, n), dtype=np.float32)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "voxels.raw"
        voxels.tofile(data)
        done = subprocess.run([options.bench, "--device", "cpu", "--size", str(n), "--data", str(data), "--case", ",".join(CASES),
                               "--runs", str(options.runs), "--threads", str(options.threads), "--save", folder],
                              check=True, capture_output=True, text=True)
        lines = {entry["case"]: entry for entry in map(json.loads, done.stdout.splitlines()) if "case" in entry}
        for name, call in CASES.items():
            peer_ms, expected = milliseconds(lambda: call(voxels), options.runs)
            result = np.fromfile(pathlib.Path(folder) / f"{name}.raw", np.float32).reshape(voxels.shape)
            difference = np.abs(result - expected).max() / np.ptp(expected)
            assert difference < 1e-5, f"{name}: differs by {difference:.1e} of the range"
            rows.append((name, lines[name]["wall_ms"], peer_ms))
    text = [f"{n}^3 float32, {options.threads or 'all'} threads, numpy {np.__version__}, {platform.machine()}, "
            f"{datetime.date.today()}", "", "| expression | volpipe, ms | numpy, ms | times faster |", "|---|---|---|---|"]
    text += [f"| {name} | {ms:.1f} | {peer:.1f} | {peer / ms:.1f}x |" for name, ms, peer in rows]
    print("\n".join(text))
    if options.out:
        pathlib.Path(options.out).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
