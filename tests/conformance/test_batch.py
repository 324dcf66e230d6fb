"""Runs over many items: stopped at any moment, short of disk, with files that change, and what is left behind.

Every result is compared with that of an undisturbed run, byte by byte.
"""

import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time

import nibabel
import numpy as np
import pytest

from support import PROGRAM

ITEMS = 24
SPEC = {
    "volpipe": 1,
    "stages": [
        {"op": "reorient", "axes": "LPS"},
        {"op": "resample", "spacing": [1.5, 1.5, 1.5], "interpolation": "linear"},
        {"op": "clip", "min": 10, "max": 900},
        {"op": "normalize"},
        {"op": "noise", "kind": "gaussian", "std": 0.1},
    ],
}


def command(folder, output, *options):
    return [PROGRAM, "run", str(folder / "spec.json"), str(folder / "in"), "-o", str(output), "--device", "cpu", *options]


def run(folder, output, *options, **more):
    return subprocess.run(command(folder, output, *options), capture_output=True, text=True, **more)


def results(output):
    """Name -> hash of every file under its final name but the run's own."""
    found = {}
    for path in sorted(pathlib.Path(output).rglob("*")):
        if path.is_file() and not path.name.startswith((".", "volpipe-")):
            found[str(path.relative_to(output))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def partial_files(output):
    return [path for path in pathlib.Path(output).rglob(".*") if ".partial" in path.name]


def report_of(output, name="volpipe-report.json"):
    return json.loads((pathlib.Path(output) / name).read_text())


def statuses(report):
    return {item["id"]: item["status"] for item in report["items"]}


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """A folder of inputs of mixed sizes and types, and the results of an undisturbed run."""
    folder = tmp_path_factory.mktemp("batch")
    draw = np.random.default_rng(5)
    for i in range(ITEMS):
        place = folder / "in" / f"site{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        shape = (18 + i, 25, 11 + i % 5)
        data = draw.normal(400, 200, shape).astype((np.float32, np.int16)[i % 2])
        image = nibabel.Nifti1Image(data, np.diag([1.1, 0.9, 2.0, 1]))
        nibabel.save(image, place / f"scan{i:02}{('.nii.gz', '.nii')[i % 4 == 3]}")
    (folder / "spec.json").write_text(json.dumps(SPEC))
    done = run(folder, folder / "undisturbed")
    assert done.returncode == 0, done.stderr
    expected = results(folder / "undisturbed")
    assert len(expected) == ITEMS
    return folder, expected


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_results_do_not_depend_on_threads(batch, tmp_path, threads):
    folder, expected = batch
    assert run(folder, tmp_path / "out", "--threads", str(threads)).returncode == 0
    assert results(tmp_path / "out") == expected


def test_results_do_not_depend_on_where_memory_lies(batch, tmp_path):
    folder, expected = batch
    # Every process gets other addresses. At its levels 1 and 2 ISA-L hashes one: about 1 file in 1000 came out otherwise.
    for _ in range(100):
        assert run(folder, tmp_path / "out", "--overwrite").returncode == 0
        assert results(tmp_path / "out") == expected


@pytest.mark.parametrize("shards", [2, 5, 30])
def test_results_do_not_depend_on_shards(batch, tmp_path, shards):
    folder, expected = batch
    reports = []
    for shard in range(1, shards + 1):
        done = run(folder, tmp_path / "out", "--shard", f"{shard}/{shards}")
        assert done.returncode == 0, done.stderr
        reports.append(str(tmp_path / "out" / f"volpipe-report.{shard}-of-{shards}.json"))
    assert results(tmp_path / "out") == expected
    merged = subprocess.run([PROGRAM, "report", "merge", *reports, "-o", str(tmp_path / "all.json")], capture_output=True)
    assert merged.returncode == 0
    whole = report_of(folder / "undisturbed")
    report = json.loads((tmp_path / "all.json").read_text())
    assert statuses(report) == statuses(whole) and report["totals"] == whole["totals"]


def test_results_do_not_depend_on_the_order_of_inputs(batch, tmp_path):
    folder, expected = batch
    files = [str(path) for path in (folder / "in").rglob("*.nii*")]
    random.Random(3).shuffle(files)
    # Named one by one, files have no folder below an input: their stems tell them apart.
    named = subprocess.run(
        [PROGRAM, "run", str(folder / "spec.json"), *files, "-o", str(tmp_path / "out"), "--device", "cpu"],
        capture_output=True,
    )
    assert named.returncode == 0
    files.sort()
    again = subprocess.run(
        [PROGRAM, "run", str(folder / "spec.json"), *files, "-o", str(tmp_path / "again"), "--device", "cpu"],
        capture_output=True,
    )
    assert again.returncode == 0 and results(tmp_path / "out") == results(tmp_path / "again")


def test_killed_at_any_moment_it_leaves_whole_files_and_goes_on(batch, tmp_path):
    folder, expected = batch
    began = time.monotonic()
    assert run(folder, tmp_path / "timing").returncode == 0
    lasts = time.monotonic() - began
    moments = random.Random(17)
    finished = 0
    for kill in range(200):
        output = tmp_path / f"out{finished}"
        process = subprocess.Popen(command(folder, output, "--resume", "--threads", "2"), stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, lasts))
        process.send_signal(signal.SIGKILL)
        code = process.wait()
        assert code in (0, -signal.SIGKILL)
        left = results(output) if output.exists() else {}
        assert all(expected[name] == value for name, value in left.items()), f"kill {kill} left a file that is not whole"
        if code == 0:
            assert left == expected
            finished += 1
    output = tmp_path / f"out{finished}"
    before = len(results(output)) if output.exists() else 0
    done = run(folder, output, "--resume")
    assert done.returncode == 0, done.stderr
    assert results(output) == expected
    assert not partial_files(output)
    resumed = report_of(output)["totals"]["resumed"]
    assert resumed <= before, "only what is there can be taken over"


