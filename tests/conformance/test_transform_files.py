"""Transform files, written here by the definition of their format, moved by `affine` and held against SciPy."""

import pathlib
import tempfile
import unittest

import nibabel
import numpy as np
from scipy import interpolate, io, ndimage

from support import affine, assert_close, call, data, image, odd_images, run, write_spec

LPS = np.diag([-1.0, -1, 1, 1])  # to RAS, and back
ITK = "#Insight Transform File V1.0\n#Transform 0\n"

# A resampling map, point of the output to point of the input, that leaves most of the image in sight.
PULL = np.array([[1.05, 0.1, -0.08, 2], [-0.07, 0.96, 0.05, -1.5], [0.03, -0.06, 1.02, 1], [0, 0, 0, 1]])


def about(point, matrix=PULL):
    """`matrix`, with `point` in place of the origin."""
    shift = np.eye(4)
    shift[:3, 3] = point
    return shift @ matrix @ np.linalg.inv(shift)


def middle(volume):
    return (volume.affine @ [*(np.array(volume.shape[:3]) - 1) / 2, 1])[:3]


def numbers(values):
    return " ".join(repr(float(value)) for value in np.ravel(values))


def itk_block(name, parameters, fixed):
    return f"Transform: {name}_double_3_3\nParameters: {numbers(parameters)}\nFixedParameters: {numbers(fixed)}\n"


def itk_affine(pull, center):
    """Parameters of ITK's AffineTransform: y = M (x - c) + c + t, LPS."""
    lps = LPS @ pull @ LPS
    center = np.asarray(center, float)
    return np.concatenate([lps[:3, :3].ravel(), lps[:3, 3] - center + lps[:3, :3] @ center]), center


def spacing(volume):
    return np.linalg.norm(volume.affine[:3, :3], axis=0)


def fsl_image(volume):
    """(voxels to mm, voxels to world) as FSL holds an image: first axis reversed when the determinant is positive."""
    to_world = volume.affine.copy()
    if np.linalg.det(to_world) > 0:
        flip = np.diag([-1.0, 1, 1, 1])
        flip[0, 3] = volume.shape[0] - 1
        to_world = to_world @ flip
    return np.diag([*spacing(volume), 1]), to_world


def flirt_matrix(pull, source, reference):
    """What FLIRT would have written for `pull`, mm of the source to mm of the reference, from four points."""
    corners = np.array([[0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9], [1, 1, 1, 1.0]])
    source_mm, source_world = fsl_image(source)
    reference_mm, reference_world = fsl_image(reference)
    seen = source_mm @ np.linalg.solve(source_world, pull @ reference_world @ corners)
    return reference_mm @ corners @ np.linalg.inv(seen)


def world_points(volume):
    index = np.stack([*np.meshgrid(*map(np.arange, volume.shape[:3]), indexing="ij"), np.ones(volume.shape[:3])])
    return volume.affine @ index.reshape(4, -1)


def sampled(source, points, shape):
    index = np.linalg.solve(source.affine, points)[:3]
    for axis, size in enumerate(source.shape):  # rounding does not take the outermost centres out of the image
        at = index[axis]
        at[(at < 0) & (at > -1e-9)] = 0
        at[(at > size - 1) & (at < size - 1 + 1e-9)] = size - 1
    return ndimage.map_coordinates(data(source).astype(float), index, order=1, mode="constant").reshape(shape)


class TransformFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="volpipe-transforms-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.images = {
            name: volume for name, volume in odd_images(("float32", "float64")).items() if min(volume.shape) > 2
        }

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
        return str(path)

    def check(self, file, pull, source, where, reference=None):
        stage = {"op": "affine", "file": file, "antialias": False}
        if reference is not None:
            stage["reference"] = str(self.folder / "reference.nii")
            nibabel.save(reference, stage["reference"])
        grid = source if reference is None else reference
        wanted = sampled(source, pull(world_points(grid)), grid.shape)
        assert np.count_nonzero(wanted) > wanted.size / 8, f"{where}: hardly any of the image is in sight"
        assert_close(data(run([stage], {"a": source})["a"]), wanted, where)

    def check_affine(self, file, pull, source, where, reference=None):
        self.check(file, lambda points: pull @ points, source, where, reference)

    def test_itk_text(self):
        for name, source in self.images.items():
            pull = about(middle(source))
            file = self.write("a.tfm", ITK + itk_block("AffineTransform", *itk_affine(pull, (5, -20, 30))))
            self.check_affine(file, pull, source, name)

    def test_itk_matlab(self):
        for name, source in self.images.items():
            pull = about(middle(source))
            parameters, center = itk_affine(pull, (5, -20, 30))
            file = str(self.folder / "0GenericAffine.mat")
            io.savemat(
                file,
                {"AffineTransform_double_3_3": parameters[:, None], "fixed": center[:, None]},
                format="4",
                appendmat=False,
            )
            self.check_affine(file, pull, source, name)

    def test_itk_composite_applies_the_last_first(self):
        source = self.images["oblique"]
        first, last = about(middle(source)), affine((1.1, 0.9, 1.0), (0, 8, 3), (1, 2, -2))
        last = about(middle(source), last)
        members = [itk_block("AffineTransform", *itk_affine(part, (1, 2, 3))) for part in (first, last)]
        file = self.write("a.tfm", ITK + "Transform: CompositeTransform_double_3_3\n" + "".join(members))
        self.check_affine(file, first @ last, source, "composite")

    def test_itk_bspline(self):
        source = self.images["oblique"]
        size, step = np.array([6, 7, 5]), np.array([9.0, 6, 11])
        direction = affine(angles=(20, -10, 40))[:3, :3]
        to_lps = np.eye(4)
        to_lps[:3, :3] = direction * step
        to_lps[:3, 3] = (LPS @ [*middle(source), 1])[:3] - to_lps[:3, :3] @ ((size - 1) / 2)
        coefficients = np.random.default_rng(1).normal(0, 2, (3, *size))
        fixed = np.concatenate([size, to_lps[:3, 3], step, direction.ravel()])
        # ITK counts the first axis fastest, within each component.
        parameters = np.concatenate([component.ravel(order="F") for component in coefficients])
        file = self.write("a.tfm", ITK + itk_block("BSplineTransform", parameters, fixed))
        basis = interpolate.BSpline.basis_element(np.arange(5) - 2.0, extrapolate=False)

        def pull(points):
            lps = LPS @ points
            index = np.linalg.solve(to_lps, lps)[:3]
            inside = np.all((index >= 1) & (index <= size[:, None] - 2), axis=0)
            weights = [np.nan_to_num(basis(index[axis][:, None] - np.arange(size[axis]))) for axis in range(3)]
            moved = np.einsum("cijk,pi,pj,pk->cp", coefficients, *weights)
            lps[:3] += np.where(inside, moved, 0)
            return LPS @ lps

        self.check(file, pull, source, "B-spline")

    def test_flirt_of_images_of_either_hand(self):
        hands = set()
        for name, source in self.images.items():
            for orientation in ("RAS", "LAS"):
                place = affine((1.4, 1.1, 1.7), (5, 0, -10), orientation=orientation)
                target = image(np.zeros((12, 9, 10), np.float32), place)
                place[:3, 3] = (middle(source) - middle(target)).astype(np.float32)
                target = image(data(target), place)
                hands.add((np.linalg.det(source.affine) > 0, np.linalg.det(target.affine) > 0))
                pull = about(middle(source))
                # FSL writes decimals; all of them, so that the test need not allow for their loss.
                rows = [numbers(row) + "  \n" for row in flirt_matrix(pull, source, target)[:3]]
                file = self.write("flirt.mat", "".join(rows) + "0  0  0  1  \n")
                self.check_affine(file, pull, source, f"{name} to {orientation}", target)
        assert len(hands) == 4, hands

    def test_plain_matrix_moves_the_image(self):
        source = self.images["lefthanded"]
        pull = about(middle(source))
        push = np.linalg.inv(pull)
        for name, rows in (("a.txt", push), ("three_rows.xfm", push[:3])):
            file = self.write(name, "# input to output\n" + "".join(numbers(row) + "\n" for row in rows))
            self.check_affine(file, pull, source, name)

    def test_saved_transforms(self):
        """The map of `invert` takes points of its output, where the image came from, to where `affine` put them."""
        source = self.images["oblique"]
        push = np.linalg.inv(about(middle(source)))
        for extension in ("txt", "tfm", "mat"):
            stages = [
                {"op": "affine", "name": "moved", "matrix": push.tolist()},
                {"op": "invert", "of": "moved", "save": "{dir}/{stem}." + extension},
            ]
            out = self.folder / extension
            nibabel.save(source, self.folder / "a.nii")
            spec = write_spec(self.folder, stages)
            done = call("run", spec, self.folder / "a.nii", "-o", out, "--device", "cpu", "-q")
            assert done.returncode == 0, done.stderr
            (path,) = out.rglob(f"*.{extension}")
            if extension == "txt":
                got = np.linalg.inv(np.loadtxt(path))
            else:
                if extension == "mat":
                    content = io.loadmat(path)
                    parameters, center = content["AffineTransform_double_3_3"].ravel(), content["fixed"].ravel()
                else:
                    fields = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
                    assert fields["Transform"] == "AffineTransform_double_3_3"
                    parameters = np.array(fields["Parameters"].split(), float)
                    center = np.array(fields["FixedParameters"].split(), float)
                assert np.all(center == 0), extension
                lps = np.eye(4)
                lps[:3, :3], lps[:3, 3] = parameters[:9].reshape(3, 3), parameters[9:]
                got = LPS @ lps @ LPS
            assert np.allclose(got, push, rtol=1e-12, atol=1e-12), extension


if __name__ == "__main__":
    unittest.main()
