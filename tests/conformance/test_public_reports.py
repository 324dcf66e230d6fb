"""Faults that users of MONAI and TorchIO reported in public, each as a small input with the right answer.

Only what concerns geometry, crops, labels, interpolation and chains of stages; each test names its report.
"""

import json
import os
import pathlib
import tempfile
import unittest

import nibabel
import numpy as np
from nibabel.affines import apply_affine
from scipy import ndimage

from support import affine, assert_affine, assert_close, call, data, image, load, random_image, rotation, run

LPS = np.diag([-1.0, -1, 1, 1])


def exact_affine(spacing=(1, 1, 1), angles=(0, 0, 0), origin=(0, 0, 0)):
    """In float64, as NRRD and MetaImage store it."""
    result = np.eye(4)
    result[:3, :3] = rotation(angles) * spacing
    result[:3, 3] = origin
    return result


def row(values):
    return " ".join(repr(float(value)) for value in np.ravel(values))


def nrrd(array, matrix, space="left-posterior-superior"):
    """Bytes of a NRRD file of the volume whose voxel-to-RAS map is `matrix`."""
    stored = matrix if space == "right-anterior-superior" else LPS @ matrix
    vectors = ["(" + row(vector).replace(" ", ",") + ")" for vector in stored[:3].T]
    return (
        "NRRD0004\n"
        f"type: {dict(float32='float').get(array.dtype.name, array.dtype.name)}\ndimension: 3\nspace: {space}\nsizes: {' '.join(map(str, array.shape))}\n"
        f"space directions: {' '.join(vectors[:3])}\nkinds: domain domain domain\nendian: little\nencoding: raw\n"
        f"space origin: {vectors[3]}\n\n"
    ).encode() + array.tobytes(order="F")


def metaimage(array, matrix):
    stored = LPS @ matrix
    spacing = np.linalg.norm(stored[:3, :3], axis=0)
    return (
        "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False\n"
        f"TransformMatrix = {row((stored[:3, :3] / spacing).T)}\nOffset = {row(stored[:3, 3])}\n"
        f"ElementSpacing = {row(spacing)}\nDimSize = {' '.join(map(str, array.shape))}\n"
        f"ElementType = {dict(int16='MET_SHORT', uint8='MET_UCHAR', float32='MET_FLOAT')[array.dtype.name]}\n"
        "ElementDataFile = LOCAL\n"
    ).encode() + array.tobytes(order="F")


def grid_points(volume):
    """World place of each voxel, (x, y, z, 3)."""
    return apply_affine(volume.affine, np.stack(np.meshgrid(*map(np.arange, volume.shape[:3]), indexing="ij"), -1))


def world_ramp(shape, matrix, direction=(1, 0, 0)):
    """An image that holds a world coordinate: linear interpolation keeps it, wherever it samples."""
    points = grid_points(image(np.zeros(shape, np.uint8), matrix))
    return image((points @ np.array(direction, float)).astype(np.float32), matrix)


def blob(shape, matrix, center, sigma):
    """A Gaussian ball at a place in the world."""
    away = grid_points(image(np.zeros(shape, np.uint8), matrix)) - center
    return image((1000 * np.exp(-(away**2).sum(-1) / (2 * sigma**2))).astype(np.float32), matrix)


def centroid(volume):
    values = data(volume).astype(float)
    return (grid_points(volume) * values[..., None]).sum((0, 1, 2)) / values.sum()


def middle(volume):
    return apply_affine(volume.affine, (np.array(volume.shape[:3]) - 1) / 2)