def test_resume_makes_only_what_is_missing(batch, tmp_path):
    folder, expected = batch
    output = tmp_path / "out"
    assert run(folder, output).returncode == 0
    names = sorted(expected)
    stamps = {name: (output / name).stat().st_mtime_ns for name in names}
    (output / names[0]).unlink()
    with open(output / names[1], "r+b") as file:  # same size, other bytes
        file.seek(100)
        file.write(b"\xff\x00\xff")
    os.utime(output / names[2])  # touched, the same bytes
    done = run(folder, output, "--resume")
    assert done.returncode == 0, done.stderr
    assert results(output) == expected
    report = report_of(output)
    assert report["totals"]["resumed"] == ITEMS - 2 and report["totals"]["ok"] == 2
    changed = {name for name in names if (output / name).stat().st_mtime_ns != stamps[name]}
    assert changed == set(names[:3])
    whole = report_of(folder / "undisturbed")
    assert [item["id"] for item in report["items"]] == [item["id"] for item in whole["items"]]
    for item, undisturbed in zip(report["items"], whole["items"]):
        assert item["inputs"] == undisturbed["inputs"]


def test_resume_does_again_what_was_made_otherwise(batch, tmp_path):
    folder, expected = batch
    other = tmp_path / "other"
    shutil.copytree(folder / "in", other / "in", copy_function=shutil.copy2)
    shutil.copy(folder / "spec.json", other)
    output = tmp_path / "out"
    assert run(other, output).returncode == 0
    assert report_of(output)["totals"]["resumed"] == 0
    # another seed
    assert run(other, output, "--resume", "--seed", "5").returncode == 0
    assert report_of(output)["totals"] == {"items": ITEMS, "ok": ITEMS, "failed": 0, "skipped": 0, "resumed": 0}
    assert results(output) != expected
    # another input
    path = sorted((other / "in").rglob("*.nii.gz"))[0]
    time.sleep(0.01)
    os.utime(path)
    assert run(other, output, "--resume", "--seed", "5").returncode == 0
    assert report_of(output)["totals"]["resumed"] == ITEMS - 1
    # another spec
    spec = json.loads((other / "spec.json").read_text())
    spec["stages"][2]["max"] = 800
    (other / "spec.json").write_text(json.dumps(spec))
    assert run(other, output, "--resume", "--seed", "5").returncode == 0
    assert report_of(output)["totals"]["resumed"] == 0


def test_a_torn_last_line_of_the_journal_is_passed_over(batch, tmp_path):
    folder, expected = batch
    output = tmp_path / "out"
    assert run(folder, output).returncode == 0
    journal = output / "volpipe-journal.jsonl"
    text = journal.read_bytes()
    journal.write_bytes(text[: len(text) - 40])
    assert run(folder, output, "--resume").returncode == 0
    assert report_of(output)["totals"]["resumed"] == ITEMS - 1
    assert run(folder, output, "--resume").returncode == 0
    assert report_of(output)["totals"]["resumed"] == ITEMS
    assert results(output) == expected


