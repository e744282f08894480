"""Where the tests find vocabularies beyond those that they make themselves."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of test data beside the repository; tests that need it are skipped without it."""
    folder = ROOT.parent / "shared"
    if not (folder / "tokenizers").is_dir():
        pytest.skip("needs ../shared/tokenizers, which is not beside this clone")
    return folder