class Case(unittest.TestCase):
    """A folder of its own for each test."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="volpipe-public-reports-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.runs = 0

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            nibabel.save(content, path)
        return path

    def start(self, stages, images, kinds=None, extension="nii", arguments=(), **more):
        """(finished process, output folder) of `stages` over one item, {name: NIfTI image or path}; the same images
        make an item of the same name, so that random stages draw alike."""
        self.runs += 1
        out = self.folder / f"out{self.runs}"
        paths = {
            name: volume if isinstance(volume, pathlib.Path) else self.write(f"in_{name}.nii", volume)
            for name, volume in images.items()
        }
        (self.folder / "items.json").write_text(json.dumps([{name: str(path) for name, path in paths.items()}]))
        spec = {
            "volpipe": 1,
            "inputs": {name: {"suffix": f"_{name}", "kind": (kinds or {}).get(name, "image")} for name in images},
            "stages": stages,
            "outputs": {name: {"path": "{name}." + extension} for name in images},
            **more,
        }
        (self.folder / "spec.json").write_text(json.dumps(spec))
        options = ("--manifest", self.folder / "items.json", "-o", out, "--device", "cpu", "-q", *arguments)
        return call("run", self.folder / "spec.json", *options), out

    def run_item(self, stages, images, **options):
        """{name: image out}."""
        done, out = self.start(stages, images, **options)
        self.assertEqual(done.returncode, 0, f"{stages}\n{done.stderr}")
        extension = options.get("extension", "nii")
        if extension != "nii":
            return {name: out / f"{name}.{extension}" for name in images}
        return {name: load(out / f"{name}.nii") for name in images}

    def run_one(self, stages, volume, kind="image", **options):
        return self.run_item(stages, {"a": volume}, kinds={"a": kind}, **options)["a"]

    def assert_places(self, volume, direction, where="", tolerance=1e-4, inside=slice(None)):
        """Every voxel holds the world coordinate of where it lies."""
        wanted = grid_points(volume) @ np.array(direction, float)
        block = (inside,) * 3
        error = np.abs(data(volume)[block] - wanted[block]).max()
        self.assertLess(error, tolerance * max(1, np.abs(wanted).max()), where)

    def geometry(self, path):
        """(size, affine) in full precision."""
        found = json.loads(call("info", "--json", "--header-only", path).stdout)["files"][0]["geometry"]
        return tuple(found["size"]), np.array(found["affine"])


class Spacing(Case):
    def test_extent_and_center(self):
        """MONAI #5061: Spacing changed the physical extent."""
        source = image(np.zeros((128, 128, 32), np.uint8))
        stage = {"op": "resample", "spacing": [2, 1, 0.2]}
        extent = self.run_one([stage], source)
        self.assertEqual(extent.shape, (64, 128, 160))
        assert_affine(extent.affine, affine((2, 1, 0.2), origin=(0.5, 0, -0.4)))
        center = self.run_one([{**stage, "grid": "center"}], source)
        self.assertEqual(center.shape, (65, 128, 156))
        assert_affine(center.affine, affine((2, 1, 0.2)))

    def test_six_or_five(self):
        """TorchIO #825: 3 voxels of 1 mm at 0.5 mm are 6 (the field of view kept) or 5 (the outer centres kept)."""
        source = image(np.ones((3, 3, 3), np.int16))
        for grid, size in (("extent", 6), ("center", 5)):
            got = self.run_one([{"op": "resample", "spacing": 0.5, "grid": grid}], source)
            self.assertEqual(got.shape, (size,) * 3)
            np.testing.assert_array_equal(data(got), 1)

    def test_sizes_round_half_up(self):
        """MONAI Spacing, round half to even: N of 1 mm at 2 mm gave 2 2 2 3 4 4 4 5 6 6 6, 8 mm as many as 6 mm."""
        sizes = range(3, 14)
        images = {str(n): image(np.zeros((n, 1, 1), np.uint8)) for n in sizes}
        for grid, wanted in (
            ("extent", [2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7]),
            ("center", [2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]),
        ):
            results = run([{"op": "resample", "spacing": [2, None, None], "grid": grid}], images)
            self.assertEqual([results[str(n)].shape[0] for n in sizes], wanted, grid)

    def test_sizes_have_no_rounding_error(self):
        """MONAI Zoom floor(N * z): 100 * 0.29 is 28.999999999999996 in doubles, and sizes came out one short."""
        cases = [
            (100, 0.29, 29),
            (100, 0.57, 57),
            (100, 0.58, 58),
            (10, 1.1, 11),
            (5, 0.5, 3),
            (10, 0.35, 4),
            (110, 1.15, 127),
        ]
        cases += [(1000, 0.001, 1), (3, 1 / 3, 1), (49, 1 / 49, 1), (93, 1 / 31, 3), (7, 0.7, 5)]
        for n, scale, wanted in cases:
            source = image(np.zeros((n, 1, 1), np.uint8))
            got = self.run_one([{"op": "resize", "scale": [scale, 1, 1]}], source)
            self.assertEqual(got.shape[0], wanted, f"{n} * {scale}")
            assert_affine(got.affine, affine((n / wanted, 1, 1), origin=((n / wanted - 1) / 2, 0, 0)))

    def test_spacing_for_a_size_gives_that_size(self):
        """MONAI Zoom/Spacing: floor(m * (n / m)) is n - 1 for some n and m, as 49 and 107."""
        targets = (1, 3, 10, 41, 47, 49, 55, 61, 82, 83, 94, 97, 98, 103, 107, 110, 117)
        sizes = (49, 64, 107, 128)
        images = {str(n): image(np.zeros((n, 1, 1), np.uint8)) for n in sizes}
        for n in sizes:
            for m in targets:
                got = self.run_one(
                    [{"op": "resample", "spacing": [n / m, 1, 1], "interpolation": "nearest"}], images[str(n)]
                )
                self.assertEqual(got.shape[0], m, f"{n} to {m}")

    def test_rounded_affines_give_the_same_grid(self):
        """MONAI Spacing: an oblique affine rounded to float32, as every NIfTI has it, gave a grid shifted by half the
        change of spacing; two files whose affines differ by 1e-7 got different grids."""
        exact = exact_affine((0.7, 0.7, 3), (17, 9, 0), (-81.3, 44.7, 120.9))
        array = np.zeros((256, 256, 60), np.uint8)
        rounded = exact.astype(np.float32).astype(float)
        for grid in ("extent", "center"):
            stage = {"op": "resample", "spacing": [1.5, 1.5, 2], "interpolation": "nearest", "grid": grid}
            found = []
            for name, matrix in (("exact", exact), ("rounded", rounded)):
                path = self.write(f"{name}.nrrd", nrrd(array, matrix))
                found.append(self.geometry(self.run_one([stage], path, extension="nrrd")))
            (first_size, first), (second_size, second) = found
            self.assertEqual(first_size, second_size)
            self.assertLess(np.abs(first[:3, 3] - second[:3, 3]).max(), 1e-4)
            wanted = exact[:3, 3]
            if grid == "extent":
                wanted = apply_affine(exact, (np.array((1.5, 1.5, 2)) / (0.7, 0.7, 3) - 1) / 2)
            self.assertLess(np.abs(first[:3, 3] - wanted).max(), 1e-9)

    def test_origin_wherever_the_image_lies(self):
        """MONAI Spacing(scale_extent): origins between -0.7 and 0.2 moved to the wrong side: -0.5 instead of 0.5."""
        source = image(np.zeros((4, 4, 4), np.uint8))
        for origin in (-3, -0.7, -0.5, -0.2, 0, 0.1, 0.2, 5):
            matrix = affine(origin=(origin, 0, origin))
            got = self.run_one([{"op": "resample", "spacing": 2}], image(data(source), matrix))
            assert_affine(got.affine, affine((2, 2, 2), origin=(origin + 0.5, 0.5, origin + 0.5)), origin)
        flipped = np.diag([-1.0, -1, 1, 1])
        flipped[:3, 3] = (0.2, 3, 0)
        got = self.run_one([{"op": "resample", "spacing": 2}], image(data(source), flipped))
        wanted = np.diag([-2.0, -2, 2, 1])
        wanted[:3, 3] = (-0.3, 2.5, 0.5)
        assert_affine(got.affine, wanted)

    def test_field_of_view_of_an_oblique_image_stays(self):
        """MONAI Spacing(diagonal): the middle of a 17 degree oblique 10^3 volume moved by (1.17, 0.88, 1.0) mm."""
        source = image(np.zeros((12, 12, 12), np.uint8), affine(angles=(0, 0, 17), origin=(5, -3, 2)))
        got = self.run_one([{"op": "resample", "spacing": 3}], source)
        np.testing.assert_allclose(middle(got), middle(source), atol=1e-5)
        np.testing.assert_allclose(got.affine[:3, :3], 3 * source.affine[:3, :3], atol=1e-6)
        # 10 mm are three voxels of 3 mm: the edge of the first voxel stays.
        source = image(np.zeros((10, 10, 10), np.uint8), source.affine)
        got = self.run_one([{"op": "resample", "spacing": 3}], source)
        self.assertEqual(got.shape, (3, 3, 3))
        first_edge = [apply_affine(volume.affine, [-0.5] * 3) for volume in (source, got)]
        np.testing.assert_allclose(*first_edge, atol=1e-5)

    def test_micrometres(self):
        """MONAI Spacing, SpatialResample: tolerances of 1e-3 mm made 0.0005 mm to 0.001 mm, and moves by a voxel, do
        nothing."""
        matrix = affine((0.0005,) * 3)
        source = world_ramp((8, 8, 8), matrix)
        got = self.run_one([{"op": "resample", "spacing": 0.001, "antialias": False}], source)
        self.assertEqual(got.shape, (4, 4, 4))
        np.testing.assert_allclose(data(got)[:, 0, 0], [0.00025, 0.00125, 0.00225, 0.00325], rtol=1e-5)
        moved = self.run_one([{"op": "affine", "translate": [0.0005, 0, 0], "fill": -1}], source)
        np.testing.assert_allclose(data(moved)[0], -1)
        np.testing.assert_allclose(data(moved)[1:], data(source)[:-1], atol=1e-8)
        reference = self.write(
            "reference.nii", image(np.zeros((8, 8, 8), np.uint8), affine((0.0005,) * 3, origin=(0.0005, 0, 0)))
        )
        shifted = self.run_one([{"op": "resample_to", "reference": str(reference), "fill": -1}], source)
        np.testing.assert_allclose(data(shifted)[:-1], data(source)[1:], atol=1e-8)
        np.testing.assert_allclose(data(shifted)[-1], -1)

    def test_small_differences_are_resampled_to_the_exact_grid(self):
        """MONAI SpatialResample: within 1e-3 of the target nothing was done and the old affine stayed."""
        source = world_ramp((9, 9, 9), affine())
        target = affine(origin=(0.0009, 0, 0))
        reference = self.write("reference.nii", image(np.zeros((9, 9, 9), np.uint8), target))
        got = self.run_one([{"op": "resample_to", "reference": str(reference), "boundary": "nearest"}], source)
        np.testing.assert_array_equal(got.affine, target)
        np.testing.assert_allclose(data(got)[:-1, 0, 0], np.arange(8) + 0.0009, atol=1e-6)

    def test_enormous_result_is_refused_before_it_is_allocated(self):
        """MONAI #7469: pixdim 0.001 on 512^3 had the process killed."""
        path = self.write("a.nii", image(np.zeros((1, 1, 1), np.uint8)))
        header = bytearray(path.read_bytes()[:352])
        header[42:48] = np.array([512, 512, 512], "<i2").tobytes()
        path.write_bytes(header)
        os.truncate(path, 352 + 512**3)
        spec = self.folder / "spec.json"
        spec.write_text(json.dumps({"volpipe": 1, "stages": [{"op": "resample", "spacing": 0.001}]}))
        for command in (("plan", spec, path), ("run", spec, path, "-o", self.folder / "out", "-q")):
            done = call(*command)
            self.assertIn(done.returncode, (1, 2), done.stderr)
            self.assertIn("512000 x 512000 x 512000", done.stderr)
            self.assertNotIn("bad_alloc", done.stderr)

    def test_geometry_that_a_file_lacks_is_said(self):
        """MONAI #7529, #8399: an identity affine taken silently where the file has none."""
        header = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 4 4\nencoding: raw\n\n"
        bare = nibabel.Nifti1Image(np.zeros((4, 4, 4), np.uint8), None)
        bare.set_sform(None, 0)
        bare.set_qform(None, 0)
        for path in (self.write("a.nrrd", header + bytes(64)), self.write("b.nii", bare)):
            notices = json.loads(call("info", "--json", path).stdout)["files"][0]["notices"]
            self.assertTrue(notices, path.name)
            done, _ = self.start([{"op": "resample", "spacing": 2}], {"a": path}, arguments=("--strict",))
            self.assertEqual(done.returncode, 1, path.name)
            self.assertIn(path.name, done.stderr)

    def test_ties_of_nearest_go_up(self):
        """TorchIO #782: at exactly half the size, tools disagree which voxel nearest takes; the upper one here."""
        index = np.indices((8, 8, 8))
        checkerboard = (index.sum(0) % 2 + 2 * index[0]).astype(np.int16)
        for stage in ({"op": "resample", "spacing": 2}, {"op": "resize", "size": 4}, {"op": "resize", "scale": 0.5}):
            got = self.run_one([{**stage, "interpolation": "nearest"}], image(checkerboard))
            np.testing.assert_array_equal(data(got), checkerboard[1::2, 1::2, 1::2])

    def test_ties_do_not_depend_on_rounded_headers(self):
        """TorchIO #782: the tie rule holds for spacings and directions that float32 rounds, up or down."""
        array = np.random.default_rng(5).integers(0, 4, (8, 8, 8), np.uint8)
        first = {}
        for spacing in (1, 0.7, 1.1, 0.9, 0.3, 0.8, 1.3):
            for angles in ((0, 0, 0), (17, 9, -31)):
                fine = affine((spacing,) * 3, angles, (-80, 33, 41.3))
                coarse = fine @ np.array([[2, 0, 0, 0.5], [0, 2, 0, 0.5], [0, 0, 2, 0.5], [0, 0, 0, 1]])
                reference = self.write("reference.nii", image(np.zeros((4, 4, 4), np.uint8), coarse))
                for kind, interpolation in (("image", "nearest"), ("label", "nearest"), ("label", "label_linear")):
                    for stage in (
                        {"op": "resample", "spacing": round(2 * spacing, 3)},
                        {"op": "resample_to", "reference": str(reference)},
                    ):
                        got = data(self.run_one([{**stage, "interpolation": interpolation}], image(array, fine), kind))
                        wanted = (
                            array[1::2, 1::2, 1::2] if interpolation == "nearest" else first.setdefault("vote", got)
                        )
                        np.testing.assert_array_equal(got, wanted, f"{stage}, {interpolation}, {spacing} mm, {angles}")

    def test_there_and_back_is_the_same_grid(self):
        """MONAI PR #1997: the inverse of Spacing gave 101 voxels instead of 100."""
        source = random_image((100, 101, 107), "uint8", spacing=(1, 1, 1), angles=(3, 5, 7), origin=(-50, 20, 9))
        stages = [{"op": "resample", "spacing": [1.2, 1.01, 0.9], "name": "iso"}, {"op": "invert", "of": "iso"}]
        got = self.run_one(stages, source)
        self.assertEqual(got.shape, source.shape)
        np.testing.assert_array_equal(got.affine, source.affine)

    def test_inverse_of_what_changed_nothing(self):
        """MONAI #4907: Invert failed where Resize had found the size as it should be."""
        for shape in ((128, 128, 128), (9, 8, 7)):
            source = random_image(shape, "int16")
            stages = [
                {"op": "resize", "size": list(shape), "name": "size"},
                {"op": "resample", "spacing": 1, "name": "space"},
                {"op": "reorient", "name": "turn"},
                {"op": "invert", "of": "turn"},
                {"op": "invert", "of": "space"},
                {"op": "invert", "of": "size"},
            ]
            got = self.run_one(stages, source)
            np.testing.assert_array_equal(data(got), data(source))
            np.testing.assert_array_equal(got.affine, source.affine)

    def test_orientation_stays(self):
        """TorchIO #271: Resample turned the image to RAS."""
        source = random_image((10, 12, 8), spacing=(1, 2, 3), orientation="PIR", origin=(30, 20, 10))
        got = self.run_one([{"op": "resample", "spacing": 4}], source)
        self.assertEqual("".join(nibabel.aff2axcodes(got.affine)), "PIR")
        self.assertEqual(got.shape, (3, 6, 6))

    def test_spacing_after_reorientation_does_not_depend_on_the_file(self):
        """tutorials #545: the axes that Spacing acts on are the file's; after reorient they are the spec's."""
        source = random_image((12, 9, 7), spacing=(1, 1.5, 2), angles=(5, -4, 8))
        turned = source.as_reoriented(
            nibabel.orientations.ornt_transform(
                nibabel.io_orientation(source.affine), nibabel.orientations.axcodes2ornt("PIR")
            )
        )
        stages = [{"op": "reorient", "axes": "RAS"}, {"op": "resample", "spacing": [3, 1, 2]}]
        first, second = (self.run_one(stages, image(data(volume), volume.affine)) for volume in (source, turned))
        assert_close(data(first), data(second), tolerance=1e-6)
        assert_affine(first.affine, second.affine)

    def test_spacing_before_reorientation_is_warned_of(self):
        """tutorials #545: unequal spacings before the orientation is known scale different axes of different files."""
        source = random_image((4, 4, 4))
        stages = [{"op": "resample", "spacing": [3, 1, 2]}, {"op": "reorient", "axes": "RAS"}]
        done, out = self.start(stages, {"a": source}, arguments=("--progress", "none"))
        self.assertEqual(done.returncode, 0, done.stderr)
        report = (out / "volpipe-report.json").read_text()
        self.assertIn("reorient", json.dumps(json.loads(report)["items"][0]["warnings"]))

    def test_input_is_not_changed(self):
        """TorchIO #1268, MONAI #2286: a second use of a stage, or of an image, met what the first had changed."""
        source = random_image((64, 64, 64), "uint8")
        stages = [{"op": "resample", "spacing": [None, None, 2.5], "name": "coarse"}, {"op": "invert", "of": "coarse"}]
        path = self.write("a.nii", source)
        before = path.read_bytes()
        spec = {"volpipe": 1, "stages": stages, "repeat": 3, "outputs": {"image": {"path": "{repeat}.nii"}}}
        (self.folder / "spec.json").write_text(json.dumps(spec))
        done = call("run", self.folder / "spec.json", path, "-o", self.folder / "out", "--device", "cpu", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = [load(self.folder / f"out/{i}.nii") for i in range(3)]
        self.assertEqual(results[0].shape, (64, 64, 64))
        for result in results[1:]:
            np.testing.assert_array_equal(data(result), data(results[0]))
        self.assertEqual(path.read_bytes(), before)

    def test_shear_stays_in_the_grid(self):
        """MONAI Spacing, TorchIO #1467: the shear of a tilted gantry was dropped from the grid, so places moved."""
        sheared = affine((0.8, 0.9, 5), (3, -8, 20), (10, 20, 30))
        sheared[:3, 2] += np.tan(np.radians(15)) * 5 / 0.9 * sheared[:3, 1]
        sheared = sheared.astype(np.float32).astype(float)
        source = world_ramp((20, 20, 6), sheared, (1, -2, 3))
        got = self.run_one([{"op": "resample", "spacing": [1.2, 1.2, 2], "antialias": False}], source)
        units = [matrix[:3, :3] / np.linalg.norm(matrix[:3, :3], axis=0) for matrix in (sheared, got.affine)]
        np.testing.assert_allclose(*units, atol=1e-6)
        self.assert_places(got, (1, -2, 3), inside=slice(2, -2))
        upright = self.run_one([{"op": "untilt", "boundary": "constant", "fill": -1e6}], source)
        steps = upright.affine[:3, :3]
        np.testing.assert_allclose(steps.T @ steps, np.diag(np.diag(steps.T @ steps)), atol=1e-4)
        shown = data(upright) > -1e5
        self.assertGreater(shown.mean(), 0.5)
        places = grid_points(upright) @ (1.0, -2, 3)
        np.testing.assert_allclose(data(upright)[shown], places[shown], rtol=1e-4, atol=1e-2)

    def test_incomplete_spacing_is_refused(self):
        """MONAI Spacing: missing components repeated the last one, though the text says the first."""
        for spacing in ([2], [2, 1], [1, 1, 1, 1], [], [1, -1, 1], [0, 1, 1]):
            spec = self.folder / "spec.json"
            spec.write_text(json.dumps({"volpipe": 1, "stages": [{"op": "resample", "spacing": spacing}]}))
            done = call("validate", spec)
            self.assertEqual(done.returncode, 2, spacing)
            self.assertIn("/stages/0/spacing", done.stderr)


class Resizing(Case):
    def test_edges_and_centers(self):
        """MONAI Resize(align_corners): the affine was that of edges also where the outer centres were kept."""
        for align, size, wanted in (
            ("centers", 9, np.arange(9) / 2),
            ("edges", 10, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4]),
        ):
            source = image(np.arange(5, dtype=np.float32).reshape(5, 1, 1))
            got = self.run_one([{"op": "resize", "size": [size, 1, 1], "align": align}], source)
            np.testing.assert_allclose(data(got).ravel(), wanted, atol=1e-6)
            source = world_ramp((9, 8, 7), affine((0.8, 1.3, 2.5), (10, -20, 35), (-30, 12, 55)), (1, 2, -1))
            got = self.run_one([{"op": "resize", "size": [13, 11, 16], "align": align}], source)
            self.assert_places(got, (1, 2, -1), align, inside=slice(2, -2))

    def test_scale_about_the_middle_of_a_ramp(self):
        """MONAI PR #8690, #4938: the sampler and the grid disagreed on align_corners."""
        source = image(np.arange(5, dtype=np.float32).reshape(5, 1, 1))
        stage = {"op": "affine", "scale": [0.5, 1, 1], "antialias": False, "fill": -1}
        np.testing.assert_allclose(data(self.run_one([stage], source)).ravel(), [-1, 0, 2, 4, -1], atol=1e-6)
        stage["scale"] = [2, 1, 1]
        np.testing.assert_allclose(data(self.run_one([stage], source)).ravel(), [1, 1.5, 2, 2.5, 3], atol=1e-6)

    def test_borders_do_not_darken(self):
        """MONAI Resize(anti_aliasing), GaussianSmooth: smoothed into zeros, so the borders of a constant darkened."""
        source = image(np.full((30, 21, 17), 1000, np.int16), affine((1, 1, 5)))
        for stage in (
            {"op": "resize", "size": [10, 7, 5]},
            {"op": "resample", "spacing": [3, 3, 9]},
            {"op": "resample", "spacing": [3, 3, 9], "interpolation": "bspline3"},
            {"op": "affine", "scale": 0.3, "boundary": "nearest"},
            {"op": "gaussian", "sigma": 3},
            {"op": "elastic", "boundary": "nearest"},
        ):
            got = self.run_one([stage], source)
            np.testing.assert_allclose(data(got), 1000, atol=2e-3, err_msg=str(stage))

    def test_reduction_is_smoothed_first(self):
        """MONAI Spacing (grid_sample): reduced without a filter, so that stripes became a constant."""
        stripes = np.broadcast_to((np.arange(60) % 2 * 100.0)[:, None, None], (60, 5, 5)).astype(np.float32)
        for stage, shown in (
            ({"op": "resample", "spacing": [4, 1, 1], "grid": "center"}, slice(2, -2)),
            ({"op": "affine", "scale": [0.25, 1, 1], "boundary": "nearest"}, slice(25, 35)),
        ):
            got = data(self.run_one([stage], image(stripes)))[shown]
            np.testing.assert_allclose(got, 50, atol=0.1, err_msg=str(stage))
        got = data(
            self.run_one(
                [{"op": "resample", "spacing": [4, 1, 1], "grid": "center", "antialias": False}], image(stripes)
            )
        )
        np.testing.assert_array_equal(got[:15], 0)

    def test_sizes_stay_proportional(self):
        """MONAI Resize(longest): each size is rounded by itself; half goes up."""
        got = self.run_one([{"op": "resize", "longest": 50}], image(np.zeros((100, 51, 25), np.uint8)))
        self.assertEqual(got.shape, (50, 26, 13))