def resumed_after(folder, spec, manifest, change):
    """How many items are taken over after `change`, of a run over a manifest."""
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [PROGRAM, "run", str(folder / "spec.json"), "--manifest", str(manifest), "-o", str(folder / "out"), "--device", "cpu"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    change()
    again = subprocess.run(command + ["--resume"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    return report_of(folder / "out")["totals"]["resumed"]


@pytest.fixture
def pairs(tmp_path):
    draw = np.random.default_rng(4)
    for name in ("p", "q"):
        nibabel.save(nibabel.Nifti1Image(draw.normal(5, 1, (9, 8, 7)).astype(np.float32), np.eye(4)), tmp_path / f"{name}.nii")
    (tmp_path / "m.csv").write_text("id,image,other\nx,p.nii,q.nii\n")
    return tmp_path


TWO_IMAGES = {
    "volpipe": 1,
    "inputs": {"image": {}, "other": {"suffix": "_other", "optional": True}},
    "stages": [{"op": "shift", "offset": 1, "on": "image"}],
}


def test_resume_sees_that_images_changed_places(pairs):
    change = lambda: (pairs / "m.csv").write_text("id,image,other\nx,q.nii,p.nii\n")
    assert resumed_after(pairs, TWO_IMAGES, pairs / "m.csv", lambda: None) == 1
    shutil.rmtree(pairs / "out")
    assert resumed_after(pairs, TWO_IMAGES, pairs / "m.csv", change) == 0


def test_resume_sees_that_an_image_is_gone(pairs):
    change = lambda: (pairs / "m.csv").write_text("id,image,other\nx,p.nii,\n")
    assert resumed_after(pairs, TWO_IMAGES, pairs / "m.csv", change) == 0


def test_resume_sees_changes_of_the_files_that_stages_name(pairs):
    def grid(name, size):
        data = np.zeros((size, size, size), np.float32)
        (pairs / name).unlink(missing_ok=True)
        nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), pairs / name)

    spec = {"volpipe": 1, "stages": [{"op": "resample_to", "reference": "ref.nii"}]}
    (pairs / "one.csv").write_text("id,image\nx,p.nii\n")
    grid("ref.nii", 5)
    assert resumed_after(pairs, spec, pairs / "one.csv", lambda: grid("ref.nii", 6)) == 0
    grid("a.nii", 5)
    grid("b.nii", 6)
    (pairs / "ref.nii").unlink()
    (pairs / "ref.nii").symlink_to("a.nii")

    def retarget():
        (pairs / "ref.nii").unlink()
        (pairs / "ref.nii").symlink_to("b.nii")

    shutil.rmtree(pairs / "out")
    assert resumed_after(pairs, spec, pairs / "one.csv", retarget) == 0


def test_resume_does_not_believe_an_edited_journal(pairs):
    (pairs / "one.csv").write_text("id,image\nx,p.nii\n")
    spec = {"volpipe": 1, "stages": [{"op": "shift", "offset": 1}]}

    def edit(key, value):
        journal = pairs / "out" / "volpipe-journal.jsonl"
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        lines[-1][key] = value
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))

    for key, value in (("outputs", []), ("outputs", {}), ("record", 7), ("record", {}), ("origins", []), ("key", "x")):
        assert resumed_after(pairs, spec, pairs / "one.csv", lambda: edit(key, value)) == 0, (key, value)
        shutil.rmtree(pairs / "out")


