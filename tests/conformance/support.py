"""Runs the program over volumes in a folder of their own and hands back what it wrote.

Environment: VOLPIPE, the program; VOLPIPE_SHARED (or a folder `shared` beside the repository), real volumes and fixtures, without which tests that need
it are skipped.
"""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile

import nibabel
import numpy as np

PROGRAM = os.environ["VOLPIPE"]
SHARED = pathlib.Path(os.environ.get("VOLPIPE_SHARED", pathlib.Path(__file__).resolve().parents[3] / "shared"))
NO_SHARED = "there is no folder of shared data: neither $VOLPIPE_SHARED nor one beside the repository"

# Interpolation and filters compute in float32 with some tens of products a voxel: 64 * 2^-24 of the range is 4e-6.
TOLERANCE = 1e-5

BOUNDARIES = ("constant", "grid-constant", "nearest", "mirror", "reflect", "wrap", "grid-wrap")
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
ORIENTATIONS = tuple(
    "".join(letters) for axes in itertools.permutations(("RL", "AP", "SI")) for letters in itertools.product(*axes)
)


def rotation(degrees):
    """Rotations about x, y, z, one after the other."""
    matrix = np.eye(3)
    for axis, angle in enumerate(np.radians(degrees)):
        turn = np.eye(3)
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[j, i], turn[i, j] = np.sin(angle), -np.sin(angle)
        matrix = turn @ matrix
    return matrix


def affine(spacing=(1, 1, 1), angles=(0, 0, 0), origin=(0, 0, 0), orientation="RAS"):
    """Voxel-to-world map: the named orientation, turned by `angles`; rounded to float32, as a file stores it."""
    axes = nibabel.orientations.inv_ornt_aff(
        nibabel.orientations.ornt_transform(
            nibabel.orientations.axcodes2ornt("RAS"), nibabel.orientations.axcodes2ornt(orientation)
        ),
        (1, 1, 1),
    )[:3, :3]
    result = np.eye(4)
    result[:3, :3] = rotation(angles) @ axes * spacing
    result[:3, 3] = origin
    return result.astype(np.float32).astype(float)


def random_array(shape, dtype, seed=0):
    draw = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return draw.normal(10, 100, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def image(array, matrix=None):
    """A NIfTI image with an sform alone, so that no second affine can be meant."""
    result = nibabel.Nifti1Image(array, affine() if matrix is None else matrix, dtype=array.dtype)
    result.set_sform(result.affine, 1)
    result.set_qform(None, 0)
    return result


def random_image(shape, dtype="float32", seed=0, **geometry):
    return image(random_array(shape, dtype, seed), affine(**geometry))


def odd_images(dtypes=("float32", "int16", "uint8", "float64")):
    """Odd sizes, anisotropic, oblique, left-handed, one and two voxels on an axis; the pixel types in turn."""
    shapes = {
        "oblique": ((17, 13, 9), dict(spacing=(0.8, 1.3, 2.5), angles=(10, -20, 35), origin=(-30, 12, 55))),
        "lefthanded": ((8, 11, 6), dict(spacing=(1.5, 1.0, 2.0), orientation="LAS", origin=(90, -100, -70))),
        "permuted": ((5, 14, 7), dict(spacing=(2.2, 0.9, 1.1), orientation="PSR", angles=(3, 0, -4))),
        "slice": ((12, 10, 1), dict(spacing=(1, 1, 7), orientation="SPL")),
        "line": ((1, 9, 1), dict(spacing=(3, 0.5, 2))),
        "pair": ((9, 2, 5), dict(spacing=(0.7, 4, 1.6), orientation="RPI")),
    }
    return {
        name: random_image(shape, dtypes[i % len(dtypes)], i, **geometry)
        for i, (name, (shape, geometry)) in enumerate(shapes.items())
    }


def call(*arguments, **options):
    """The finished process; 134, 139 and negative codes (ended by a signal) are never right."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=300, **options
    )
    assert 0 <= done.returncode < 128, f"ended by a signal: {done.returncode}\n{done.stderr}"
    return done


def write_spec(folder, stages, kind="image", dtype=None, **more):
    output = {"path": "{dir}/{stem}.nii", **({"dtype": dtype} if dtype else {})}
    spec = {
        "volpipe": 1,
        "inputs": {"image": {"kind": kind}},
        "stages": list(stages),
        "outputs": {"image": output},
        **more,
    }
    path = pathlib.Path(folder) / "spec.json"
    path.write_text(json.dumps(spec))
    return path


def run(stages, images, kind="image", dtype=None):
    """{name: image out} of `stages` over {name: image in}, in one process."""
    with tempfile.TemporaryDirectory(prefix="volpipe-conformance-") as folder:
        folder = pathlib.Path(folder)
        (folder / "in").mkdir()
        for name, volume in images.items():
            nibabel.save(volume, folder / "in" / f"{name}.nii")
        done = call(
            "run", write_spec(folder, stages, kind, dtype), folder / "in", "-o", folder / "out", "--device", "cpu", "-q"
        )
        assert done.returncode == 0, f"{stages}: exit {done.returncode}\n{done.stderr}"
        return {name: load(folder / "out" / f"{name}.nii") for name in images}


def load(path):
    """The image with its voxels in memory, in their stored type."""
    volume = nibabel.load(path)
    return nibabel.Nifti1Image(np.array(volume.dataobj), volume.affine, volume.header)


def data(volume):
    return np.asanyarray(volume.dataobj)


def assert_close(got, wanted, where="", tolerance=TOLERANCE, scale=None):
    """Everywhere within `tolerance` of the range of what is wanted."""
    wanted = np.asarray(wanted, float)
    assert got.shape == wanted.shape, f"{where}: shape {got.shape}, expected {wanted.shape}"
    scale = max(np.ptp(wanted), np.abs(wanted).max(), 1e-30) if scale is None else scale
    error = np.abs(np.asarray(got, float) - wanted)
    worst = np.unravel_index(np.argmax(error), error.shape)
    found = f"{error[worst] / scale:.3g} of the range at {tuple(map(int, worst))}"
    assert error[worst] <= tolerance * scale, f"{where}: {found}: got {got[worst]}, expected {wanted[worst]}"


def assert_affine(got, wanted, where=""):
    """Origins and steps agree to what float32, the type of a NIfTI affine, can hold."""
    error = np.abs(np.asarray(got) - wanted).max()
    assert error <= 2e-6 * max(1, np.abs(wanted).max()), f"{where}: affine\n{got}\nexpected\n{wanted}"
