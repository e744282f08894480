"""Weights as placement sees them, the pieces that matrices are cut into, and the order in which pieces are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from edgert.errors import UsageError

Kind = Literal["vector", "matrix", "expert", "lookup", "neurons"]
Policy = Literal["balanced", "first", "none"]
POLICIES: tuple[Policy, ...] = ("balanced", "first", "none")

# Direct reads begin and end at whole sectors of the file: up to one more at each end of a segment.
SECTOR_BYTES = 4096
SEGMENT_SLACK_BYTES = 2 * SECTOR_BYTES
_SHARE_STEPS = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Of a matrix that lies neuron by neuron: `count` columns of `record_bytes`; beside_bytes stay in memory anyway."""

    count: int
    record_bytes: int
    beside_bytes: int

    @property
    def num_bytes(self) -> int:
        return self.count * self.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightItem:
    """A weight of the model.

    kind: "vector" stays in memory; "matrix" may be streamed; "expert" lies in the expert cache; of a "lookup" (an
    embedding that is nothing else) single rows are read; of "neurons" single columns, `records`. layer: None outside of
    the layers. unit_rows: rows that cannot be separated. num_segments: ranges of the file that a piece has.
    resident_bytes: in memory as a whole.
    """

    name: str
    role: str
    layer: int | None
    rows: int
    file_bytes: int
    unit_rows: int
    kind: Kind
    num_segments: int
    resident_bytes: int
    is_logits: bool = False
    records: Records | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a matrix that are read, kept and freed together. memory_bytes: room that it takes in the pool."""

    weight: str
    first_row: int
    num_rows: int
    file_bytes: int
    memory_bytes: int


def cut(item: WeightItem, piece_bytes: int) -> tuple[Piece, ...]:
    """The pieces of a matrix: whole units, as even as can be, each of at most `piece_bytes` of the file or one unit."""
    num_units = -(-item.rows // item.unit_rows)
    units_a_piece = max(1, piece_bytes * num_units // max(1, item.file_bytes))
    num_pieces = -(-num_units // units_a_piece)
    bounds = [num_units * i // num_pieces * item.unit_rows for i in range(num_pieces)] + [item.rows]
    return tuple(piece_of(item, first, last) for first, last in pairwise(bounds))


def piece_of(item: WeightItem, first: int, last: int) -> Piece:
    """Rows first to last - 1."""
    # A packed file pads the last rows to a whole unit, and the lanes in memory may be wider than the rows of a file.
    padded_rows = -(-(last - first) // item.unit_rows) * item.unit_rows
    most_bytes = -(-max(item.file_bytes, item.resident_bytes) * padded_rows // item.rows)
    return Piece(
        weight=item.name,
        first_row=first,
        num_rows=last - first,
        file_bytes=item.file_bytes * last // item.rows - item.file_bytes * first // item.rows,
        memory_bytes=-(-most_bytes // SECTOR_BYTES) * SECTOR_BYTES + item.num_segments * SEGMENT_SLACK_BYTES,
    )


def lock_order(items: Sequence[WeightItem], pieces: Sequence[Piece], policy: Policy) -> tuple[int, ...]:
    """Indices of the pieces in the order in which they are kept. Raises UsageError for an unknown policy.

    "balanced": in every prefix each layer has kept the same share of its bytes, up to one piece, attention first
    (FlexInfer, 2025). "first": the first layers wholly. "none": nothing.
    """
    if policy == "none":
        return ()
    if policy == "first":
        return tuple(range(len(pieces)))
    if policy != "balanced":
        raise UsageError(f"policy: found {policy!r}, expected one of {', '.join(POLICIES)}")
    by_name = {item.name: item for item in items}
    groups: dict[str, list[int]] = defaultdict(list)
    for index, piece in enumerate(pieces):
        groups[group_of(by_name[piece.weight])].append(index)
    keys: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(groups.values()):
        # The sort is stable: within each half in the order of use.
        group.sort(key=lambda index: not by_name[pieces[index].weight].role.startswith("attn_"))
        total = max(1, sum(pieces[index].file_bytes for index in group))
        before = 0
        for index in group:
            keys[index] = (before * _SHARE_STEPS // total, number)
            before += pieces[index].file_bytes
    return tuple(sorted(keys, key=keys.__getitem__))


def group_of(item: WeightItem) -> str:
    """Its layer; outside of the layers each matrix is a group of its own.

    A streamed byte costs the same wherever it lies. What matters is that the disk never waits for a stretch that
    computes without reading, nor the computing for one that reads more than its share: so the output matrix, whose
    computing takes as long for each byte as that of a layer, streams the same share of its bytes as the layers do.
    """
    return item.name if item.layer is None else f"layer {item.layer}"