@pytest.mark.parametrize("descriptors", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_standard_descriptors_that_are_closed_never_become_outputs(batch, tmp_path, descriptors):
    folder, expected = batch
    done = subprocess.run(command(folder, tmp_path / "out", "-v"), preexec_fn=lambda: [os.close(d) for d in descriptors])
    assert done.returncode == 0
    assert results(tmp_path / "out") == expected


def test_a_header_and_its_voxels_survive_a_kill_between_them(batch, tmp_path):
    folder, _ = batch
    spec = dict(SPEC, outputs={"image": {"path": "{dir}/{stem}.mhd"}})
    other = tmp_path / "mhd"
    shutil.copytree(folder / "in", other / "in")
    (other / "spec.json").write_text(json.dumps(spec))
    assert run(other, tmp_path / "out").returncode == 0
    expected = results(tmp_path / "out")
    sorted((tmp_path / "out").rglob("*.mhd"))[0].unlink()
    assert run(other, tmp_path / "out", "--resume").returncode == 0
    assert results(tmp_path / "out") == expected
    assert run(other, tmp_path / "out", "--overwrite").returncode == 0
    assert results(tmp_path / "out") == expected


def test_a_report_that_cannot_be_written_is_said_before_any_work(batch, tmp_path):
    folder, _ = batch
    done = run(folder, tmp_path / "out", "--report", str(tmp_path))
    assert done.returncode == 2 and not results(tmp_path / "out"), done.stderr
    for option in ("--shard", "--memory"):
        assert run(folder, tmp_path / "out", option, "").returncode == 2


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_politely(batch, tmp_path, number, code):
    folder, expected = batch
    for delay in (0.05, 0.1, 0.15, 0.2):
        output = tmp_path / f"out{delay}"
        process = subprocess.Popen(command(folder, output, "--threads", "1"), stderr=subprocess.PIPE)
        time.sleep(delay)
        process.send_signal(number)
        process.communicate()
        if process.returncode == 0:  # it was through
            continue
        if process.returncode == -number:  # before it could listen
            continue
        assert process.returncode == code
        report = report_of(output)
        assert report["interrupted"] and len(report["items"]) == ITEMS
        left = results(output)
        ok = sum(status == "ok" for status in statuses(report).values())
        assert ok == len(left) and all(expected[name] == value for name, value in left.items())
        assert set(statuses(report).values()) <= {"ok", "skipped"} and not partial_files(output)
        assert run(folder, output, "--resume").returncode == 0
        assert results(output) == expected and report_of(output)["totals"]["resumed"] == ok


@pytest.fixture
def mounted(tmp_path):
    """mounted(options) -> a fresh file system in memory."""
    places = []

    def mount(options):
        place = tmp_path / f"mount{len(places)}"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
        if done.returncode != 0:
            pytest.skip("mounting a file system needs rights that this process lacks")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_spoils_nothing(batch, tmp_path, mounted):
    folder, expected = batch
    small = mounted("size=256k")
    done = run(folder, small / "out")
    assert done.returncode == 4 and "space" in done.stderr, done.stderr
    left = results(small / "out")
    assert len(left) < ITEMS and all(expected[name] == value for name, value in left.items())
    assert not partial_files(small / "out")
    subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
    done = run(folder, small / "out", "--resume")
    assert done.returncode == 0, done.stderr
    assert results(small / "out") == expected


def test_a_read_only_folder_is_said_before_any_work(batch, tmp_path, mounted):
    folder, _ = batch
    place = mounted("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    done = run(folder, place / "out")
    assert done.returncode == 4 and "[1/" not in done.stderr, done.stderr


def test_a_limit_on_file_sizes_is_an_error_of_the_output(batch, tmp_path):
    folder, expected = batch
    output = tmp_path / "out"
    done = run(folder, output, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12000, 12000)))
    assert done.returncode in (1, 4) and "ulimit -f" in done.stderr, done.stderr
    assert all(expected[name] == value for name, value in results(output).items())
    assert not partial_files(output)
    assert run(folder, output, "--resume").returncode == 0
    assert results(output) == expected


@pytest.mark.parametrize("option", ["--report", "--trace", "--log-file"])
def test_files_of_its_own_that_cannot_be_written_are_said(batch, tmp_path, option):
    folder, _ = batch
    done = run(folder, tmp_path / "out", option, str(tmp_path / "no" / "such" / "x"))
    if done.returncode == 0:
        assert option in ("--report", "--log-file") and (tmp_path / "no" / "such" / "x").stat().st_size > 0
    else:
        assert done.returncode == 2 and str(tmp_path / "no") in done.stderr


def test_standard_output_that_is_full_is_an_error(batch):
    folder, _ = batch
    path = next((folder / "in").rglob("*.nii.gz"))
    with open("/dev/full", "w") as full:
        assert subprocess.run([PROGRAM, "info", str(path)], stdout=full, stderr=subprocess.DEVNULL).returncode == 4


def test_files_that_vanish_or_shrink_cost_themselves(batch, tmp_path):
    folder, expected = batch
    other = tmp_path / "other"
    shutil.copytree(folder / "in", other / "in")
    shutil.copy(folder / "spec.json", other)
    victims = sorted((other / "in").rglob("*.nii*"))[-6:]
    process = subprocess.Popen(command(other, tmp_path / "out", "--threads", "1"), stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "out").rglob("*.nii.gz")) and process.poll() is None:
        time.sleep(0.001)
    for i, path in enumerate(victims):
        if i % 2:
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)
    _, errors = process.communicate()
    report = report_of(tmp_path / "out")
    left = results(tmp_path / "out")
    failed = [item for item in report["items"] if item["status"] == "failed"]
    assert process.returncode == (1 if failed else 0), errors
    assert len(failed) <= len(victims) and len(left) == ITEMS - len(failed)
    assert all(expected[name] == value for name, value in left.items())
    for item in failed:
        assert item["error"]["code"] == "input" and item["error"]["path"] in errors


