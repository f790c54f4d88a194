"""One list of versions, and a project that speaks of itself alone."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def lock() -> dict[str, Version]:
    lines = [
        line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0] != "#"
    ]
    pins = [Requirement(line) for line in lines]
    assert all(len(pin.specifier) == 1 and str(pin.specifier).startswith("==") for pin in pins)
    return {pin.name.lower().replace("_", "-"): Version(str(pin.specifier)[2:]) for pin in pins}


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(text) for group in extras for text in group if not text.startswith("pagedkv")]


def test_installing_the_package_alone_brings_nothing_else() -> None:
    assert PROJECT["dependencies"] == []


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_the_lock_satisfies_every_requirement(requirement: Requirement) -> None:
    assert lock()[requirement.name.lower().replace("_", "-")] in requirement.specifier


def test_conda_users_get_the_versions_of_the_lock() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(item["pip"] for item in environment["dependencies"] if isinstance(item, dict))
    assert pip == ["--constraint requirements.lock", "-e .[dev]"]
    assert "python=3.11" in environment["dependencies"]


def test_jupyter_book_is_the_one_that_reads_config_yml() -> None:
    # jupyter-book 2 ignores _config.yml and exits 0 without a page: QuantEcon/lecture-python-programming#569.
    assert lock()["jupyter-book"].major == 1
    assert all("<2" in str(r.specifier) for r in requirements() if r.name == "jupyter-book")


def test_the_top_level_is_the_architecture() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in tracked.splitlines()}
    assert top <= {
        "README.md", "pyproject.toml", "requirements.lock", "environment.yml", "Makefile", "LICENSE", "LICENSE-text",
        "CITATION.cff", "CONTRIBUTING.md", "_config.yml", "_toc.yml", "book", "notebooks", "pagedkv", "data", "tests",
        ".ci", ".github", ".gitignore",
    }  # fmt: skip


def test_no_machine_paths_in_the_project() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    word = re.compile(r"/work/|/root/|/home/[a-z]+/|pypi\.org|pythonhosted")
    texts = [ROOT / f for f in tracked.splitlines() if not f.endswith((".safetensors", ".png"))]
    found = [
        str(f) for f in texts if f.exists() and f.name != Path(__file__).name and word.search(f.read_text())
    ]
    assert not found
