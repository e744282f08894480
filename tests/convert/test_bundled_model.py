"""The bundled default model: small, whole, and made by our own converter."""

from __future__ import annotations

import zlib
from pathlib import Path

import edgert
from edgert.loader import open_model

DEFAULT = Path(edgert.__file__).parent / "assets/default"


def test_it_is_at_most_five_megabytes_and_says_what_it_is():
    assert sum(file.stat().st_size for file in DEFAULT.iterdir()) <= 5_000_000
    assert "tools/make_bundled_model.py" in (DEFAULT / "README.md").read_text()


def test_it_is_a_folder_of_ours_with_every_byte_in_place():
    model = open_model(DEFAULT)
    assert model.checkpoint.kind == "edgert"
    data = model.checkpoint.files[0].read_bytes()
    parts = [part for source in model.weights.values() for part in source.entry.parts]
    assert len(parts) > 20
    for part in parts:
        assert part.checksum == f"crc32:{zlib.crc32(data[part.offset : part.offset + part.length]):08x}"
