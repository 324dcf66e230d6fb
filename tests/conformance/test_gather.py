"""Stages that sample at arbitrary points against SciPy and nibabel in double precision."""

import pathlib
import tempfile
import unittest

import nibabel
import nibabel.processing
import numpy as np
from scipy import linalg, ndimage

import oracle
from support import (
    BOUNDARIES,
    affine,
    assert_affine,
    assert_close,
    call,
    data,
    image,
    load,
    odd_images,
    random_image,
    rotation,
    run,
    write_spec,
)

ORDERS = {"nearest": 0, "linear": 1, "bspline2": 2, "bspline3": 3, "bspline4": 4, "bspline5": 5}


def spline_coefficients(array, order):
    """Coefficients of the spline reflected at the edges, exactly (SciPy < 1.18 errs, issue 24550)."""
    for axis, size in enumerate(array.shape):
        if size > 1:
            inverse = np.linalg.inv(oracle.reflect_basis(size, np.arange(size), order))
            array = np.moveaxis(np.tensordot(inverse, array, (1, axis)), 0, axis)
    return array


def sample_at(array, places, order, boundary, fill=0.0):
    """array at places[axis, ...], in double."""
    array = np.asarray(array, float)
    if order > 1 and boundary == "reflect":
        return ndimage.map_coordinates(
            spline_coefficients(array, order), places, order=order, mode=boundary, prefilter=False
        )
    if order > 1 and boundary == "nearest":
        # SciPy extends the image by 12 voxels, over which the poles of orders 4 and 5 fall to 5e-6 and 4e-5 only.
        pad = 48
        inside = [np.clip(at, -pad / 2, size - 1 + pad / 2) for at, size in zip(places, array.shape)]
        return ndimage.map_coordinates(np.pad(array, pad, "edge"), np.array(inside) + pad, order=order, mode="mirror")
    return ndimage.map_coordinates(array, places, order=order, mode=boundary, cval=fill)


def vectors(array, matrix=None, dtype="float64"):
    """A NIfTI of 3-vectors, components last in the array."""
    volume = image(np.ascontiguousarray(array[:, :, :, None, :]).astype(dtype), matrix)
    volume.header.set_intent("vector")
    return volume


def run_beside(stages, images, fields, **more):
    """{name: result} for items of an image and a field `more` beside it."""
    with tempfile.TemporaryDirectory(prefix="volpipe-conformance-") as folder:
        folder = pathlib.Path(folder)
        (folder / "in").mkdir()
        for name, volume in images.items():
            nibabel.save(volume, folder / "in" / f"{name}_image.nii")
            nibabel.save(fields[name], folder / "in" / f"{name}_field.nii")
        spec = write_spec(
            folder, stages, **{"inputs": {"image": {"suffix": "_image"}, "field": {"suffix": "_field"}}, **more}
        )
        done = call("run", spec, folder / "in", "-o", folder / "out", "--device", "cpu", "-q")
        assert done.returncode == 0, f"{stages}: exit {done.returncode}\n{done.stderr}"
        return {name: load(folder / "out" / f"{name}.nii") for name in images}


def fsl_flip(matrix, shape):
    """Voxel index -> index counted as FSL does."""
    flip = np.eye(4)
    if np.linalg.det(matrix[:3, :3]) > 0:
        flip[0, 0], flip[0, 3] = -1, shape[0] - 1
    return flip


def fsl_millimetres(index, matrix, shape):
    return nibabel.affines.apply_affine(fsl_flip(matrix, shape), index) * np.linalg.norm(matrix[:3, :3], axis=0)


def fsl_index(millimetres, matrix, shape):
    counted = millimetres / np.linalg.norm(matrix[:3, :3], axis=0)
    return nibabel.affines.apply_affine(np.linalg.inv(fsl_flip(matrix, shape)), counted)