class Orientation(Case):
    def test_either_world_convention(self):
        """MONAI #8467, #8069, #6985: Orientation took LPS files for RAS; the same volume comes out the same."""
        array = np.arange(5 * 4 * 3, dtype=np.int16).reshape(5, 4, 3)
        matrix = exact_affine((1, 2, 3), (10, -15, 20), (11, -7, 5))
        sources = {
            "lps.nrrd": nrrd(array, matrix),
            "ras.nrrd": nrrd(array, matrix, "right-anterior-superior"),
            "lps.mha": metaimage(array, matrix),
            "ras.nii": image(array, matrix),
        }
        change = nibabel.orientations.ornt_transform(
            nibabel.io_orientation(matrix), nibabel.orientations.axcodes2ornt("PLI")
        )
        wanted = nibabel.orientations.apply_orientation(array, change)
        place = matrix @ nibabel.orientations.inv_ornt_aff(change, array.shape)
        for name, content in sources.items():
            got = self.run_one([{"op": "reorient", "axes": "PLI"}], self.write(name, content))
            np.testing.assert_array_equal(data(got), wanted, name)
            assert_affine(got.affine, place, name)
            self.assertEqual("".join(nibabel.aff2axcodes(got.affine)), "PLI", name)

    def test_formats_round_trip(self):
        """MONAI #6985, #2028: an oblique volume through other formats comes back as it was."""
        array = np.random.default_rng(0).normal(0, 1, (6, 5, 4)).astype(np.float32)
        matrix = exact_affine((0.7, 1.1, 3.3), (17, 9, -40), (-81.3, 44.7, 120.9))
        path = self.write("first.nrrd", nrrd(array, matrix))
        for extension in ("mha", "nrrd", "mhd", "nrrd"):
            path = self.run_one([], path, extension=extension)
            size, found = self.geometry(path)
            self.assertEqual(size, array.shape)
            np.testing.assert_allclose(found, matrix, rtol=1e-12, atol=1e-12, err_msg=extension)
        got = self.run_one([], path)
        self.assertEqual(data(got).tobytes(), array.tobytes())
        np.testing.assert_allclose(got.affine, matrix, rtol=1e-6)

    def test_flips_do_not_move_places(self):
        """MONAI Flip, TorchIO #172: the direction turns with the voxels."""
        source = world_ramp((5, 4, 3), affine((1, 2, 3), (10, 20, 30), (5, 6, 7)), (1, 2, -3))
        for stage in (
            {"op": "flip", "axes": "xz"},
            {"op": "rotate90", "axes": "yz", "k": 3},
            {"op": "permute", "order": [2, 0, 1]},
        ):
            self.assert_places(self.run_one([stage], source), (1, 2, -3), str(stage), 1e-5)


