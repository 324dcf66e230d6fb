#!/usr/bin/env python3
"""Runs command-line tests: each line `EXIT  COMMAND` of the given .txt files (all beside this script by default).

A line runs under `bash -o pipefail` in a fresh folder that holds the inputs of `write_inputs` below. Environment:
VOLPIPE is the program; SAMPLES and CONFIGS are the folders of the repository unless set. A line may use

    volpipe ARGS...        the program
    spec STAGE...          writes s.json with these stages (JSON objects)
    ... | says TEXT        passes when the text read contains TEXT; else exit 99, which no line expects
    ... | says_nothing     passes when nothing was read

so `2  volpipe validate s.json 2>&1 | says "did you mean"` asserts the exit code and the message.
"""

import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TIMEOUT_S = 120

PRELUDE = r"""
volpipe() { "$VOLPIPE" "$@"; }
spec() { local IFS=,; printf '{"volpipe": 1, "stages": [%s]}\n' "$*" > s.json; }
says() {
  local text; text=$(cat)
  [[ $text == *"$1"* ]] || { printf 'not said: %s\n%s\n' "$1" "$text" >&2; return 99; }
}
says_nothing() { local text; text=$(cat); [[ -z $text ]] || { printf 'said: %s\n' "$text" >&2; return 99; }; }
"""


def nifti(shape, values, code="h", origin=(0, 0, 0), spacing=(1, 1, 1)):
    """Bytes of a NIfTI-1 file with an sform."""
    datatype, bits = {"B": (2, 8), "h": (4, 16), "i": (8, 32), "f": (16, 32)}[code]
    dim = [len(shape), *shape] + [1] * (7 - len(shape))
    pixdim = [1.0, *spacing] + [1.0] * 4
    header = struct.pack(
        "<i10s18sihcB8h3f4h8f3fh2B",
        348,
        b"",
        b"",
        0,
        0,
        b"r",
        0,
        *dim,
        0,
        0,
        0,
        0,
        datatype,
        bits,
        0,
        *pixdim,
        352,
        1,
        0,
        0,
        0,
        2,
    )
    header += struct.pack("<4f2i80s24s2h6f", 0, 0, 0, 0, 0, 0, b"", b"", 0, 1, *[0.0] * 6)
    for axis in range(3):
        row = [0.0, 0.0, 0.0, float(origin[axis])]
        row[axis] = float(spacing[axis])
        header += struct.pack("<4f", *row)
    header += struct.pack("<16s4s", b"", b"n+1\0")
    return header + b"\0" * 4 + struct.pack(f"<{len(values)}{code}", *values)


def write_inputs(folder):
    """a: int16 24x20x16 at 1 x 1 x 2 mm; b: a with one voxel changed by 5; far: a moved by 5 mm; small: another size;
    seg: labels 0 to 3 on a's grid; big: int32 above 2^24 and big1, one more in one voxel; nan: float with a NaN; four:
    three frames; bad: a cut short; in/a.nii.gz, in/sub/c.nii; empty/; s.json: gaussian."""
    draw = random.Random(1)
    shape, spacing = (24, 20, 16), (1, 1, 2)
    count = 24 * 20 * 16
    values = [draw.randint(-1000, 2000) for _ in range(count)]
    changed = [*values[:100], values[100] + 5, *values[101:]]
    large = [16777217 + i for i in range(60)]
    packed = {
        "a.nii.gz": nifti(shape, values, spacing=spacing),
        "b.nii.gz": nifti(shape, changed, spacing=spacing),
        "far.nii.gz": nifti(shape, values, spacing=spacing, origin=(5, 0, 0)),
        "small.nii.gz": nifti((3, 4, 5), values[:60]),
        "seg.nii.gz": nifti(shape, [draw.randint(0, 3) for _ in range(count)], "B", spacing=spacing),
        "big.nii.gz": nifti((3, 4, 5), large, "i"),
        "big1.nii.gz": nifti((3, 4, 5), [large[0] + 1, *large[1:]], "i"),
        "nan.nii.gz": nifti((3, 4, 5), [float("nan"), *map(float, range(59))], "f"),
        "four.nii.gz": nifti((4, 5, 3, 3), [draw.randint(0, 9) for _ in range(180)]),
        "in/a.nii.gz": nifti(shape, values, spacing=spacing),
    }
    for name in ("in/sub", "empty"):
        (folder / name).mkdir(parents=True)
    for name, content in packed.items():
        (folder / name).write_bytes(gzip.compress(content, mtime=0))
    whole = (folder / "a.nii.gz").read_bytes()
    (folder / "bad.nii.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "in/sub/c.nii").write_bytes(nifti((5, 4, 3), values[:60]))
    (folder / "s.json").write_text(json.dumps({"volpipe": 1, "stages": [{"op": "gaussian", "sigma": 1}]}))


def read_tests(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            code, command = line.split(None, 1)
            yield f"{path.name}:{number}", int(code), command


def run_test(test, inputs, environment):
    """None when the line passed, else what to show."""
    place, expected, command = test
    with tempfile.TemporaryDirectory(prefix="volpipe-cli-") as folder:
        shutil.copytree(inputs, folder, dirs_exist_ok=True)
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", PRELUDE + command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"{place}: no end within {TIMEOUT_S} s\n  {command}"
    if done.returncode == expected:
        return None
    shown = "".join(f"    {line}\n" for line in (done.stderr + done.stdout).splitlines()[:20])
    return f"{place}: exit {done.returncode}, expected {expected}\n  {command}\n{shown}"


def main(arguments):
    if "VOLPIPE" not in os.environ:
        sys.exit("set VOLPIPE to the program")
    paths = [pathlib.Path(name) for name in arguments] or sorted(HERE.glob("*.txt"))
    tests = [test for path in paths for test in read_tests(path)]
    environment = {"SAMPLES": str(REPOSITORY / "sample_data"), "CONFIGS": str(REPOSITORY / "configs"), **os.environ}
    environment["VOLPIPE"] = str(pathlib.Path(os.environ["VOLPIPE"]).resolve())
    with tempfile.TemporaryDirectory(prefix="volpipe-cli-inputs-") as folder:
        inputs = pathlib.Path(folder)
        write_inputs(inputs)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = [text for text in pool.map(lambda test: run_test(test, inputs, environment), tests) if text]
    print(*failures, f"{len(tests) - len(failures)} of {len(tests)} lines passed", sep="\n")
    return 1 if failures or not tests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
