#!/usr/bin/env python3
"""A folder of head-size volumes through reorient, resample, clip, normalize, crop, beside scripts with SimpleITK and MONAI.

    tests/bench/batch.py --out FILE.md                    volpipe on the CPU beside the peers that can be imported
    tests/bench/batch.py --device cuda:0 --out FILE.md    and on a GPU, with the floors of the run by its trace

The volumes are made by the script: an ellipsoid with structure and noise, int16, .nii.gz, 192 x 256 x 256 voxels of
1 x 0.94 x 0.94 mm. Each program runs in a process of its own and starts with the files in the page cache, as after a first
run. A peer's script works through the files with as many processes as there are threads, one thread each, which is its
fastest way. VOLPIPE names the program; else the one of build/dev or beside the bundle's bench is taken.
"""

import argparse
import datetime
import gzip
import json
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SHAPE, SPACING = (192, 256, 256), (1.0, 0.9375, 0.9375)
NEW_SPACING, CROP = 1.5, (120, 150, 150)
SPEC = {
    "volpipe": 1,
    "stages": [
        {"op": "reorient", "axes": "LPS"},
        {"op": "resample", "spacing": [NEW_SPACING] * 3, "interpolation": "linear"},
        {"op": "clip", "min": 0, "max": 1500},
        {"op": "normalize"},
        {"op": "crop_or_pad", "size": list(CROP)},
    ],
}
SAME_SIZE = {
    "volpipe": 1,
    "stages": [
        {"op": "reorient", "axes": "LPS"},
        {"op": "gaussian", "sigma": 1.0},
        {"op": "clip", "min": 0, "max": 1500},
        {"op": "normalize"},
    ],
    "outputs": {"image": {"path": "{stem}.nii.gz"}},
}


def program():
    named = os.environ.get("VOLPIPE")
    for path in (named, HERE.parents[1] / "build/dev/bin/volpipe", HERE.parents[1] / "bin/volpipe"):
        if path and os.access(path, os.X_OK):
            return str(path)
    sys.exit("batch.py: no volpipe was found: build it, or set VOLPIPE")


def write_nifti(path, values):
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *SHAPE, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 4, 16)
    struct.pack_into("<8f", header, 76, 1, *SPACING, 1, 1, 1, 1)
    struct.pack_into("<f", header, 108, 352)
    struct.pack_into("<B", header, 123, 2)
    struct.pack_into("<2h", header, 252, 0, 1)
    for row in range(3):
        values_of_row = [0.0] * 4
        values_of_row[row] = SPACING[row]
        struct.pack_into("<4f", header, 280 + 16 * row, *values_of_row)
    header[344:348] = b"n+1\0"
    data = bytes(header) + np.asarray(values, "<i2").tobytes(order="F")
    if path.suffix == ".gz":
        with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as file:
            file.write(data)
    else:
        path.write_bytes(data)


def make_volumes(folder, count, packed=True):
    """Some different volumes, and links to them."""
    folder.mkdir(parents=True)
    axes = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in SHAPE), indexing="ij", sparse=True)
    radius = sum((axis / scale) ** 2 for axis, scale in zip(axes, (0.75, 0.85, 0.9)))
    made = []
    for i in range(count):
        path = folder / f"head{i:03}{'.nii.gz' if packed else '.nii'}"
        if len(made) < 4:
            draw = np.random.default_rng(i)
            structure = 400 + 250 * np.cos(9 * axes[0] + i) * np.cos(7 * axes[1]) * np.cos(11 * axes[2])
            head = np.where(radius < 1, structure, 0).astype(np.float32)
            noise = np.abs(draw.standard_normal(SHAPE, dtype=np.float32)) * 20  # a background of noise, as scanners give
            write_nifti(path, head + noise)
            made.append(path)
        else:
            os.link(made[i % len(made)], path)
    return folder