class Crops(Case):
    def test_origin_of_the_foreground(self):
        """MONAI #3167: CropForeground left the origin where it was."""
        array = np.zeros((20, 20, 20), np.uint8)
        array[5:9, 6:10, 7:11] = 1
        got = self.run_one([{"op": "crop_foreground"}], image(array, affine(origin=(1, 2, 3))))
        np.testing.assert_array_equal(data(got), np.ones((4, 4, 4)))
        assert_affine(got.affine, affine(origin=(6, 8, 10)))

    def test_foreground_of_another_grid(self):
        """MONAI #3182: the box was applied by index to images with another field of view and orientation."""
        mask = np.zeros((40, 40, 40), np.uint8)
        mask[10:20, 12:24, 6:12] = 1
        place = affine(origin=(-20, -20, -20))
        other = affine((2, 2, 2), orientation="LPS", origin=(21, 29, -21))
        picture = world_ramp((25, 25, 25), other, (1, 100, 10000))
        got = self.run_item(
            [{"op": "crop_foreground", "source": "mask"}],
            {"mask": image(mask, place), "picture": picture},
            kinds={"mask": "label"},
        )
        self.assertEqual(got["mask"].shape, (10, 12, 6))
        self.assertEqual("".join(nibabel.aff2axcodes(got["picture"].affine)), "LPS")
        self.assert_places(got["picture"], (1, 100, 10000), tolerance=1e-6)
        # The foreground's outer edges, and no more than a voxel around them.
        low, high = np.array([-10.5, -8.5, -14.5]), np.array([-0.5, 3.5, -8.5])
        corners = apply_affine(got["picture"].affine, [[-0.5] * 3, np.array(got["picture"].shape) - 0.5])
        self.assertTrue((corners.min(0) <= low + 1e-4).all() and (corners.min(0) > low - 2).all(), corners)
        self.assertTrue((corners.max(0) >= high - 1e-4).all() and (corners.max(0) < high + 2).all(), corners)

    def test_foreground_of_any_component(self):
        """MONAI CropForeground: the box holds the foreground of all channels."""
        array = np.zeros((12, 12, 12, 1, 2), np.int16)
        array[2:4, 5, 5, 0, 0] = 1
        array[7, 3:9, 6, 0, 1] = 1
        got = self.run_one([{"op": "crop_foreground"}], image(array))
        self.assertEqual(got.shape[:3], (6, 6, 2))

    def test_nothing_is_not_a_foreground(self):
        """MONAI CropForeground: nothing selected gave an image of no voxels."""
        done, out = self.start([{"op": "crop_foreground"}], {"a": image(np.zeros((4, 4, 4), np.uint8))})
        self.assertEqual(done.returncode, 1)
        self.assertIn("crop_foreground", done.stderr)
        self.assertFalse((out / "a.nii").exists())

    def test_multiple_of_k(self):
        """MONAI CropForeground(k_divisible): the box grows, the smaller half before."""
        array = np.zeros((30, 30, 30), np.uint8)
        array[10:15, 10:17, 10:18] = 1
        got = self.run_one([{"op": "crop_foreground", "k_divisible": 4}], image(array))
        self.assertEqual(got.shape, (8, 8, 8))
        assert_affine(got.affine, affine(origin=(9, 10, 10)))

    def test_foreground_of_the_voxels_as_they_are_now(self):
        """MONAI #6450: lazy crops looked at voxels that earlier stages had already changed."""
        array = np.zeros((16, 16, 16), np.int16)
        array[3:6, 4:8, 5:10] = 100
        array[12, 12, 12] = 20
        stages = [
            {"op": "flip", "axes": "x"},
            {"op": "pad", "before": 2, "after": 1},
            {"op": "threshold", "above": 50},
            {"op": "crop_foreground"},
        ]
        for fuse in ("auto", "all", "none"):
            got = self.run_one(stages, image(array), fuse=fuse)
            np.testing.assert_array_equal(data(got), np.full((3, 4, 5), 100))

    def test_beyond_16_bits(self):
        """MONAI SpatialCrop: corners in int16 overflowed beyond voxel 32767."""
        # NIfTI-1 itself ends at 32767 voxels.
        array = np.arange(70000, dtype=np.int32).reshape(70000, 1, 1)
        path = self.write("long.nrrd", nrrd(array, np.eye(4)))
        for stage, first, count in (
            ({"op": "crop", "start": [69990, 0, 0], "size": [10, 1, 1]}, 69990, 10),
            ({"op": "crop", "center": [40000, 0, 0], "size": [4, 1, 1]}, 39998, 4),
            ({"op": "crop", "box": [[33000, 0, 0], [33004, 0, 0]]}, 33000, 5),
            ({"op": "crop_foreground", "mask": {"above": 65540}}, 65541, 4459),
        ):
            got = self.run_one([stage], path)
            np.testing.assert_array_equal(data(got).ravel(), np.arange(first, first + count))
            assert_affine(got.affine, affine(origin=(first, 0, 0)), stage)

    def test_edges(self):
        """MONAI SpatialCrop: slid away from the low edge and lost voxels at the high one. Here both are errors, or
        with "clip" both lose what lies outside; the size is start + size, never another block."""
        source = image(np.arange(10, dtype=np.int16).reshape(10, 1, 1))
        for stage, wanted in (
            ({"start": [-2, 0, 0], "size": [5, 1, 1]}, [0, 1, 2]),
            ({"start": [7, 0, 0], "size": [5, 1, 1]}, [7, 8, 9]),
            ({"center": [1, 0, 0], "size": [6, 1, 1]}, [0, 1, 2, 3]),
            ({"center": [9, 0, 0], "size": [4, 1, 1]}, [7, 8, 9]),
        ):
            done, _ = self.start([{"op": "crop", **stage}], {"a": source})
            self.assertEqual(done.returncode, 1, stage)
            self.assertIn("clip", done.stderr)
            got = self.run_one([{"op": "crop", **stage, "clip": True}], source)
            self.assertEqual(data(got).ravel().tolist(), wanted, stage)
            assert_affine(got.affine, affine(origin=(wanted[0], 0, 0)))

    def test_middle(self):
        """MONAI CenterSpatialCrop, SpatialPad: for even and odd sizes voxel n // 2 becomes voxel size // 2, in crops and
        in pads, so that one undoes the other (SpatialPad puts the odd voxel after, whatever the sizes)."""
        for n, size in ((10, 4), (10, 5), (9, 4), (9, 5), (4, 7), (5, 8), (5, 9), (4, 8)):
            source = image(np.arange(1, n + 1, dtype=np.int16).reshape(n, 1, 1))
            first = n // 2 - size // 2
            wanted = [i + 1 if 0 <= i < n else 0 for i in range(first, first + size)]
            stages = [{"op": "crop_or_pad", "size": [size, 1, 1]}]
            got = self.run_one(stages, source)
            self.assertEqual(data(got).ravel().tolist(), wanted, (n, size))
            assert_affine(got.affine, affine(origin=(first, 0, 0)))
            if size > n:
                back = self.run_one([*stages, {"op": "crop_or_pad", "size": [n, 1, 1]}], source)
                np.testing.assert_array_equal(data(back), data(source))
                assert_affine(back.affine, source.affine)

    def test_padding_moves_the_origin(self):
        """TorchIO CropOrPad, MONAI Pad: places stay, pixel types stay (MONAI pads integers on the CPU with a warning)."""
        for dtype in ("uint8", "int16", "int32", "uint32", "float64"):
            source = random_image((5, 4, 3), dtype, spacing=(1, 2, 3), angles=(10, 20, 30))
            got = self.run_one([{"op": "pad", "before": [1, 2, 3], "after": 4, "fill": 7}], source)
            self.assertEqual(data(got).dtype, dtype)
            np.testing.assert_array_equal(data(got), np.pad(data(source), ((1, 4), (2, 4), (3, 4)), constant_values=7))
            np.testing.assert_allclose(got.affine[:3, 3], apply_affine(source.affine, (-1, -2, -3)), atol=1e-5)

    def test_negative_padding_is_refused(self):
        """MONAI BorderPad: negative borders became 0 silently."""
        spec = self.folder / "spec.json"
        spec.write_text(json.dumps({"volpipe": 1, "stages": [{"op": "pad", "before": -1}]}))
        done = call("validate", spec)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/stages/0/before", done.stderr)


