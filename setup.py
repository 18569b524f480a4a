"""Maps the three top folders, and the samples, into the one package `satchel`."""

from setuptools import find_packages, setup

FOLDERS = ("workspace", "runtime", "schemas", "sample_workspaces")
INCLUDE = [pattern for folder in FOLDERS for pattern in (folder, f"{folder}.*")]

setup(
    packages=["satchel", "satchel.adapters", *(f"satchel.{name}" for name in find_packages(include=INCLUDE))],
    package_dir={"satchel": "src/satchel", **{f"satchel.{folder}": folder for folder in FOLDERS}},
)
