"""Loading pipelines: by module, by attribute, by file; every error names the target."""

import sys
from pathlib import Path

import pytest

from penstock.core.errors import DeclarationError, InvalidInput
from penstock.pipelines.loading import load_pipelines

GOOD = """
from penstock.pipelines.declare.pipeline import Pipeline
{name} = Pipeline("{name}")
alias = {name}

@{name}.processor
def work(run): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_three_ways_find_the_same_pipeline(folder: Path) -> None:
    path = write(folder, "loading_good", GOOD.format(name="good"))
    targets = ["loading_good", "loading_good:good", "loading_good:alias", str(path)]
    (found,) = load_pipelines(targets)
    assert found.name == "good"
    assert load_pipelines(targets) == [found]


@pytest.mark.parametrize(
    ("text", "target", "fix"),
    [
        (None, "loading_none", "no module 'loading_none'"),
        ("import loading_absent", "loading_dep", "imports 'loading_absent'"),
        ("1 / 0", "loading_raises", "ZeroDivisionError: division by zero"),
        ("def broken(:", "loading_syntax", "SyntaxError"),
        ("x = 1", "loading_empty", "Declare one at the top level"),
        ("x = 1", "loading_attr:y", "Check its spelling"),
        ("x = 1", "loading_int:x", "got 'int'"),
        (None, "loading_missing.py", "Check the path"),
    ],
)
def test_each_error_says_how_to_fix_it(
    folder: Path, text: str | None, target: str, fix: str
) -> None:
    if text is not None:
        write(folder, target.partition(":")[0], text)
    with pytest.raises(InvalidInput) as caught:
        load_pipelines([target])
    assert fix in caught.value.message


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("a = 1\n\n\nb = c\n", "NameError: name 'c' is not defined ({name}.py, line 4)"),
        ("import json\n\njson.loads('')\n", "(char 0) ({name}.py, line 3)"),
        (
            "from penstock import Pipeline\np = Pipeline('p', partition='a b')\n",
            "partition: 'a b' is not a column name ({name}.py, line 2)",
        ),
        ("def f():\n    return {{}}['x']\n\nf()\n", "KeyError: 'x' ({name}.py, line 2)"),
        ("import os\nimport loading_gone\n", "which is not installed ({name}.py, line 2)."),
        ("x = 1\nif:\n", "SyntaxError: invalid syntax ({name}.py, line 2)"),
    ],
)
def test_a_failed_import_names_the_line(
    folder: Path, request: pytest.FixtureRequest, text: str, ending: str
) -> None:
    """The innermost line of the user's code, not of a library that it calls; once."""
    name = f"loading_line_{request.node.callspec.indices['text']}"
    path = write(folder, name, text.replace("{{}}", "{}"))
    with pytest.raises(InvalidInput) as caught:
        load_pipelines([str(path)])
    assert caught.value.message.endswith(ending.format(name=name))
    assert caught.value.message.count(", line ") == 1


def test_a_failed_import_names_the_imported_file(folder: Path) -> None:
    write(folder, "loading_helper", "\n1 / 0\n")
    path = write(folder, "loading_main", "import loading_helper\n")
    with pytest.raises(InvalidInput, match=r"by zero \(loading_helper.py, line 2\)$"):
        load_pipelines([str(path)])


@pytest.mark.parametrize("target", [".", "..", "./", ".shop", ""])
def test_a_folder_is_not_a_module(target: str) -> None:
    with pytest.raises(InvalidInput, match=r"a file such as pipeline\.py or a module such as shop"):
        load_pipelines([target])


def test_a_file_needs_a_unique_name(folder: Path) -> None:
    path = write(folder, "json", GOOD.format(name="good"))
    with pytest.raises(InvalidInput, match="rename the file"):
        load_pipelines([str(path)])
    path = write(folder, "not-a-name", GOOD.format(name="good"))
    with pytest.raises(InvalidInput, match="can be imported"):
        load_pipelines([str(path)])


def test_duplicate_names_are_refused(folder: Path) -> None:
    write(folder, "loading_one", GOOD.format(name="same"))
    write(folder, "loading_two", GOOD.format(name="same"))
    with pytest.raises(InvalidInput, match="rename one"):
        load_pipelines(["loading_one", "loading_two"])


def test_an_inconsistent_pipeline_is_refused_when_loaded(folder: Path) -> None:
    write(
        folder,
        "loading_bad",
        "from penstock.pipelines.declare.pipeline import Pipeline\np = Pipeline('p')\np.phase('a')",
    )
    with pytest.raises(DeclarationError, match="phase p/a has no processors"):
        load_pipelines(["loading_bad"])


def test_an_inconsistent_pipeline_names_its_file(folder: Path) -> None:
    """The error also says what to declare."""
    text = 'from penstock import Pipeline\ny = Pipeline("y")\n'
    path = write(folder, "loading_without_processors", text)
    with pytest.raises(DeclarationError) as caught:
        load_pipelines([str(path)])
    assert caught.value.message == (
        f"{path}: pipeline y has no phases and no processors. Declare a processor: a function with "
        "@PIPELINE.processor() above it, or with @PHASE.processor() for a phase."
    )