class Moves(Case):
    def test_right_hand_rule(self):
        """MONAI #8340: the sign of rotate_range was documented wrongly; 90 degrees about z take +x to +y."""
        array = np.zeros((21, 21, 5), np.int16)
        array[16, 10, 2] = 1000
        source = image(array, affine(origin=(-10, -10, -2)))
        for axis, marker, wanted in (
            ("z", (16, 10, 2), (10, 16, 2)),
            ("x", (10, 12, 2), (10, 10, 4)),
            ("y", (12, 10, 2), (10, 10, 0)),
        ):
            array = np.zeros((21, 21, 5), np.int16)
            array[marker] = 1000
            for stage in (
                {"op": "rotate", "angles": 90, "axes": axis, "interpolation": "nearest"},
                {"op": "affine", "rotate": [90 * (axis == name) for name in "xyz"], "interpolation": "nearest"},
            ):
                got = data(self.run_one([stage], image(array, source.affine)))
                self.assertEqual(np.argwhere(got).tolist(), [list(wanted)], stage)
        # with world axes that are not the voxels': a LPI grid turned by a quarter
        flipped = affine(orientation="LPI", origin=(10, 10, 2))
        array = np.zeros((21, 21, 5), np.int16)
        array[4, 10, 2] = 1000  # 6 mm to the Right of the middle
        got = self.run_one(
            [{"op": "rotate", "angles": 90, "axes": "z", "interpolation": "nearest"}], image(array, flipped)
        )
        (at,) = np.argwhere(data(got))
        np.testing.assert_allclose(apply_affine(got.affine, at), (0, 6, 0), atol=1e-4)

    def test_rotation_is_rigid_in_the_world(self):
        """MONAI Rotate, RandAffine: turned in index space, so that unequal spacings sheared the anatomy."""
        matrix = affine((0.8, 1.6, 2.4), (10, 5, -20), (-30, -32, -30))
        shape = (80, 42, 28)
        places = np.array([[6, 0, 2], [-5, 7, -3], [0, -8, 8.0]]) + middle(image(np.zeros(shape, np.uint8), matrix))
        turned = []
        for place in places:
            source = blob(shape, matrix, place, 3)
            got = self.run_one([{"op": "rotate", "angles": [25, -35, 60], "interpolation": "bspline3"}], source)
            turned.append(centroid(got))
        centre = middle(got)
        wanted = (places - centre) @ rotation((25, -35, 60)).T + centre
        np.testing.assert_allclose(turned, wanted, atol=0.05)

    def test_turns_about_the_middle_of_the_image(self):
        """TorchIO #172: turned about the world's origin instead of the middle of the image."""
        source = blob((31, 31, 21), affine((1, 1, 1.5), (0, 0, 30), (500, -300, 200), "PIR"), (0, 0, 0), 3)
        centre = middle(source)
        source = blob(source.shape, source.affine, centre, 3)
        got = self.run_one([{"op": "rotate", "angles": [40, 50, 60]}], source)
        np.testing.assert_allclose(centroid(got), centre, atol=1e-2)

    def test_translation_in_millimetres(self):
        """MONAI RandAffine: translations were voxels, so that 10 moved each file by another length."""
        source = random_image((12, 6, 5), "int16", spacing=(2.5, 1, 1))
        got = self.run_one([{"op": "affine", "translate": [10, 0, 0], "interpolation": "nearest"}], source)
        np.testing.assert_array_equal(data(got)[4:], data(source)[:-4])
        np.testing.assert_array_equal(data(got)[:4], 0)

    def test_matrix_moves_the_image(self):
        """MONAI #7092, AffineGrid: parameters said where the output comes from (2 halved the picture), and the output
        affine was not the target's."""
        matrix = affine((1, 1.2, 1.5), origin=(-20, -20, -20))
        shape = (41, 35, 28)
        push = np.eye(4)
        push[:3, :3] = rotation((10, 20, 30)) * 1.2
        push[:3, 3] = (3, -2, 4)
        place = np.array([2.0, 3, -4])
        source = blob(shape, matrix, place, 2.5)
        target = affine((1.1, 0.9, 1.3), (5, 10, -15), (-25, -20, -25))
        reference = self.write("reference.nii", image(np.zeros((48, 50, 36), np.uint8), target))
        for grid in ({}, {"grid": "fit"}, {"reference": str(reference)}):
            got = self.run_one([{"op": "affine", "matrix": push.tolist(), **grid}], source)
            np.testing.assert_allclose(centroid(got), apply_affine(push, place), atol=0.05, err_msg=str(grid))
        np.testing.assert_array_equal(got.affine, target)
        self.assertEqual(got.shape, (48, 50, 36))
        got = self.run_one([{"op": "affine", "scale": 1.5, "center": [0, 0, 0]}], source)
        np.testing.assert_allclose(centroid(got), 1.5 * place, atol=0.05)

    def test_far_from_the_origin_with_flipped_axes(self):
        """MONAI #5253: all zero for large negative offsets with flipped axes."""
        far = affine((1.5, 1.5, 3), orientation="LPS", origin=(-1234.5, -9876.5, -4321.5))
        source = world_ramp((12, 10, 8), far, (1, 0, 0))
        for stage in (
            {"op": "resample", "spacing": 2},
            {"op": "rotate", "angles": 0.5, "axes": "x", "boundary": "nearest"},
            {"op": "affine", "translate": [0, 3, 0], "boundary": "nearest"},
            {"op": "reorient"},
            {"op": "elastic", "magnitude": [0, 1, 1], "boundary": "nearest"},
        ):
            got = self.run_one([stage], source)
            self.assert_places(got, (1, 0, 0), str(stage), 1e-3, slice(1, -1))
        reference = self.write(
            "reference.nii", image(np.zeros((16, 16, 16), np.uint8), affine((1, 1, 1), origin=(-1250, -9888, -4320)))
        )
        got = self.run_one([{"op": "resample_to", "reference": str(reference), "fill": 0}], source)
        shown = data(got) != 0
        self.assertGreater(shown.mean(), 0.3)
        np.testing.assert_allclose(data(got)[shown], (grid_points(got) @ (1.0, 0, 0))[shown], atol=1e-3)

    def test_no_overlap_is_warned_of(self):
        """MONAI #5253: nothing but fill, silently, where the grids do not meet."""
        source = random_image((6, 6, 6))
        reference = self.write("reference.nii", image(np.zeros((5, 5, 5), np.uint8), affine(origin=(500, 0, 0))))
        for stage in ({"op": "resample_to", "reference": str(reference)}, {"op": "affine", "translate": [500, 0, 0]}):
            done, out = self.start([stage], {"a": source})
            self.assertEqual(done.returncode, 0, done.stderr)
            warnings = json.loads((out / "volpipe-report.json").read_text())["items"][0]["warnings"]
            self.assertIn(stage["op"], json.dumps(warnings))

    def test_scale_close_to_one(self):
        """MONAI lazy: scales within 1e-3 of 1 became 1, which is 0.46 voxel at the end of 512."""
        source = image(np.arange(512, dtype=np.float32).reshape(512, 1, 1))
        got = self.run_one(
            [{"op": "affine", "scale": [1.0009, 1, 1], "center": [0, 0, 0]}, {"op": "flip", "axes": "x"}], source
        )
        np.testing.assert_allclose(data(got).ravel()[::-1], np.arange(512) / 1.0009, atol=1e-4)

    def test_one_slice(self):
        """MONAI PR #6437: matrices of the wrong rank for single slices."""
        source = world_ramp((16, 12, 1), affine((1, 1, 5), (0, 0, 20)), (1, 2, 0))
        for stage in ({"op": "resize", "scale": [2, 2, 1]}, {"op": "resample", "spacing": [0.5, 0.7, None]}):
            got = self.run_one([stage], source)
            self.assertEqual(got.shape[2], 1)
            wanted = grid_points(got) @ (1.0, 2, 0)
            np.testing.assert_allclose(data(got)[3:-3, 3:-3], wanted[3:-3, 3:-3], atol=1e-4)
        turned = self.run_one([{"op": "rotate", "angles": 10, "axes": "z"}], source)
        self.assertGreater((data(turned) != 0).mean(), 0.7)