class MapCoordinates(unittest.TestCase):
    """Coordinates inside and up to six voxels outside, on a grid of another shape."""

    SHAPE = (6, 5, 4)

    def places(self, shape, seed):
        draw = np.random.default_rng(seed)
        return np.stack([draw.uniform(-6, n + 5, self.SHAPE) for n in shape])

    def check(self, interpolation, boundary, precision, tolerance):
        images = odd_images()
        places = {name: self.places(volume.shape, i) for i, (name, volume) in enumerate(images.items())}
        stage = {
            "op": "map_coordinates",
            "coordinates": "field",
            "on": "image",
            "interpolation": interpolation,
            "boundary": boundary,
            "fill": 7,
            "precision": precision,
        }
        fields = {name: vectors(np.moveaxis(at, 0, -1), affine(origin=(5, 0, 0))) for name, at in places.items()}
        for name, got in run_beside([stage], images, fields).items():
            wanted = sample_at(data(images[name]), places[name], ORDERS[interpolation], boundary, 7)
            scale = np.ptp(data(images[name]).astype(float))
            assert_close(data(got), wanted, f"{stage} of {name}", tolerance, scale)
            assert_affine(got.affine, affine(origin=(5, 0, 0)))

    def test_single(self):
        for interpolation in ORDERS:
            for boundary in BOUNDARIES:
                with self.subTest(interpolation=interpolation, boundary=boundary):
                    self.check(interpolation, boundary, "single", 1e-5)

    def test_double(self):
        for interpolation in ORDERS:
            for boundary in BOUNDARIES:
                with self.subTest(interpolation=interpolation, boundary=boundary):
                    # SciPy extends the image by 12 voxels there, over which the poles of orders 4 and 5 fall to 5e-6 and 4e-5.
                    extended = boundary in ("nearest", "grid-constant") and ORDERS[interpolation] > 3
                    self.check(interpolation, boundary, "double", 1e-6 if extended else 1e-10)

    def test_world_coordinates(self):
        images = odd_images(("float32",))
        fields, wanted = {}, {}
        for i, (name, volume) in enumerate(images.items()):
            places = self.places(volume.shape, i)
            world = nibabel.affines.apply_affine(volume.affine, np.moveaxis(places, 0, -1))
            fields[name] = vectors(world)
            wanted[name] = sample_at(data(volume), places, 1, "mirror")
        stage = {
            "op": "map_coordinates",
            "coordinates": "field",
            "units": "world",
            "on": "image",
            "boundary": "mirror",
        }
        for name, got in run_beside([stage], images, fields).items():
            assert_close(data(got), wanted[name], name, 2e-5)


class Affine(unittest.TestCase):
    PUSH = np.eye(4)
    PUSH[:3, :3] = rotation((12, -7, 31)) @ np.diag((1.1, 0.9, 1.05)) @ [[1, 0.1, 0], [0, 1, -0.05], [0, 0, 1]]
    PUSH[:3, 3] = (3, -5, 2)

    def places(self, source, push, shape=None, matrix=None):
        """Index in `source` of each voxel of a grid, by default its own."""
        matrix = source.affine if matrix is None else matrix
        pull = np.linalg.inv(source.affine) @ np.linalg.inv(push) @ matrix
        grid = np.stack(np.meshgrid(*map(np.arange, shape or source.shape), indexing="ij"), -1)
        return np.moveaxis(nibabel.affines.apply_affine(pull, grid), -1, 0)

    def test_is_affine_transform(self):
        images = odd_images()
        for interpolation, order in ORDERS.items():
            for boundary in BOUNDARIES:
                stage = {
                    "op": "affine",
                    "matrix": self.PUSH.tolist(),
                    "interpolation": interpolation,
                    "boundary": boundary,
                    "fill": 3,
                    "antialias": False,
                }
                for name, got in run([stage], images).items():
                    with self.subTest(interpolation=interpolation, boundary=boundary, name=name):
                        source = data(images[name])
                        wanted = sample_at(source, self.places(images[name], self.PUSH), order, boundary, 3)
                        if order == 0 and np.issubdtype(source.dtype, np.integer):
                            np.testing.assert_array_equal(data(got), wanted)
                        else:
                            assert_close(data(got), wanted, str(stage), 1e-5, np.ptp(source.astype(float)))
                        assert_affine(got.affine, images[name].affine)

    def test_double_precision(self):
        images = odd_images(("float64",))
        for interpolation in ("linear", "bspline3", "bspline5"):
            stage = {
                "op": "affine",
                "matrix": self.PUSH.tolist(),
                "interpolation": interpolation,
                "boundary": "mirror",
                "antialias": False,
                "precision": "double",
            }
            for name, got in run([stage], images).items():
                # Coordinates come from a header in float32 on both sides.
                wanted = sample_at(data(images[name]), self.places(images[name], self.PUSH), ORDERS[interpolation], "mirror")
                assert_close(data(got), wanted, f"{stage} of {name}", 1e-10, np.ptp(data(images[name])))

    def test_rotates_in_the_world_on_anisotropic_oblique_grids(self):
        images = odd_images()
        angles = (20, -35, 50)
        stage = {"op": "rotate", "angles": list(angles), "interpolation": "bspline3", "boundary": "nearest"}
        for name, got in run([stage], images).items():
            source = images[name]
            center = nibabel.affines.apply_affine(source.affine, (np.array(source.shape) - 1) / 2)
            push = np.eye(4)
            push[:3, :3] = rotation(angles)
            push[:3, 3] = center - push[:3, :3] @ center
            places = self.places(source, push)
            step = np.linalg.inv(source.affine) @ np.linalg.inv(push) @ source.affine
            smoothed = oracle.antialias(data(source), np.linalg.norm(step[:3, :3], axis=1))
            wanted = sample_at(smoothed, places, 3, "nearest")
            assert_close(data(got), wanted, name, 1e-5, np.ptp(data(source).astype(float)))

    def test_fit_shows_all_of_the_image(self):
        source = random_image((9, 7, 5), spacing=(1, 2, 3), angles=(0, 0, 10))
        got = run([{"op": "rotate", "angles": 45, "axes": "z", "grid": "fit", "fill": -1e6}], {"a": source})["a"]
        center = (np.array(source.shape) - 1) / 2
        push = np.eye(4)
        push[:3, :3] = rotation((0, 0, 45))
        world = nibabel.affines.apply_affine(source.affine, center)
        push[:3, 3] = world - push[:3, :3] @ world
        corners = np.array(np.meshgrid(*[(-0.5, n - 0.5) for n in source.shape], indexing="ij")).reshape(3, -1).T
        moved = nibabel.affines.apply_affine(np.linalg.inv(got.affine) @ push @ source.affine, corners)
        self.assertTrue((moved >= -0.5 - 1e-4).all() and (moved <= np.array(got.shape) - 0.5 + 1e-4).all())
        self.assertTrue((np.array(got.shape) <= np.ptp(moved, axis=0) + 1.001).all())
        np.testing.assert_allclose(nibabel.affines.voxel_sizes(got.affine), (1, 2, 3), rtol=1e-5)


