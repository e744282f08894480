"""Where the tests find templates beyond those that they hold themselves."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of test data beside the repository; tests that need it are skipped without it."""
    folder = ROOT.parent / "shared"
    if not (folder / "templates").is_dir():
        pytest.skip("needs ../shared/templates, which is not beside this clone")
    return folder