class Deformations(Case):
    STAGES = (
        {"op": "elastic", "spacing": 12, "magnitude": 3},
        {"op": "smooth_deform", "steps": 3, "limits": 3},
        {"op": "grid_distortion", "steps": 4, "limits": 0.2},
    )

    def test_one_field_for_images_of_different_grids(self):
        """MONAI #5808, #552, #3317: image and label of different shapes were deformed differently."""
        fine = affine(origin=(-16, -16, -16))
        coarse = affine((2, 2, 2), origin=(-16, -16, -16))
        for stage in self.STAGES:
            for direction in np.eye(3):
                pair = {
                    "fine": world_ramp((33, 33, 33), fine, direction),
                    "coarse": world_ramp((17, 17, 17), coarse, direction),
                }
                got = self.run_item([{**stage, "boundary": "nearest", "antialias": False}], pair)
                moved = data(got["fine"]) - data(pair["fine"])
                self.assertGreater(np.abs(moved).max(), 0.3, stage)
                inside = (slice(3, -3),) * 3
                np.testing.assert_allclose(
                    data(got["fine"])[::2, ::2, ::2][inside], data(got["coarse"])[inside], atol=1e-3
                )

    def test_labels_go_where_the_image_goes(self):
        """MONAI #467: a label on a grid of its own follows its image: each voxel takes what lies where it came from."""
        fine = affine(origin=(-16, -16, -16))
        coarse = affine((2, 2, 2), (3, 5, 0), (-12, -11, -12), "LPS")
        coarse[:2, 3] = (13, 12)
        label = image(np.random.default_rng(4).integers(0, 250, (12, 12, 12), np.uint8), coarse)
        ramps = {name: world_ramp((33, 33, 33), fine, np.eye(3)[axis]) for axis, name in enumerate("xyz")}
        for stage in self.STAGES:
            got = self.run_item([{**stage, "boundary": "nearest"}], {**ramps, "label": label}, kinds={"label": "label"})
            at = np.moveaxis(apply_affine(np.linalg.inv(fine), grid_points(label)), -1, 0)
            came_from = np.stack(
                [ndimage.map_coordinates(data(got[name]).astype(float), at, order=3) for name in "xyz"], -1
            )
            self.assertGreater(np.abs(came_from - grid_points(label)).max(), 0.3)
            index = apply_affine(np.linalg.inv(coarse), came_from)
            clear = (np.abs(np.abs(index - np.round(index)) - 0.5) > 0.05).all(-1)  # far from a tie
            clear &= ((index > 0) & (index < 11)).all(-1) & ((at > 4) & (at < 28)).all(0)
            self.assertGreater(clear.sum(), 300)
            wanted = data(label)[tuple(np.round(index[clear]).astype(int).T)]
            np.testing.assert_array_equal(data(got["label"])[clear], wanted, str(stage))

    def test_magnitude_is_millimetres_whatever_the_voxels(self):
        """MONAI #5808: magnitude had no meaning in mm, and smoothing shrank it by an unknown factor."""
        for spacing in (0.5, 1, 2):
            for smoothness in (0, 1):
                shape = (int(48 / spacing),) * 3
                source = world_ramp(shape, affine((spacing,) * 3, origin=(100, 0, 0)))
                stage = {
                    "op": "elastic",
                    "spacing": 12,
                    "magnitude": [3, 0, 0],
                    "smoothness": smoothness,
                    "boundary": "nearest",
                    "antialias": False,
                }
                got = self.run_one([stage], source)
                largest = np.abs(data(got) - data(source)).max()
                self.assertLess(largest, 3 + 1e-4)
                self.assertGreater(largest, 1, f"{spacing} mm, smoothness {smoothness}")

    def test_inverse(self):
        """MONAI Rand3DElastic, RandSmoothDeform: not invertible."""
        source = blob((40, 40, 40), affine(origin=(-20, -20, -20)), (1, -2, 3), 4)
        for stage in self.STAGES:
            stages = [
                {**stage, "name": "bend", "interpolation": "bspline3"},
                {"op": "invert", "of": "bend", "interpolation": "bspline3"},
            ]
            got = self.run_one(stages, source)
            np.testing.assert_allclose(data(got), data(source), atol=10, err_msg=str(stage))
            self.assertEqual(got.shape, source.shape)

    def test_distorted_cells_cover_the_image(self):
        """MONAI GridDistortion: cells of N // num_cells voxels left the rest of the axis undistorted or past the end."""
        source = world_ramp((17, 9, 9), affine())
        got = data(self.run_one([{"op": "grid_distortion", "steps": 5, "limits": 0.3, "boundary": "nearest"}], source))
        along = got[:, 4, 4]
        self.assertTrue((np.diff(along) > 0).all())
        self.assertLess(abs(along[0]), 0.5)
        self.assertLess(abs(along[-1] - 16), 0.5)
        self.assertGreater(np.abs(along - np.arange(17)).max(), 0.05)


