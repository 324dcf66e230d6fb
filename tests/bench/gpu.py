#!/usr/bin/env python3
"""Times volpipe's stages on a GPU beside CuPy and PyTorch, on the same voxels, in the same run, and prints one table.

A peer's result is compared with volpipe's; where they do not agree, neither time counts. The floor of an operation is
what it has to read and write at the speed of a large copy on the same card, or over the link for uploads and downloads.

    ms        device time of volpipe, the host's share hidden behind queued work (median)
    ratio     ms / floor
    wall      time of one call until its end, as the peers are timed (median); the speed-up is of this one
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent

# Milliseconds at 512^3 float32 on one H200.
GOALS = {
    "clip and scale": 0.28,
    "pointwise chain of 16": 0.28,
    "z-score": 0.45,
    "resize linear 0.75": 0.24,
    "resize bspline3 0.75": 1.8,
    "affine nearest": 0.5,
    "affine linear": 0.5,
    "affine bspline3": 2.5,
    "elastic linear": 1.5,
    "gaussian 1": 0.75,
    "gaussian 2": 0.9,
    "gaussian 4": 1.3,
    "percentiles 1 and 99": 0.45,
    "flip": 0.28,
    "transpose": 0.34,
    "pad reflect 16": 0.32,
    "pad symmetric 16": 0.32,
    "upload float32": 9.8,
    "download float32": 9.8,
    "upload int16": 4.9,
    "download int16": 4.9,
}

# Greatest difference from a peer, in parts of the range of the result.
TOLERANCE = 2e-5
# CuPy and PyTorch compute sampling coordinates of float32 volumes in float32: near 512 an ulp is 6e-5 voxel, which white
# noise turns into that share of its range. volpipe's are double (tests/conformance holds them to SciPy at 1e-5).
FLOAT32_COORDINATES = 1e-4


class Peer:
    """One library's way to do an operation. `inner`: voxels at each edge that are left out of the comparison."""

    def __init__(self, name, work, inner=0, note="", compared=True, tolerance=TOLERANCE):
        self.name, self.work, self.inner, self.note, self.compared = name, work, inner, note, compared
        self.tolerance = tolerance


class Gpu:
    """The libraries that are here, and the clock."""

    def __init__(self, index):
        self.cupy = self.ndimage = self.torch = None
        try:
            import cupy
            import cupyx.scipy.ndimage

            cupy.cuda.Device(index).use()
            cupy.zeros(1).sum()
            self.cupy, self.ndimage = cupy, cupyx.scipy.ndimage
        except Exception as error:  # an import can fail in many ways where drivers and wheels do not match
            print(f"CuPy is left out: {type(error).__name__}: {error}", file=sys.stderr)
        try:
            import torch

            torch.cuda.set_device(index)
            torch.zeros(1, device="cuda")
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            self.torch = torch
        except Exception as error:
            print(f"PyTorch is left out: {type(error).__name__}: {error}", file=sys.stderr)

    def wait(self):
        if self.cupy:
            self.cupy.cuda.Device().synchronize()
        if self.torch:
            self.torch.cuda.synchronize()

    def free(self):
        if self.cupy:
            self.cupy.get_default_memory_pool().free_all_blocks()
        if self.torch:
            self.torch.cuda.empty_cache()

    def time(self, work, runs=15, warm=3, seconds=1.5):
        """Median of milliseconds, from the call to the end of the work."""
        for _ in range(warm):
            work()
        self.wait()
        times, begin = [], time.perf_counter()
        while len(times) < runs and (len(times) < 3 or time.perf_counter() - begin < seconds):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            times.append((time.perf_counter() - start) * 1e3)
        return float(np.median(times))

    def copy_rate(self):
        """Bytes a second that a large copy reads and writes together."""
        count = 1 << 30
        if self.torch:
            source = self.torch.empty(count, device="cuda", dtype=self.torch.float32)
            target = self.torch.empty_like(source)
            ms = self.time(lambda: target.copy_(source))
        elif self.cupy:
            source = self.cupy.empty(count, self.cupy.float32)
            target = self.cupy.empty_like(source)
            ms = self.time(lambda: self.cupy.copyto(target, source))
        else:
            return None
        del source, target
        self.free()
        return 8 * count / ms * 1e3

    def link_rate(self):
        """Bytes a second of a large upload from page-locked memory."""
        host = np.zeros(1 << 28, np.float32)
        if self.torch:
            source = self.torch.from_numpy(host).pin_memory()
            target = self.torch.empty_like(source, device="cuda")
            ms = self.time(lambda: target.copy_(source, non_blocking=True))
        elif self.cupy:
            source = pinned(self.cupy, host)
            target = self.cupy.empty(host.shape, host.dtype)
            ms = self.time(lambda: target.set(source))
        else:
            return None
        del source, target
        self.free()
        return host.nbytes / ms * 1e3


