"""What a run says of itself, and that it says and does the same each time."""

import json
import pathlib
import tempfile
import unittest

import nibabel
import numpy as np

from support import call, image, random_image, write_spec

STAGES = [
    {"op": "reorient", "axes": "LPI"},
    {"op": "resample", "spacing": 0.7, "interpolation": "bspline3"},
    {"op": "clip", "min": -100, "max": 150},
    {"op": "normalize"},
    {"op": "gaussian", "sigma": 1.2},
]
RUN_KEYS = {
    "version",
    "build",
    "command_line",
    "spec",
    "host",
    "devices",
    "device_requested",
    "device_used",
    "fallback_reason",
    "wall_ms",
    "totals",
    "throughput",
    "peak_host_bytes",
    "peak_device_bytes",
    "items",
}
ITEM_KEYS = {"id", "status", "inputs", "outputs", "device", "timing_ms", "transfers", "stages", "warnings"}
TIMING_KEYS = {"read", "decode", "upload", "compute", "download", "encode", "write", "total"}
TRANSFER_KEYS = {"h2d_count", "h2d_bytes", "d2h_count", "d2h_bytes"}


class Scene(unittest.TestCase):
    """Three volumes in a folder, one of them cut short."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="volpipe-report-")
        self.addCleanup(self.scratch.cleanup)
        self.root = pathlib.Path(self.scratch.name)
        (self.root / "in/sub").mkdir(parents=True)
        nibabel.save(random_image((31, 22, 17), "int16", 1, spacing=(1, 1.5, 2)), self.root / "in/a.nii.gz")
        nibabel.save(random_image((9, 8, 40), "float32", 2, orientation="SPL"), self.root / "in/sub/b.nii")
        whole = (self.root / "in/a.nii.gz").read_bytes()
        (self.root / "in/bad.nii.gz").write_bytes(whole[:-20])

    def run_scene(self, output, *arguments, stages=STAGES, inputs="in", code=1):
        spec = write_spec(self.root, stages)
        done = call("run", spec, self.root / inputs, "-o", self.root / output, "-q", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads((self.root / output / "volpipe-report.json").read_text())

    def outputs(self, output):
        return {path.relative_to(self.root / output): path.read_bytes() for path in (self.root / output).rglob("*.nii")}


class Report(Scene):
    def test_structure(self):
        report = self.run_scene("out", "--device", "cpu")
        self.assertLessEqual(RUN_KEYS, set(report))
        self.assertEqual(report["device_requested"], "cpu")
        self.assertEqual(report["device_used"], "cpu")
        self.assertIsNone(report["fallback_reason"])
        self.assertRegex(report["spec"]["sha256"], "^[0-9a-f]{64}$")
        self.assertIn("run", report["command_line"])
        totals = report["totals"]
        self.assertEqual((totals["ok"], totals["failed"], totals["skipped"]), (2, 1, 0))
        for item in report["items"]:
            self.assertLessEqual(ITEM_KEYS, set(item), item["id"])
            self.assertEqual(set(item["timing_ms"]), TIMING_KEYS)
            self.assertEqual(set(item["transfers"]), TRANSFER_KEYS)
            self.assertGreaterEqual(min(item["timing_ms"].values()), 0)

    def test_items(self):
        items = {item["id"]: item for item in self.run_scene("out", "--device", "cpu")["items"]}
        self.assertEqual(
            {name: item["status"] for name, item in items.items()}, {"a": "ok", "bad": "failed", "sub/b": "ok"}
        )
        self.assertEqual(set(items["bad"]["error"]), {"stage", "code", "message", "path"})
        self.assertEqual(items["bad"]["error"]["code"], "input")
        self.assertTrue(items["bad"]["error"]["path"].endswith("bad.nii.gz"))
        self.assertEqual([stage["op"] for stage in items["a"]["stages"]], [stage["op"] for stage in STAGES])
        self.assertEqual(items["a"]["inputs"][0]["geometry"]["size"], [31, 22, 17])
        written = nibabel.load(items["sub/b"]["outputs"][0]["path"])
        self.assertEqual(items["sub/b"]["outputs"][0]["geometry"]["size"], list(written.shape))
        np.testing.assert_allclose(items["sub/b"]["outputs"][0]["geometry"]["affine"], written.affine, atol=1e-5)
        self.assertEqual(items["a"]["transfers"], dict.fromkeys(TRANSFER_KEYS, 0))

    def test_failing_stage_is_named(self):
        report = self.run_scene(
            "out", stages=[{"op": "crop", "start": [0, 0, 0], "size": [20, 20, 10], "name": "chest"}]
        )
        error = next(item for item in report["items"] if item["id"] == "sub/b")["error"]
        self.assertEqual(error["stage"], "chest")

    def test_saturated_voxels_are_counted(self):
        volume = image(np.array([-5, 0, 255, 300, 1e9], np.float32).reshape(5, 1, 1))
        (self.root / "one").mkdir()
        nibabel.save(volume, self.root / "one/a.nii")
        report = self.run_scene("out", stages=[{"op": "cast", "dtype": "uint8"}], inputs="one", code=0)
        self.assertEqual(report["items"][0]["saturated_voxels"], 3)
        np.testing.assert_array_equal(nibabel.load(self.root / "out/a.nii").get_fdata().ravel(), [0, 0, 255, 255, 255])


class Determinism(Scene):
    def test_threads_do_not_change_a_byte(self):
        results = []
        for threads in (1, 2, 7):
            self.run_scene(f"out{threads}", "--threads", threads)
            results.append(self.outputs(f"out{threads}"))
        self.assertEqual(len(results[0]), 2)
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_again_is_the_same(self):
        self.run_scene("first")
        self.run_scene("second")
        self.assertEqual(self.outputs("first"), self.outputs("second"))

    def test_draws_depend_on_seed_and_item_alone(self):
        stages = [{"op": "gaussian", "sigma": {"uniform": [0.5, 3]}}, {"op": "flip", "axes": "x", "probability": 0.5}]
        self.run_scene("all", "--seed", 5, stages=stages)
        self.run_scene("again", "--seed", 5, "--threads", 1, stages=stages)
        self.assertEqual(self.outputs("all"), self.outputs("again"))
        self.run_scene("other", "--seed", 6, stages=stages)
        self.assertNotEqual(self.outputs("all"), self.outputs("other"))

    def test_shards_make_the_whole(self):
        for shard in (1, 2):
            done = call(
                "run",
                write_spec(self.root, STAGES),
                self.root / "in",
                "-o",
                self.root / "shards",
                "-q",
                "--shard",
                f"{shard}/2",
                "--report",
                self.root / f"{shard}.json",
            )
            self.assertIn(done.returncode, (0, 1), done.stderr)
        self.run_scene("whole")
        self.assertEqual(self.outputs("shards"), self.outputs("whole"))


class Again(Scene):
    def test_existing_outputs_are_refused_and_kept(self):
        self.run_scene("out")
        before = self.outputs("out")
        done = call(
            "run",
            write_spec(self.root, [{"op": "gaussian", "sigma": 3}]),
            self.root / "in",
            "-o",
            self.root / "out",
            "-q",
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("a.nii", done.stderr)
        self.assertEqual(self.outputs("out"), before)

    def test_overwrite_replaces(self):
        self.run_scene("out", stages=[{"op": "gaussian", "sigma": 3}])
        self.run_scene("out", "--overwrite")
        self.run_scene("fresh")
        self.assertEqual(self.outputs("out"), self.outputs("fresh"))

    def test_no_partial_file_stays(self):
        self.run_scene("out")
        names = {path.name for path in (self.root / "out").rglob("*") if path.is_file()}
        self.assertEqual(names, {"a.nii", "b.nii", "volpipe-report.json", "volpipe-journal.jsonl"})


if __name__ == "__main__":
    unittest.main()