class Chains(Case):
    """MONAI's lazy resampling (its issues #6850, #6450, #6773, #6752, #6591 and what its source says)."""

    CHAINS = {
        "pad and rotate": [
            {"op": "pad", "before": 4, "after": 3, "fill": -1024},
            {"op": "rotate", "angles": [5, 10, 20], "fill": -1024},
        ],
        "nearest and linear": [
            {"op": "resample", "spacing": 1.7, "interpolation": "nearest", "boundary": "constant"},
            {"op": "rotate", "angles": 12, "axes": "z", "interpolation": "linear", "boundary": "mirror"},
        ],
        "spline and nearest": [
            {"op": "rotate", "angles": 12, "axes": "x", "interpolation": "bspline3", "boundary": "reflect"},
            {"op": "resize", "scale": 0.8, "interpolation": "nearest"},
        ],
        "reduced twice": [
            {"op": "resample", "spacing": 2.3},
            {"op": "resample", "spacing": 4.1},
            {"op": "flip", "axes": "y"},
        ],
        "crop and rotate": [
            {"op": "crop", "start": [2, 2, 1], "size": [9, 8, 6]},
            {"op": "rotate", "angles": 20, "axes": "z", "fill": 5},
        ],
        "pads of unlike fill": [
            {"op": "pad", "before": 2, "fill": 3},
            {"op": "flip", "axes": "x"},
            {"op": "pad", "after": 2, "fill": -7},
            {"op": "pad", "before": 1, "after": 1, "boundary": "mirror"},
        ],
        "rotate and pad": [
            {"op": "rotate", "angles": 20, "axes": "y", "fill": 5},
            {"op": "pad", "before": 2, "after": 2, "fill": -3},
            {"op": "crop", "start": [1, 1, 1], "size": [10, 9, 7]},
            {"op": "reorient", "axes": "PIR"},
        ],
        "pad by wrapping, then affine": [
            {"op": "pad", "before": 3, "after": 3, "boundary": "grid-wrap"},
            {"op": "affine", "scale": 0.7, "shear": [0.1, 0, 0], "boundary": "grid-constant", "fill": 2},
        ],
        "bend and turn": [
            {"op": "elastic", "spacing": 8, "magnitude": 2},
            {"op": "rotate", "angles": 9, "axes": "z", "grid": "fit"},
            {"op": "crop_or_pad", "size": [14, 14, 9]},
        ],
        "intensities between": [
            {"op": "rotate", "angles": 15, "axes": "z"},
            {"op": "clip", "min": -50, "max": 60},
            {"op": "resample", "spacing": 1.1},
            {"op": "pad", "before": 1, "fill": 9},
        ],
        "fill by the minimum": [
            {"op": "pad", "before": 2, "after": 2, "fill": "min"},
            {"op": "rotate", "angles": 15, "axes": "z", "fill": "min"},
            {"op": "pad", "before": 1, "fill": "min"},
        ],
        "there and back": [
            {"op": "reorient", "axes": "LPI", "name": "turn"},
            {"op": "resample", "spacing": 1.3, "name": "space"},
            {"op": "crop_or_pad", "size": 10, "name": "size"},
            {"op": "invert", "of": "size"},
            {"op": "invert", "of": "space"},
            {"op": "invert", "of": "turn"},
        ],
    }

    def test_fused_is_unfused(self):
        """#6850, PR #6437: stages that are merged give what they give one by one."""
        for kind, dtype in (("image", "float32"), ("image", "int16"), ("label", "uint8")):
            source = random_image((13, 12, 9), dtype, spacing=(1, 1.3, 1.9), angles=(5, -8, 12), origin=(-9, 4, 7))
            if kind == "label":
                source = image(data(source) % 4 * 3, source.affine)
            for name, stages in self.CHAINS.items():
                if kind == "label":
                    stages = [
                        {k: v for k, v in stage.items() if k != "interpolation" and not (k == "fill" and v != "min")}
                        for stage in stages
                        if stage["op"] != "clip"
                    ]
                fused, unfused = (self.run_one(stages, source, kind, fuse=fuse) for fuse in ("auto", "none"))
                with self.subTest(chain=name, kind=kind, dtype=dtype):
                    assert_affine(fused.affine, unfused.affine, name)
                    self.assertEqual(data(fused).dtype, data(unfused).dtype)
                    if kind == "label":
                        np.testing.assert_array_equal(data(fused), data(unfused))
                        self.assertLessEqual(set(np.unique(data(fused))), {0, 3, 6, 9})
                    else:
                        assert_close(data(fused), data(unfused), name, 1e-5)

    def test_padding_keeps_its_value(self):
        """Source of lazy Pad: a constant of -1024 was lost, and the border took its place."""
        source = image(np.full((20, 20, 4), 40, np.int16))
        stages = [
            {"op": "pad", "before": 10, "after": 10, "fill": -1024},
            {"op": "rotate", "angles": 30, "axes": "z", "fill": -1024},
        ]
        for fuse in ("auto", "all", "none"):
            got = data(self.run_one(stages, source, fuse=fuse))
            self.assertEqual(got[0, 0, 12], -1024)
            self.assertEqual(got[20, 4, 12], -1024)
            self.assertEqual(got[20, 20, 2], -1024)
            self.assertAlmostEqual(got[20, 20, 12], 40, 4)
            self.assertTrue((got >= -1024.001).all() and (got <= 40.001).all())

    def test_each_stage_keeps_its_sampling(self):
        """#6850: Spacing(nearest) in a lazy chain became bilinear, and labels {0, 1, 2} fractions."""
        array = np.random.default_rng(1).integers(0, 3, (12, 12, 12)).astype(np.float32)
        stages = [
            {"op": "resample", "spacing": 1.7, "interpolation": "nearest", "boundary": "constant"},
            {"op": "flip", "axes": "x"},
            {"op": "rotate", "angles": 20, "axes": "z", "interpolation": "nearest"},
        ]
        for fuse in ("auto", "all", "none"):
            got = data(self.run_one(stages, image(array), fuse=fuse))
            self.assertEqual(set(np.unique(got)), {0, 1, 2}, fuse)
        stages[2]["interpolation"] = "linear"
        got = data(self.run_one(stages, image(array)))
        self.assertGreater(len(np.unique(got)), 10)

    def test_labels_stay_in_the_set(self):
        """#6850: every chain keeps the labels that there are."""
        array = np.random.default_rng(2).choice([0, 2, 5, 200], (14, 13, 12)).astype(np.uint8)
        for interpolation in ("nearest", "label_linear"):
            stages = [
                {"op": "reorient", "axes": "PSR"},
                {"op": "resample", "spacing": 0.8, "interpolation": interpolation},
                {"op": "rotate", "angles": [5, 10, 15], "interpolation": interpolation},
                {"op": "elastic", "spacing": 10, "magnitude": 2, "interpolation": interpolation},
                {"op": "crop_or_pad", "size": 20},
            ]
            for fuse in ("auto", "all", "none"):
                got = data(self.run_one(stages, image(array), "label", fuse=fuse))
                self.assertEqual(got.dtype, np.uint8)
                self.assertEqual(set(np.unique(got)), {0, 2, 5, 200}, (interpolation, fuse))

    def test_reduction_is_smoothed_in_a_chain(self):
        """Lazy Resize sampled without averaging, and ignored anti_aliasing."""
        stripes = np.broadcast_to((np.arange(64) % 2 * 100.0)[:, None, None], (64, 8, 8)).astype(np.float32)
        stages = [
            {"op": "flip", "axes": "x"},
            {"op": "resize", "size": [16, 8, 8]},
            {"op": "crop", "start": [2, 0, 0], "size": [12, 8, 8]},
        ]
        for fuse in ("auto", "all", "none"):
            np.testing.assert_allclose(data(self.run_one(stages, image(stripes), fuse=fuse)), 50, atol=0.1)
        stages[1] = {"op": "affine", "scale": [0.25, 1, 1], "boundary": "mirror"}
        stages[2] = {"op": "rotate", "angles": 3, "axes": "y", "boundary": "nearest"}
        for fuse in ("auto", "all", "none"):
            got = data(self.run_one(stages, image(stripes), fuse=fuse))
            np.testing.assert_allclose(got[28:36, 2:-2, 2:-2], 50, atol=0.1)

    def test_what_was_cropped_stays_away(self):
        """Lazy crop and rotate showed voxels that the crop had cut off."""
        array = np.full((20, 20, 3), 500, np.int16)
        array[5:15, 5:15] = 1
        stages = [{"op": "crop", "start": [5, 5, 0], "size": [10, 10, 3]}, {"op": "rotate", "angles": 45, "axes": "z"}]
        for fuse in ("auto", "none"):
            got = data(self.run_one(stages, image(array), fuse=fuse))
            self.assertLessEqual(got.max(), 1 + 1e-5, fuse)
            self.assertEqual(got[0, 0, 1], 0)

    def test_crop_is_obeyed_at_once(self):
        """#6752: a crop called lazily was not yet there for the stage that followed."""
        source = random_image((20, 20, 20), "int16")
        stages = [
            {"op": "crop", "start": 5, "size": 8},
            {"op": "crop_or_pad", "size": 6},
            {"op": "pad_divisible", "k": 4},
        ]
        got = self.run_one(stages, source)
        np.testing.assert_array_equal(data(got), np.pad(data(source)[6:12, 6:12, 6:12], 1))

    def test_random_moves_take_place(self):
        """#6773: RandAffine in a lazy chain did nothing."""
        source = random_image((12, 12, 12))
        stages = [
            {"op": "affine", "rotate": [0, 0, {"uniform": [20.0, 30.0]}], "translate": [{"uniform": [1.0, 2.0]}, 0, 0]},
            {"op": "flip", "axes": "x"},
        ]
        got = data(self.run_one(stages, source))
        self.assertGreater(np.abs(got - data(source)[::-1]).max(), 10)
        fused, unfused = (self.run_one(stages, source, fuse=fuse) for fuse in ("auto", "none"))
        assert_close(data(fused), data(unfused))

    def test_inverse_after_a_chain(self):
        """#6591: Invert after a lazy chain broke."""
        matrix = affine((1, 1.5, 2), (5, 6, 7), (-10, -12, -14))
        source = blob((30, 24, 18), matrix, middle(image(np.zeros((30, 24, 18), np.uint8), matrix)) + (2, -1, 3), 4)
        stages = [
            {"op": "reorient", "axes": "LPI", "name": "turn"},
            {"op": "resample", "spacing": 1.2, "interpolation": "bspline3", "name": "space"},
            {"op": "rotate", "angles": [5, 10, 15], "grid": "fit", "interpolation": "bspline3", "name": "rotate"},
            {"op": "invert", "of": "rotate", "interpolation": "bspline3"},
            {"op": "invert", "of": "space", "interpolation": "bspline3"},
            {"op": "invert", "of": "turn"},
        ]
        for fuse in ("auto", "all", "none"):
            got = self.run_one(stages, source, fuse=fuse)
            self.assertEqual(got.shape, source.shape)
            np.testing.assert_allclose(got.affine, source.affine, atol=1e-5)
            inside = (slice(3, -3),) * 3
            np.testing.assert_allclose(data(got)[inside], data(source)[inside], atol=15)

    def test_image_and_label_share_a_grid(self):
        """Lazy stages flushed image and label by themselves, and nothing saw to it that they kept one grid."""
        matrix = affine((0.9, 1.1, 2.3), (17, 9, 4), (-31, 12, 8))
        pair = {"image": random_image((17, 13, 9), "int16"), "label": None}
        pair["image"] = image(data(pair["image"]), matrix)
        pair["label"] = image((data(pair["image"]) > 0).astype(np.uint8), matrix)
        stages = [
            {"op": "reorient"},
            {"op": "resample", "spacing": [1.3, 0.7, 1.9]},
            {"op": "rotate", "angles": [{"uniform": [-20.0, 20.0]}, 0, 10], "grid": "fit"},
            {"op": "crop_foreground", "source": "label", "margin": 2},
            {"op": "elastic"},
            {"op": "pad_divisible", "k": 8},
        ]
        got = self.run_item(stages, pair, kinds={"label": "label"})
        self.assertEqual(got["image"].shape, got["label"].shape)
        np.testing.assert_array_equal(got["image"].affine, got["label"].affine)