PEERS = {
    "SimpleITK": """
import sys, multiprocessing, pathlib
import SimpleITK as sitk
def work(job):
    source, target, crop, spacing = job
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    image = sitk.DICOMOrient(sitk.ReadImage(source), "LPS")
    size = [int(round(n * s / spacing)) for n, s in zip(image.GetSize(), image.GetSpacing())]
    image = sitk.Resample(image, size, sitk.Transform(), sitk.sitkLinear, image.GetOrigin(), [spacing] * 3, image.GetDirection(), 0.0, sitk.sitkFloat32)
    image = sitk.Clamp(image, sitk.sitkFloat32, 0, 1500)
    image = sitk.Normalize(image)
    low = [(n - c) // 2 for n, c in zip(image.GetSize(), crop)]
    image = sitk.RegionOfInterest(image, list(crop), low)
    sitk.WriteImage(image, target)
""",
    "MONAI": """
import sys, multiprocessing, pathlib, warnings
warnings.filterwarnings("ignore")
import torch
from monai.transforms import CenterSpatialCrop, Compose, LoadImage, NormalizeIntensity, Orientation, SaveImage, Spacing, ThresholdIntensity
def work(job):
    source, target, crop, spacing = job
    torch.set_num_threads(1)
    folder, name = str(pathlib.Path(target).parent), pathlib.Path(target).name
    Compose([
        LoadImage(image_only=True, ensure_channel_first=True), Orientation(axcodes="LPS"), Spacing(pixdim=(spacing,) * 3, mode="bilinear"),
        ThresholdIntensity(0, above=True, cval=0), ThresholdIntensity(1500, above=False, cval=1500), NormalizeIntensity(),
        CenterSpatialCrop(crop), SaveImage(output_dir=folder, output_postfix="", separate_folder=False, print_log=False, resample=False),
    ])(source)
""",
}
MAIN = """
if __name__ == "__main__":
    source, target, threads, spacing = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    crop = tuple(int(n) for n in sys.argv[5:8])
    jobs = [(str(p), str(pathlib.Path(target) / p.name), crop, spacing) for p in sorted(pathlib.Path(source).iterdir())]
    with multiprocessing.get_context("fork").Pool(threads) as pool:
        pool.map(work, jobs, chunksize=1)
"""


def can_import(python, name):
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0


def version_of(python, name):
    code = f"import {name}; print(getattr({name}, '__version__', ''))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.split("\n")[0]


def seconds_of(command, **more):
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"batch.py: {command[0]} ... failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - began


def run_volpipe(spec, source, output, threads, device, *options):
    shutil.rmtree(output, ignore_errors=True)
    path = output.parent / (output.name + ".json")
    path.write_text(json.dumps(spec))
    command = [program(), "run", str(path), str(source), "-o", str(output), "--device", device]
    seconds = seconds_of(command + ["--threads", str(threads), "-q", "--no-fallback", *options])
    return seconds, json.loads((output / "volpipe-report.json").read_text())


def best_of(times, work):
    runs = [work() for _ in range(times)]
    return min(runs, key=lambda run: run[0] if isinstance(run, tuple) else run)


def union_ms(spans):
    total, end = 0.0, float("-inf")
    for begin, finish in sorted(spans):
        total += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return total / 1e3


def compare_with_peers(arguments, folder, rows):
    source = make_volumes(folder / "in", arguments.count)
    seconds, report = best_of(2, lambda: run_volpipe(SPEC, source, folder / "ours", arguments.threads, "cpu"))
    rows.append(("volpipe", version_of_volpipe(), seconds, 1.0))
    for name, script in PEERS.items():
        module = {"MONAI": "monai"}.get(name, name)
        if not can_import(arguments.python, module):
            print(f"{name} cannot be imported by {arguments.python}: left out", file=sys.stderr)
            continue
        path = folder / f"peer_{name}.py"
        path.write_text(script + MAIN)
        target = folder / name
        target.mkdir()
        environment = dict(os.environ, OMP_NUM_THREADS="1", ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS="1")
        peer = seconds_of(
            [arguments.python, str(path), str(source), str(target), str(arguments.threads), str(NEW_SPACING), *map(str, CROP)],
            env=environment,
        )
        written = len(list(target.iterdir()))
        if written != arguments.count:
            sys.exit(f"batch.py: {name} wrote {written} of {arguments.count} files")
        rows.append((name, version_of(arguments.python, module), peer, peer / seconds))