class ResampleTo(unittest.TestCase):
    def test_is_nibabels_resample_from_to(self):
        """Oblique, left-handed, sheared, anisotropic grids on both sides."""
        sheared = affine((1.1, 0.8, 2), (5, 10, -3), (-8, -6, -9))
        sheared[:3, 2] += 0.35 * sheared[:3, 1]
        grids = [
            ((11, 9, 12), affine((1, 1.3, 0.9), (7, -12, 4), (-6, -7, -5))),
            ((8, 12, 6), affine((1.5, 0.9, 2.1), (0, 3, 0), (6, -5, -7), "LAS")),
            ((10, 10, 7), sheared),
            ((7, 9, 11), affine((1, 1.2, 1), (0, 0, 0), (5, 6, -6), "PSR")),
        ]
        for interpolation, order in (("linear", 1), ("bspline3", 3), ("nearest", 0)):
            for i, (from_shape, from_affine) in enumerate(grids):
                source = image(np.random.default_rng(i).normal(0, 10, from_shape).astype("float32"), from_affine)
                for shape, matrix in grids:
                    reference = image(np.zeros(shape, "float32"), matrix)
                    wanted = nibabel.processing.resample_from_to(source, (shape, matrix), order=order, mode="constant", cval=2)
                    with tempfile.TemporaryDirectory(prefix="volpipe-conformance-") as folder:
                        folder = pathlib.Path(folder)
                        nibabel.save(source, folder / "a.nii")
                        nibabel.save(reference, folder / "reference.nii")
                        stage = {
                            "op": "resample_to",
                            "reference": "reference.nii",
                            "interpolation": interpolation,
                            "fill": 2,
                            "antialias": False,
                        }
                        done = call(
                            "run", write_spec(folder, [stage]), folder / "a.nii", "-o", folder / "out", "--device", "cpu", "-q"
                        )
                        self.assertEqual(done.returncode, 0, done.stderr)
                        got = load(folder / "out" / "a.nii")
                    places = nibabel.affines.apply_affine(
                        np.linalg.inv(source.affine) @ matrix, np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
                    )
                    # Rounding decides for SciPy whether the outermost voxel centres are inside; for volpipe they are.
                    last = np.array(from_shape) - 1
                    edge = ((np.abs(places) < 1e-4) | (np.abs(places - last) < 1e-4)).any(-1)
                    tied = np.abs(places % 1 - 0.5).min(-1) < 1e-4 if order == 0 else np.zeros_like(edge)
                    compared = ~(edge | tied)
                    self.assertGreater(compared.mean(), 0.2)
                    where = f"{interpolation}, {i} to {matrix}"
                    assert_close(data(got) * compared, data(wanted) * compared, where, 1e-5, 80)
                    assert_affine(got.affine, matrix)