class Labels(Case):
    def sheet(self, dtype=np.uint8, labels=(0, 2, 5)):
        array = np.full((30, 30, 8), labels[0], dtype)
        array[16:] = labels[2]
        array[15] = labels[1]  # one voxel thick between the others
        return array

    def test_a_sheet_has_no_holes(self):
        """MONAI #6960, TorchIO #342: thin structures came out in pieces; no value may come that was not there."""
        for labels in ((0, 2, 5), (5, 0, 2), (2, 5, 0)):
            for angle in (0, 10, 20, 33, 45):
                stage = {
                    "op": "rotate",
                    "angles": angle,
                    "axes": "z",
                    "interpolation": "label_linear",
                    "fill": labels[0],
                }
                got = data(self.run_one([stage], image(self.sheet(labels=labels)), "label"))
                self.assertLessEqual(set(np.unique(got)), set(labels))
                inside = got[7:-7, 7:-7, 1:-1]
                self.assertTrue((inside == labels[1]).any(axis=0).all(), f"hole at {angle} degrees")
                below, above = inside[:-1], inside[1:]
                self.assertFalse(((below == labels[0]) & (above == labels[2])).any(), f"hole at {angle} degrees")

    def test_scaled_up_a_sheet_is_as_thick(self):
        """MONAI #3178: nearest gave steps; 1 mm thick stays 1 mm thick at 0.25 mm."""
        got = self.run_one(
            [{"op": "resample", "spacing": 0.25, "interpolation": "label_linear"}], image(self.sheet()), "label"
        )
        self.assertEqual(set((data(got) == 2).sum(0).ravel()), {4})

    def test_every_bit_of_a_label(self):
        """MONAI, TorchIO: labels through float32 end at 2^24; 16777217 became 16777216."""
        labels = (16777217, 16777219, 2**31 - 1)
        for interpolation in ("nearest", "label_linear"):
            for stage in (
                {"op": "rotate", "angles": 20, "axes": "z", "fill": labels[0]},
                {"op": "resample", "spacing": 0.7},
                {"op": "elastic", "boundary": "nearest"},
                {"op": "resize", "scale": 0.5},
            ):
                got = data(
                    self.run_one(
                        [{**stage, "interpolation": interpolation}], image(self.sheet(np.int32, labels)), "label"
                    )
                )
                self.assertEqual(got.dtype, np.int32)
                self.assertLessEqual(set(np.unique(got)), set(labels), (stage, interpolation))
                self.assertIn(16777219 if stage["op"] != "resize" else 16777217, np.unique(got))

    def test_thin_sheets_reduced(self):
        """MONAI #6960: 1 mm to 3 mm; labels are smoothed one by one only where asked, and none is invented."""
        for antialias in (False, True):
            stage = {"op": "resample", "spacing": 3, "interpolation": "label_linear", "antialias": antialias}
            got = data(self.run_one([stage], image(self.sheet()), "label"))
            self.assertLessEqual(set(np.unique(got)), {0, 2, 5})
            self.assertEqual(got.shape, (10, 10, 3))
            self.assertEqual(set(np.unique(got[:4])), {0})
            self.assertEqual(set(np.unique(got[6:])), {5})

    def test_label_linear_is_the_largest_sum_of_weights(self):
        """MONAI #6960: two-pass or one-hot, the definition is per-label linear weights."""
        array = np.random.default_rng(3).choice([0, 2, 5], (9, 8, 7)).astype(np.uint8)
        stage = {"op": "affine", "rotate": [10, 20, 30], "interpolation": "label_linear", "boundary": "nearest"}
        got = data(self.run_one([stage], image(array), "label"))
        source = image(array)
        centre = middle(source)
        pull = np.eye(4)
        pull[:3, :3] = rotation((10, 20, 30)).T
        pull[:3, 3] = centre - pull[:3, :3] @ centre
        places = np.moveaxis(apply_affine(pull, grid_points(source)), -1, 0)
        shares = np.stack(
            [
                ndimage.map_coordinates((array == label).astype(float), places, order=1, mode="nearest")
                for label in (0, 2, 5)
            ]
        )
        ordered = np.sort(shares, axis=0)
        clear = ordered[-1] - ordered[-2] > 1e-4
        self.assertGreater(clear.mean(), 0.9)
        np.testing.assert_array_equal(got[clear], np.array([0, 2, 5])[shares.argmax(0)][clear])


class Interpolation(Case):
    """MONAI #6608, #4017, #789, #1816, #4856: no tricubic in 3-D, splines without prefilter, none for Resize."""

    PERIOD = 16

    def cosine(self):
        axis = np.cos(2 * np.pi * np.arange(self.PERIOD) / self.PERIOD)
        return image((100 * axis[:, None, None] * axis[None, :, None] * axis[None, None, :]).astype(np.float32))

    def test_values_half_way(self):
        """A cosine between its samples is what the kernel passes of it: the closed form, 3 times over."""
        w = 2 * np.pi / self.PERIOD
        gains = {
            "linear": np.cos(w / 2),
            "cubic": 9 / 8 * np.cos(w / 2) - 1 / 8 * np.cos(3 * w / 2),
            "bspline2": np.cos(w / 2) / (3 / 4 + np.cos(w) / 4),
            "bspline3": (23 / 24 * np.cos(w / 2) + 1 / 24 * np.cos(3 * w / 2)) / ((2 + np.cos(w)) / 3),
        }
        axis = np.cos(w * (np.arange(self.PERIOD) + 0.5))
        for interpolation, gain in gains.items():
            stage = {
                "op": "affine",
                "translate": [-0.5, -0.5, -0.5],
                "interpolation": interpolation,
                "boundary": "grid-wrap",
                "antialias": False,
            }
            got = data(self.run_one([stage], self.cosine()))
            wanted = 100 * (gain * axis)[:, None, None] * (gain * axis)[None, :, None] * (gain * axis)[None, None, :]
            assert_close(got, wanted, interpolation, 1e-5, 200)

    def test_resize_and_resample_have_them(self):
        """MONAI Resize, Zoom: no cubic in 3-D; here errors fall as the orders say."""
        errors = {}
        size = 4 * self.PERIOD
        for interpolation in ("linear", "cubic", "bspline3", "bspline5"):
            stage = {"op": "resize", "size": size, "interpolation": interpolation, "boundary": "grid-wrap"}
            got = self.run_one([stage], self.cosine())
            axis = np.cos(2 * np.pi / self.PERIOD * ((np.arange(size) + 0.5) / 4 - 0.5))
            wanted = 100 * axis[:, None, None] * axis[None, :, None] * axis[None, None, :]
            errors[interpolation] = np.abs(data(got) - wanted).max()
            stage = {"op": "resample", "spacing": 0.25, "interpolation": interpolation, "boundary": "grid-wrap"}
            again = self.run_one([stage], self.cosine())
            assert_close(data(again), data(got), interpolation, 1e-6, 200)
        self.assertLess(errors["linear"], 6)
        self.assertLess(errors["cubic"], errors["linear"] / 5)
        self.assertLess(errors["bspline3"], 0.1)
        self.assertLess(errors["bspline5"], 0.01)

    def test_interpolating_at_the_voxels(self):
        """Splines without prefilter smoothed the image even where nothing moved."""
        source = random_image((9, 8, 7))
        for interpolation in ("linear", "cubic", "bspline2", "bspline3", "bspline4", "bspline5", "lanczos3"):
            stages = [
                {"op": "affine", "translate": [2, 0, -1], "interpolation": interpolation, "boundary": "grid-wrap"}
            ]
            got = data(self.run_one(stages, source))
            assert_close(got, np.roll(data(source), (2, 0, -1), (0, 1, 2)), interpolation)

    def test_cubic_is_exact_for_the_polynomials_it_reproduces(self):
        """#6608: Catmull-Rom keeps parabolas, the cubic B-spline cubics, inside."""
        x = np.arange(24.0) - 12
        for interpolation, degree in (("cubic", 2), ("bspline3", 3)):
            source = image(np.broadcast_to((x**degree)[:, None, None], (24, 3, 3)).astype(np.float64))
            stage = {
                "op": "affine",
                "translate": [-0.3, 0, 0],
                "interpolation": interpolation,
                "boundary": "mirror",
                "precision": "double",
            }
            got = data(self.run_one([stage], source))[10:14, 1, 1]
            np.testing.assert_allclose(got, ((x + 0.3) ** degree)[10:14], atol=5e-3 if degree == 3 else 1e-9)


if __name__ == "__main__":
    unittest.main()