def version_of_volpipe():
    return subprocess.run([program(), "--version"], capture_output=True, text=True).stdout.strip().removeprefix("volpipe ")


def run_on_gpu(arguments, folder):
    """The run, and what it cannot be faster than: unpacking and packing alone on the same threads, and the link."""
    source = folder / "in"
    if not source.exists():
        make_volumes(source, arguments.count)
    empty = {"volpipe": 1, "stages": [], "outputs": {"image": {"path": "{stem}.nii.gz", "dtype": "float32"}}}
    files, _ = best_of(2, lambda: run_volpipe(empty, source, folder / "files", arguments.threads, "cpu"))
    trace = folder / "trace.json"
    seconds, report = best_of(
        2, lambda: run_volpipe(SAME_SIZE, source, folder / "gpu", arguments.threads, arguments.device, "--trace", str(trace))
    )
    transfers = [item["transfers"] for item in report["items"]]
    link = max(sum(t["h2d_bytes"] for t in transfers), sum(t["d2h_bytes"] for t in transfers)) / arguments.link
    events = json.loads(trace.read_text())
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    gpu = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and tracks[e["tid"]].startswith("cuda")]
    lines = [
        f"GPU, {report['device_used']}, {arguments.count} volumes, {arguments.threads} threads: reorient, gaussian, clip, normalize, float32 .nii.gz",
        "",
        "| | s |",
        "|---|---|",
        f"| the run, start to end of the process | {seconds:.2f} |",
        f"| the run by its report | {report['wall_ms'] / 1e3:.2f} |",
        f"| unpacking and packing alone (no stages, cpu, same threads) | {files:.2f} |",
        f"| link: the larger direction at {arguments.link / 1e9:.0f} GB/s | {link:.2f} |",
        f"| copies and kernels on the GPU, by the trace | {union_ms(gpu) / 1e3:.2f} |",
        f"| **run / slower of the floors** | **{seconds / max(files, link):.2f}** |",
        "",
        f"Peak memory: host {report['peak_host_bytes'] / 2**30:.2f} GiB, device {report['peak_device_bytes'] / 2**30:.2f} GiB.",
    ]
    if arguments.plain:
        plain = make_volumes(folder / "plain", arguments.count, packed=False)
        spec = json.loads(json.dumps(SAME_SIZE).replace(".nii.gz", ".nii"))
        once, _ = best_of(2, lambda: run_volpipe(spec, plain, folder / "plainout", arguments.threads, arguments.device))
        lines += ["", f"The same from and to .nii in memory: {once:.2f} s."]
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--link", type=float, default=55e9, help="bytes a second of the link")
    parser.add_argument("--plain", action="store_true", help="GPU: also uncompressed files")
    parser.add_argument("--folder", default=None, help="where the files go; /dev/shm leaves the disk out")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    lines = [
        f"# A folder of {arguments.count} head volumes",
        "",
        f"{datetime.date.today()}, {cpu_model()}, {arguments.threads} threads, {platform.system()} {platform.release()};"
        f" {SHAPE[0]} x {SHAPE[1]} x {SHAPE[2]} int16 .nii.gz; volpipe {version_of_volpipe()}.",
        "",
    ]
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="volpipe-bench-") as name:
        folder = pathlib.Path(name)
        if arguments.device == "cpu":
            rows = []
            compare_with_peers(arguments, folder, rows)
            lines += ["Reorient to LPS, resample to 1.5 mm (linear), clip, normalize, crop, float32 .nii.gz; process start to end.", ""]
            lines += ["| program | version | s | s a volume | volpipe is faster by |", "|---|---|---|---|---|"]
            lines += [f"| {n} | {v} | {s:.1f} | {s / arguments.count:.3f} | {f:.1f} |" for n, v, s, f in rows]
        else:
            lines += run_on_gpu(arguments, folder)
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text)


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