def pinned(cupy, array):
    """A copy in page-locked memory."""
    memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
    copy = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    copy[...] = array
    return copy


def turned(shape):
    """Matrix and offset of the affine cases of cases.h, from output to input index, [z][y][x]."""
    x, y, z = np.radians([5.0, 10.0, 17.0])
    about_x = np.array([[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]])
    about_y = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    about_z = np.array([[np.cos(z), -np.sin(z), 0], [np.sin(z), np.cos(z), 0], [0, 0, 1]])
    direction = np.array([[0, 0, 1], [0, 1, 0], [-1, 0, 0]])  # bench_geometry
    matrix = (direction.T @ (about_z @ about_y @ about_x).T @ direction)[::-1, ::-1]
    middle = (np.array(shape) - 1) / 2
    return matrix, middle - matrix @ middle


def cupy_peers(gpu, host):
    """{case: [Peer]}. Arrays are [z][y][x]; parameters are those of cases.h."""
    cp, nd = gpu.cupy, gpu.ndimage
    c = cp.asarray(host)
    n = host.shape
    clip_scale = cp.ElementwiseKernel("float32 x", "float32 y", "y = (min(max(x, -1.f), 1.f) + 1.f) * 0.5f", "clip_scale")
    chain = cp.ElementwiseKernel(
        "float32 x", "float32 y",
        """float v = min(max(x, -3.f), 3.f);
           v = min(max((v + 3.f) * (1.f / 6.f), 0.f), 1.f);
           v = min(max((v - 0.1f) * 1.25f, 0.f), 1.f);
           v = v >= 0.05f ? v : 0.05f;
           v = (v - 0.25f) * 4.f - 1.f;
           v = min(max(v, -0.75f), 0.75f);
           v = v * 0.5f;
           v = v <= 0.3f ? v : 0.3f;
           y = min(max((v + 0.25f) * 2.f, 0.f), 1.f);""", "chain")
    block = tuple(slice(m // 8, m // 8 + m * 3 // 4) for m in n)
    zoom = dict(mode="mirror", grid_mode=True)
    matrix, offset = (cp.asarray(part) for part in turned(n))
    inner = min(n) // 4  # where every coordinate is inside

    def turn(order):
        return nd.affine_transform(c, matrix, offset, order=order, output=np.float32)

    def warp():
        if not coordinates:
            coordinates.append(cp.indices(n, dtype=np.float32) + 3 * cp.random.rand(3, *n, dtype=np.float32))
        return nd.map_coordinates(c, coordinates[0], order=1)

    coordinates = []  # made when first asked for: three times the volume
    up, down = pinned(cp, host), pinned(cp, host)
    target = cp.empty_like(c)
    short = cp.rint(c * 200).astype(cp.int16)
    short_up, short_down = pinned(cp, short.get()), pinned(cp, short.get())
    short_target = cp.empty_like(short)

    def rescaled():
        low, high = c.min(), c.max()
        return (c - low) * (np.float32(255) / (high - low))

    def pipeline():
        v = cp.empty_like(c)
        v.set(up)
        v = v.transpose(2, 1, 0)[::-1]
        v = cp.clip(nd.zoom(cp.ascontiguousarray(v), 0.75, order=1, **zoom), -2, 2)
        v = nd.gaussian_filter((v - v.mean()) / v.std(), 1)
        return v.get(out=result)

    result = pinned(cp, np.zeros([int(np.floor(m * 0.75 + 0.5)) for m in n[::-1]], np.float32))
    return {
        "clip and scale": [Peer("CuPy ElementwiseKernel", lambda: clip_scale(c)),
                           Peer("CuPy eager", lambda: (cp.clip(c, -1, 1) + 1) * np.float32(0.5))],
        "pointwise chain of 16": [Peer("CuPy ElementwiseKernel", lambda: chain(c))],
        "z-score": [Peer("CuPy", lambda: (c - c.mean()) / c.std())],
        "rescale min max": [Peer("CuPy", rescaled)],
        "resize linear 0.75": [Peer("CuPy zoom", lambda: nd.zoom(c, 0.75, order=1, **zoom), tolerance=FLOAT32_COORDINATES,
                                      note="its coordinates are float32")],
        "resize nearest 0.75": [Peer("CuPy zoom", lambda: nd.zoom(c, 0.75, order=0, **zoom), note="not compared: other neighbours at ties", compared=False)],
        "resize bspline3 0.75": [Peer("CuPy zoom", lambda: nd.zoom(c, 0.75, order=3, **zoom), tolerance=FLOAT32_COORDINATES,
                                      note="its coordinates are float32")],
        "affine nearest": [Peer("CuPy affine_transform", lambda: turn(0), note="not compared: its coordinates are float32", compared=False)],
        "affine linear": [Peer("CuPy affine_transform", lambda: turn(1), inner, tolerance=FLOAT32_COORDINATES,
                               note="its coordinates are float32")],
        "affine bspline3": [Peer("CuPy affine_transform", lambda: turn(3), inner, tolerance=FLOAT32_COORDINATES,
                                 note="its coordinates are float32")],
        "elastic linear": [Peer("CuPy map_coordinates", warp, note="not compared: coordinates given, of noise", compared=False)],
        **{f"gaussian {s}": [Peer("CuPy gaussian_filter", lambda s=s: nd.gaussian_filter(c, s))] for s in (1, 2, 4)},
        "percentiles 1 and 99": [Peer("CuPy percentile", lambda: cp.percentile(c, cp.asarray([1.0, 99.0])))],
        "flip": [Peer("CuPy", lambda: cp.ascontiguousarray(c[::-1, ::-1, ::-1]))],
        "transpose": [Peer("CuPy", lambda: cp.ascontiguousarray(c.transpose(2, 1, 0)))],
        "pad reflect 16": [Peer("CuPy pad", lambda: cp.pad(c, 16, mode="reflect"))],
        "pad symmetric 16": [Peer("CuPy pad", lambda: cp.pad(c, 16, mode="symmetric"))],
        "crop": [Peer("CuPy", lambda: cp.ascontiguousarray(c[block]))],
        "upload float32": [Peer("CuPy, pinned", lambda: target.set(up)), Peer("CuPy, pageable", lambda: cp.asarray(host))],
        "download float32": [Peer("CuPy, pinned", lambda: c.get(out=down))],
        "upload int16": [Peer("CuPy, pinned", lambda: short_target.set(short_up))],
        "download int16": [Peer("CuPy, pinned", lambda: short.get(out=short_down))],
        "pipeline of five stages": [Peer("CuPy, pinned", pipeline)],
    }


def torch_peers(gpu, host):
    torch = gpu.torch
    functional = torch.nn.functional
    t = torch.from_numpy(host).cuda()
    t5 = t[None, None]
    n = host.shape
    small = [int(np.floor(m * 0.75 + 0.5)) for m in n]
    flat = t.flatten()
    block = tuple(slice(m // 8, m // 8 + m * 3 // 4) for m in n)
    up = torch.from_numpy(host).pin_memory()
    target = torch.empty_like(t)
    short = (t * 200).round().to(torch.int16)
    short_up = short.cpu().pin_memory()
    short_target = torch.empty_like(short)

    def chain():
        v = t.clamp(-3, 3)
        v = ((v + 3) * (1 / 6)).clamp(0, 1)
        v = ((v - 0.1) * 1.25).clamp(0, 1)
        v = torch.where(v >= 0.05, v, 0.05)
        v = (((v - 0.25) * 4 - 1).clamp(-0.75, 0.75)) * 0.5
        v = torch.where(v <= 0.3, v, 0.3)
        return ((v + 0.25) * 2).clamp(0, 1)

    def gaussian(sigma):
        radius = int(4 * sigma + 0.5)
        x = torch.arange(-radius, radius + 1, device="cuda", dtype=torch.float64)
        kernel = torch.exp(-x * x / (2 * sigma * sigma))
        kernel = (kernel / kernel.sum()).float()
        v = t5
        for axis in range(3):
            shape, padding = [1, 1, 1, 1, 1], [0, 0, 0]
            shape[2 + axis], padding[axis] = -1, radius
            v = functional.conv3d(v, kernel.reshape(shape), padding=padding)
        return v[0, 0]

    def rescaled():
        low, high = torch.aminmax(t)
        return (t - low) * (255 / (high - low))

    count = flat.numel()
    ranks = int((count - 1) * 0.01) + 1, int((count - 1) * 0.99) + 1
    return {
        "clip and scale": [Peer("PyTorch eager", lambda: (t.clamp(-1, 1) + 1) * 0.5)],
        "pointwise chain of 16": [Peer("PyTorch eager", chain)],
        "z-score": [Peer("PyTorch", lambda: (t - t.mean()) / t.std(correction=0))],
        "rescale min max": [Peer("PyTorch", rescaled)],
        "resize linear 0.75": [Peer("PyTorch interpolate", lambda: functional.interpolate(
            t5, size=small, mode="trilinear", align_corners=False)[0, 0],
            tolerance=FLOAT32_COORDINATES, note="its coordinates are float32")],
        "resize nearest 0.75": [Peer("PyTorch interpolate", lambda: functional.interpolate(
            t5, size=small, mode="nearest-exact")[0, 0], note="not compared: other neighbours at ties", compared=False)],
        **{f"gaussian {s}": [Peer("PyTorch conv3d", lambda s=s: gaussian(s), inner=int(4 * s + 0.5),
                                  note="zeros outside; compared away from the edges")] for s in (1, 2, 4)},
        "percentiles 1 and 99": [Peer("PyTorch kthvalue", lambda: torch.stack(
            [flat.kthvalue(k).values for k in ranks]), note="order statistics, not interpolated")],
        "flip": [Peer("PyTorch", lambda: t.flip(0, 1, 2))],
        "transpose": [Peer("PyTorch", lambda: t.permute(2, 1, 0).contiguous())],
        "pad reflect 16": [Peer("PyTorch pad", lambda: functional.pad(t5, (16,) * 6, mode="reflect")[0, 0])],
        "crop": [Peer("PyTorch", lambda: t[block].contiguous())],
        "upload float32": [Peer("PyTorch, pinned", lambda: target.copy_(up, non_blocking=True))],
        "download float32": [Peer("PyTorch, pinned", lambda: up.copy_(t, non_blocking=True))],
        "upload int16": [Peer("PyTorch, pinned", lambda: short_target.copy_(short_up, non_blocking=True))],
        "download int16": [Peer("PyTorch, pinned", lambda: short_up.copy_(short, non_blocking=True))],
    }


def as_numpy(value):
    return value.get() if hasattr(value, "get") else value.cpu().numpy() if hasattr(value, "cpu") else np.asarray(value)


def differ(ours, peer):
    """Why the peer's result is another one, in words; empty when they agree."""
    theirs = as_numpy(peer.work())
    if theirs.size != ours.size:
        return f"{theirs.size} values, volpipe has {ours.size}"
    ours = ours.reshape(theirs.shape)
    inner = tuple(slice(peer.inner, m - peer.inner) for m in theirs.shape) if peer.inner else ...
    a, b = ours[inner], theirs[inner]
    scale = float(max(np.ptp(b), np.abs(b).max(), 1e-30))
    worst = float(np.abs(a - b).max()) / scale
    return "" if worst <= peer.tolerance else f"differs by {worst:.1e} of the range"


def run_volpipe(options, size, data, folder):
    """{case: line of volpipe_stage_bench}; results lie in folder/<case>.raw."""
    lines = folder / "lines.json"
    command = [options.bench, "--device", options.device, "--size", ",".join(map(str, size)), "--data", data,
               "--json", lines, "--save", folder, *(["--case", ",".join(options.case)] if options.case else [])]
    done = subprocess.run(list(map(str, command)))
    if done.returncode:
        sys.exit(f"gpu.py: {options.bench} ended with {done.returncode}")
    return {line["case"]: line for line in map(json.loads, lines.read_text().splitlines())}


def compare(gpu, line, saved, peers):
    """The peers' times beside volpipe's: [{name, ms, note, agrees}]."""
    ours = np.asarray(line["values"], np.float64) if "values" in line else None
    if saved.exists():
        ours = np.fromfile(saved, np.float32)
        saved.unlink()
    rows = []
    for peer in peers:
        row = {"name": peer.name, "note": peer.note, "agrees": None}
        try:
            row["ms"] = gpu.time(peer.work)
            if ours is not None and peer.compared:
                difference = differ(ours, peer)
                row["agrees"] = not difference
                row["note"] = "; ".join(filter(None, [difference, peer.note]))
        except Exception as error:  # one peer that lacks memory or a feature must not end the table
            row["note"] = f"{type(error).__name__}: {str(error)[:80]}"
        gpu.free()
        rows.append(row)
    return rows


def measure(options, gpu, size, rates):
    """One entry an operation for one size."""
    host = np.random.default_rng(0).standard_normal(size[::-1], dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="volpipe-bench-", dir=options.temp) as name:
        folder = pathlib.Path(name)
        host.tofile(folder / "data.raw")
        lines = run_volpipe(options, size, folder / "data.raw", folder)
        peers = {}
        for found in ([cupy_peers(gpu, host)] if gpu.cupy else []) + ([torch_peers(gpu, host)] if gpu.torch else []):
            for case, list_of_peers in found.items():
                peers.setdefault(case, []).extend(list_of_peers)
        entries = []
        for case, line in lines.items():
            rows = compare(gpu, line, folder / f"{case}.raw", peers.get(case, []))
            entries.append(entry_of(case, line, rows, rates[line["traffic"]]))
            print_entry(entries[-1])
    return entries


def entry_of(case, line, peers, rate):
    timed = [peer for peer in peers if "ms" in peer and peer["agrees"] is not False]
    best = min(timed, key=lambda peer: peer["ms"], default=None)
    floor = line["bytes"] / rate * 1e3 if rate else None
    return {
        **line,
        "floor_ms": floor,
        "ratio": line["ms"] / floor if floor else None,
        "goal_ms": GOALS.get(case) if line["size"] == [512, 512, 512] else None,
        "peers": peers,
        "best_peer": best,
        "speed_up": best["ms"] / line["wall_ms"] if best else None,
    }


COLUMNS = ("operation", "volpipe, ms", "floor", "ratio", "goal", "volpipe wall", "best peer", "peer, ms", "speed-up", "agrees, notes")


def number(value, digits=3, suffix=""):
    return "" if value is None else f"{value:.{digits}f}{suffix}"


def cells(entry):
    best = entry["best_peer"] or {}
    checked = [peer for peer in entry["peers"] if peer["agrees"] is not None]
    agreement = f"{sum(peer['agrees'] for peer in checked)} of {len(checked)}" if checked else ""
    notes = [f"{peer['name']}: {peer['note']}" for peer in entry["peers"] if peer["note"]]
    if "transfers" in entry:
        notes.append(f"{entry['transfers']['h2d_count']} upload, {entry['transfers']['d2h_count']} download")
    if "instructions" in entry:
        notes.append(f"{entry['instructions']} instructions")
    return (entry["case"], number(entry["ms"]), number(entry["floor_ms"]), number(entry["ratio"], 2), number(entry["goal_ms"], 2),
            number(entry["wall_ms"]), best.get("name", ""), number(best.get("ms")), number(entry["speed_up"], 1, "x"),
            "; ".join(filter(None, [agreement, *notes])))


WIDTHS = (25, 11, 8, 6, 6, 12, 24, 9, 8, 0)


def print_row(row):
    print("  ".join(text.ljust(width) if i in (0, 6, 9) else text.rjust(width) for i, (text, width) in enumerate(zip(row, WIDTHS))), flush=True)


def print_entry(entry):
    print_row(cells(entry))


def output_of(*command):
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE).stdout.strip()
    return ""


def describe(options, gpu, rates):
    index = options.device.partition(":")[2] or "0"
    card = output_of("nvidia-smi", "-i", index, "--query-gpu=name,driver_version", "--format=csv,noheader").split(", ")
    name, driver = card if len(card) == 2 else ("unknown card", "unknown")
    return {
        "card": name,
        "driver": driver,
        "date": datetime.date.today().isoformat(),
        "commit": options.commit or output_of("git", "rev-parse", "--short", "HEAD") or "unknown",
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "cupy": gpu.cupy.__version__ if gpu.cupy else None,
        "torch": gpu.torch.__version__ if gpu.torch else None,
        "bytes_per_second": rates,
    }


def in_words(rates):
    return "" if not rates["device"] else (f"A large copy reads and writes {rates['device'] / 1e12:.2f} TB/s, "
                                           f"an upload moves {rates['link'] / 1e9:.1f} GB/s.")


def markdown(about, sizes):
    peers = ", ".join(f"{name} {about[key]}" for name, key in (("CuPy", "cupy"), ("PyTorch", "torch")) if about[key])
    lines = [f"# {about['card']}, {about['date']}", "",
             f"Driver {about['driver']}, {peers or 'no peers'}, volpipe at {about['commit']}. {in_words(about['bytes_per_second'])}",
             "Times are medians in milliseconds: `volpipe` of the device's clock, `wall` and the peers from the call to its end.",
             "The speed-up is the best agreeing peer's time over `wall`."]
    for size, entries in sizes.items():
        lines += ["", f"## {size} float32, standard normal", "", "| " + " | ".join(COLUMNS) + " |",
                  "|" + "---|" * len(COLUMNS), *("| " + " | ".join(cells(entry)) + " |" for entry in entries)]
    return "\n".join(lines) + "\n"


def find_bench(given):
    for candidate in (given, HERE.parents[1] / "bin" / "volpipe_stage_bench", HERE.parents[1] / "build" / "dev" / "bin" / "volpipe_stage_bench",
                      shutil.which("volpipe_stage_bench")):
        if candidate and pathlib.Path(candidate).exists():
            return candidate
    sys.exit("gpu.py: volpipe_stage_bench was not found: build it (preset dev), or name it with --bench")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["512"], metavar="N", help="edges, or X,Y,Z (default 512)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--bench", help="the program volpipe_stage_bench")
    parser.add_argument("--case", nargs="+", default=[], help="only these operations")
    parser.add_argument("--out", default=os.environ.get("OUT", "."), help="folder of gpu.json and gpu.md (default $OUT, else here)")
    parser.add_argument("--temp", help="folder for voxels, some 60 bytes for each of the largest size")
    parser.add_argument("--commit", help="what was built, where there is no git")
    options = parser.parse_args()
    options.bench = find_bench(options.bench)

    gpu = Gpu(int(options.device.partition(":")[2] or 0))
    rates = {"device": gpu.copy_rate(), "link": gpu.link_rate()}
    about = describe(options, gpu, rates)
    print(f"{about['card']}, driver {about['driver']}, CuPy {about['cupy']}, PyTorch {about['torch']}. {in_words(rates)}")
    results = {}
    for text in options.sizes:
        size = [int(part) for part in text.split(",")]
        size = size * 3 if len(size) == 1 else size
        name = " x ".join(map(str, size))
        print(f"\n{name} float32")
        print_row(COLUMNS)
        results[name] = measure(options, gpu, size, rates)
        gpu.free()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps({"about": about, "results": results}, indent=1))
    (out / "gpu.md").write_text(markdown(about, results))
    print(f"\nwritten: {out / 'gpu.json'}, {out / 'gpu.md'}")
    wrong = [entry["case"] for entries in results.values() for entry in entries for peer in entry["peers"] if peer["agrees"] is False]
    if wrong:
        sys.exit("gpu.py: peers disagree on " + ", ".join(sorted(set(wrong))))


if __name__ == "__main__":
    main()