def test_two_runs_into_one_folder_do_not_mix(batch, tmp_path):
    folder, expected = batch
    output = tmp_path / "out"
    first = subprocess.Popen(command(folder, output, "--threads", "1"), stderr=subprocess.DEVNULL)
    while not (output / "volpipe-journal.jsonl").exists() and first.poll() is None:
        time.sleep(0.001)
    second = run(folder, output, "--overwrite")
    assert first.wait() == 0
    assert second.returncode == 0 or (second.returncode == 2 and "another run" in second.stderr)
    assert results(output) == expected


def resident_kib(process):
    try:
        for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def test_memory_is_flat_over_a_thousand_items(batch, tmp_path):
    folder, _ = batch
    many = tmp_path / "many"
    (many / "in").mkdir(parents=True)
    shutil.copy(folder / "spec.json", many)
    sources = sorted((folder / "in").rglob("*.nii*"))
    for i in range(1000):
        source = sources[i % len(sources)]
        name = f"i{i:04}{''.join(source.suffixes)}"
        os.link(source, many / "in" / name)
    process = subprocess.Popen(command(many, tmp_path / "out", "-q"), stderr=subprocess.DEVNULL)
    early, late = [], []
    journal = tmp_path / "out" / "volpipe-journal.jsonl"
    while process.poll() is None:
        done = journal.read_bytes().count(b"\n") if journal.exists() else 0
        # At 1001 lines all is done, and the report is made.
        (early if done < 250 else late if 750 < done < 1000 else []).append(resident_kib(process))
        time.sleep(0.02)
    assert process.returncode == 0
    # Records of items are kept for the report, about 6 KiB each; the volumes of one item are below 1 MiB.
    assert max(late) - max(early) < 12 * 1024, (max(early), max(late))


def test_memory_stays_below_the_bound(tmp_path):
    folder = tmp_path / "mixed"
    (folder / "in").mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"volpipe": 1, "stages": [{"op": "gaussian", "sigma": 1}]}))
    draw = np.random.default_rng(2)
    for i in range(24):
        size = (160, 64, 24, 24)[i % 4]
        data = draw.normal(0, 100, (size, size, size)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), folder / "in" / f"v{i:02}.nii")
    single = tmp_path / "single"
    (single / "in").mkdir(parents=True)
    os.link(folder / "in" / "v03.nii", single / "in" / "v.nii")
    shutil.copy(folder / "spec.json", single)

    def peak(where, *options):
        done = run(where, tmp_path / f"out{len(list(tmp_path.iterdir()))}", "--threads", "4", *options)
        assert done.returncode == 0, done.stderr
        return report_of(done.args[done.args.index("-o") + 1])["peak_host_bytes"]

    program = peak(single)
    bound = 64 << 20
    # One 160^3 item needs 160^3 (2 + 4 + 4) bytes = 39 MiB; what is not volumes (packing blocks, the pool's rounding by
    # an eighth) stays below a third of the bound.
    assert peak(folder, "--memory", "64M") - program < bound * 4 / 3
    refused = run(folder, tmp_path / "refused", "--memory", "8M")
    assert refused.returncode == 1 and "--memory" in refused.stderr
    assert report_of(tmp_path / "refused")["totals"]["ok"] == 18


def test_the_trace_shows_that_steps_overlap(batch, tmp_path):
    folder, _ = batch
    assert run(folder, tmp_path / "out", "--trace", str(tmp_path / "trace.json"), "--threads", "2").returncode == 0
    events = json.loads((tmp_path / "trace.json").read_text())
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = [event for event in events if event["ph"] == "X"]
    tracks = {names[span["tid"]].split()[0] for span in spans}
    assert tracks == {"reader", "cpu", "writer"}
    assert {span["args"]["item"] for span in spans} == set(statuses(report_of(folder / "undisturbed")))
    for tid in names:
        own = sorted((span["ts"], span["ts"] + span["dur"]) for span in spans if span["tid"] == tid)
        # Times are written with microseconds.
        assert all(end <= begin + 1 for (_, end), (begin, _) in zip(own, own[1:])), "one thing at a time on a track"
    computes = [span for span in spans if names[span["tid"]] == "cpu"]
    others = [span for span in spans if names[span["tid"]] != "cpu"]
    assert any(
        a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"] and a["args"] != b["args"]
        for a in computes
        for b in others
    )
