#!/usr/bin/env python3
"""Wall time of whole commands, from exec to exit: those that read no volume, and one stage over a 64^3 file.

usage: startup.py [--volpipe PROGRAM] [--runs 20] [--out FILE]
"""
import argparse
import gzip
import json
import os
import pathlib
import statistics
import struct
import tempfile
import time

from cpu import HERE, commit, cpu_model

EDGE = 64


def write_volume(path):
    """64^3 int16 with an sform of 1 mm, head-like: half of it air, the rest noise."""
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, EDGE, EDGE, EDGE, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 4, 16)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 0, 0, 0, 0)
    struct.pack_into("<2f", header, 108, 352, 1)
    struct.pack_into("<h", header, 254, 1)
    struct.pack_into("<12f", header, 280, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0)
    header[344:348] = b"n+1\0"
    noise = memoryview(os.urandom(EDGE ** 3))
    voxels = b"".join(struct.pack("<h", 0 if i // EDGE % 2 else 400 + noise[i]) for i in range(EDGE ** 3))
    path.write_bytes(gzip.compress(bytes(header) + voxels, 6))


def time_command(command, runs):
    """Milliseconds of each run after two warm ones; posix_spawn, because subprocess costs as much as what is measured."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    times = []
    for _ in range(runs + 2):
        begin = time.perf_counter()
        _, status = os.waitpid(os.posix_spawnp(command[0], command, os.environ, file_actions=quiet), 0)
        times.append((time.perf_counter() - begin) * 1e3)
        if status:
            raise SystemExit(f"startup.py: {command} ended with {os.waitstatus_to_exitcode(status)}")
    return times[2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--volpipe", default=str(HERE.parents[1] / "build" / "dev" / "bin" / "volpipe"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="volpipe-bench-") as name:
        folder = pathlib.Path(name)
        volume, spec = folder / "in.nii.gz", folder / "spec.json"
        write_volume(volume)
        spec.write_text(json.dumps({"volpipe": 1, "stages": [{"op": "gaussian", "sigma": 1}]}))
        run = [options.volpipe, "run", spec, volume, "-o", folder / "out", "--device", "cpu", "--overwrite", "-q"]
        rows = [
            ("`true` (what starting any process costs here)", None, ["true"]),
            ("`volpipe --version`", 5, [options.volpipe, "--version"]),
            ("`volpipe stages`", 5, [options.volpipe, "stages"]),
            ("`volpipe validate SPEC`", 5, [options.volpipe, "validate", spec]),
            ("`volpipe info` of a 64^3 .nii.gz", None, [options.volpipe, "info", volume]),
            ("`volpipe run --device cpu`, gaussian over a 64^3 .nii.gz to .nii.gz", 150, run),
        ]
        lines = [f"Whole commands on {cpu_model()}, volpipe at {commit()}: wall time in milliseconds, {options.runs} runs each.", "",
                 "| command | median | least | goal |", "|---|---|---|---|"]
        for text, goal, command in rows:
            times = time_command([str(part) for part in command], options.runs)
            lines.append(f"| {text} | {statistics.median(times):.1f} | {min(times):.1f} | {goal or ''} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
