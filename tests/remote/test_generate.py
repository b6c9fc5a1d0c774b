"""The generated client matches the OpenAPI document."""

import json
from pathlib import Path

from penstock.remote import generate

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
MADE = generate.modules(json.loads(DOCUMENT.read_text("utf-8")))
HOW = f"run: python -m penstock.remote.generate {DOCUMENT.relative_to(Path(__file__).parents[2])}"


def test_up_to_date() -> None:
    """The committed client is up to date, and no module is left over."""
    folders = ("api", "shapes")
    there = {
        path.relative_to(generate.FOLDER).as_posix(): path.read_text("utf-8")
        for folder in folders
        for path in sorted(Path(generate.FOLDER, folder).glob("*.py"))
    }
    assert there.keys() == MADE.keys(), HOW
    for name, text in MADE.items():
        assert there[name] == text, f"{name}: {HOW}"


def test_every_operation_is_a_method() -> None:
    """Every operation has a method."""
    document = json.loads(DOCUMENT.read_text("utf-8"))
    text = "".join(MADE.values())
    for operations in document["paths"].values():
        for operation in operations.values():
            if "." in operation["operationId"]:
                continue  # a declared route has no generated code
            assert f"    def {operation['operationId']}(" in text
