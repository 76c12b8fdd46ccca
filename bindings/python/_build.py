# SPDX-License-Identifier: Apache-2.0
"""PEP 517 backend: meson-python for a package that is one folder of a larger Meson project.

meson-python wants pyproject.toml beside the project's meson.build. So a wheel is built from a temporary
folder that holds links to the project and to our pyproject.toml. In a source distribution, which has the two
side by side, it is built in place.
"""

import contextlib
import io
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile

import mesonpy

HERE = pathlib.Path(__file__).resolve().parent
ROOT = next(folder for folder in (HERE, *HERE.parents) if (folder / "meson_options.txt").exists())
# What a build needs, relative to the root; a source distribution holds just that.
SOURCES = "meson.build meson_options.txt LICENSE README.md lib cuda swig bindings tests".split()


@contextlib.contextmanager
def _project():
    """The current folder is one that meson-python accepts."""
    before = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory(prefix="tartan-build-") as stage:
        if ROOT == HERE:
            stage = HERE
        else:
            for entry in ROOT.iterdir():
                if entry.name not in ("build", ".git", "pyproject.toml"):
                    (pathlib.Path(stage) / entry.name).symlink_to(entry)
            (pathlib.Path(stage) / "pyproject.toml").symlink_to(HERE / "pyproject.toml")
        os.chdir(stage)
        try:
            yield
        finally:
            os.chdir(before)


def _with_python(settings):
    settings = dict(settings or {})
    given = settings.get("setup-args", [])
    own = [f"-Dpython_exe={sys.executable}"]
    settings["setup-args"] = own + ([given] if isinstance(given, str) else list(given))
    return settings


def get_requires_for_build_wheel(config_settings=None):
    with _project():
        requires = mesonpy.get_requires_for_build_wheel(config_settings)
    return requires if shutil.which("swig") else [*requires, "swig >= 4.1"]


def get_requires_for_build_sdist(config_settings=None):
    return get_requires_for_build_wheel(config_settings)


def _configured(config_settings, build):
    return mesonpy.Project(os.curdir, build, {"setup": _with_python(config_settings)["setup-args"]})


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Without this hook pip would build the whole wheel, for minutes, to read its name."""
    with _project(), tempfile.TemporaryDirectory() as build:
        metadata = _configured(config_settings, build)._metadata
        folder = pathlib.Path(metadata_directory) / f"{metadata.distribution_name}-{metadata.version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_bytes(bytes(metadata.as_rfc822()))
        (folder / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: tartan\nRoot-Is-Purelib: false\n")
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    wheel_directory = os.path.abspath(wheel_directory)
    with _project():
        return mesonpy.build_wheel(wheel_directory, _with_python(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """The sources that a wheel needs, with pyproject.toml and this file at the top."""
    with _project(), tempfile.TemporaryDirectory() as build:
        project = _configured(config_settings, build)
        metadata = bytes(project._metadata.as_rfc822())
        stem = f"{project._metadata.distribution_name}-{project._metadata.version}"
    target = pathlib.Path(sdist_directory) / f"{stem}.tar.gz"
    with tarfile.open(target, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in SOURCES:
            if (ROOT / name).exists():
                archive.add(ROOT / name, f"{stem}/{name}", filter=_plain)
        for name in ("pyproject.toml", "_build.py"):
            archive.add(HERE / name, f"{stem}/{name}", filter=_plain)
        info = tarfile.TarInfo(f"{stem}/PKG-INFO")
        info.size = len(metadata)
        archive.addfile(info, io.BytesIO(metadata))
    return target.name


def _plain(info):
    if pathlib.PurePosixPath(info.name).name in (
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        "build",
        "dist",
    ):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