class Warp(unittest.TestCase):
    def test_displacements_of_itk_are_lps_millimetres(self):
        source = random_image((12, 10, 9), spacing=(1.1, 0.9, 1.4), angles=(5, 0, 20), origin=(3, -2, 8))
        matrix = affine((2, 2, 2), (0, 4, 0), (-10, -12, 0))
        draw = np.random.default_rng(5)
        field = draw.normal(0, 1.5, (16, 17, 14, 3))
        grid = np.stack(np.meshgrid(*map(np.arange, source.shape), indexing="ij"), -1)
        world = nibabel.affines.apply_affine(source.affine, grid)
        at_field = np.moveaxis(nibabel.affines.apply_affine(np.linalg.inv(matrix), world), -1, 0)
        for convention, flip in (("itk", (-1, -1, 1)), ("ras", (1, 1, 1))):
            moved = world.copy()
            inside = np.all([(c >= -0.5) & (c <= n - 0.5) for c, n in zip(at_field, field.shape)], axis=0)
            for component in range(3):
                shift = ndimage.map_coordinates(field[..., component], at_field, order=1, mode="nearest")
                moved[..., component] += flip[component] * np.where(inside, shift, 0)
            places = np.moveaxis(nibabel.affines.apply_affine(np.linalg.inv(source.affine), moved), -1, 0)
            stage = {"op": "warp", "field": "field", "on": "image", "convention": convention, "boundary": "nearest"}
            got = run_beside([stage], {"a": source}, {"a": vectors(field, matrix)})["a"]
            assert_close(data(got), sample_at(data(source), places, 1, "nearest"), convention, 2e-5)


    def test_relative_warps_of_fsl(self):
        """FNIRT: millimetres of scaled voxels, x from the far end where the grid is right-handed in RAS."""
        draw = np.random.default_rng(8)
        for from_orientation in ("RAS", "LAS"):
            for to_orientation in ("RAS", "LAS"):
                source = random_image((12, 10, 9), spacing=(1.1, 0.9, 1.4), orientation=from_orientation, origin=(3, -2, 8))
                matrix = affine((1.3, 1.2, 1.5), (0, 4, 0), (2, -3, 6), to_orientation)
                field = draw.normal(0, 1, (9, 8, 7, 3))
                grid = np.stack(np.meshgrid(*map(np.arange, field.shape[:3]), indexing="ij"), -1)
                places = fsl_millimetres(grid, matrix, field.shape) + field
                index = np.moveaxis(fsl_index(places, source.affine, source.shape), -1, 0)
                stage = {"op": "warp", "field": "field", "reference": "field", "on": "image", "convention": "fsl", "boundary": "nearest"}
                got = run_beside([stage], {"a": source}, {"a": vectors(field, matrix)})["a"]
                where = f"{from_orientation} to {to_orientation}"
                assert_close(data(got), sample_at(data(source), index, 1, "nearest"), where, 2e-5)

    def test_velocity_fields_are_integrated(self):
        """v(p) = A (p - c) flows to c + expm(A) (p - c); its inverse to expm(-A). 2^7 steps: (A / 2^8)^2 2^7 is left."""
        source = random_image((24, 22, 20), spacing=(1.1, 0.9, 1.2), angles=(0, 0, 15))
        source = image(ndimage.gaussian_filter(data(source), 2), source.affine)
        center = nibabel.affines.apply_affine(source.affine, (np.array(source.shape) - 1) / 2)
        velocity = np.array([[0.05, 0.1, 0], [-0.08, 0.02, 0.03], [0, 0.04, -0.06]])
        matrix = affine((2, 2, 2), (0, 0, 0), tuple(np.round(center - 40)))
        field_grid = np.stack(np.meshgrid(*map(np.arange, (41, 41, 41)), indexing="ij"), -1)
        field = (nibabel.affines.apply_affine(matrix, field_grid) - center) @ velocity.T
        grid = np.stack(np.meshgrid(*map(np.arange, source.shape), indexing="ij"), -1)
        offset = nibabel.affines.apply_affine(source.affine, grid) - center
        for invert, sign in ((False, 1), (True, -1)):
            moved = offset @ linalg.expm(sign * velocity).T + center
            places = np.moveaxis(nibabel.affines.apply_affine(np.linalg.inv(source.affine), moved), -1, 0)
            stage = {"op": "warp", "svf": "field", "on": "image", "convention": "ras", "invert": invert, "boundary": "nearest"}
            got = run_beside([stage], {"a": source}, {"a": vectors(field, matrix)})["a"]
            assert_close(data(got), sample_at(data(source), places, 1, "nearest"), f"invert {invert}", 2e-3)


if __name__ == "__main__":
    unittest.main()
