"""A ring to a file and back: rows stand afterwards where they stood before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from outrider import tree
from outrider.dataset.ragged_text import decode, encode
from outrider.dataset.spec_json import spec_to_json
from outrider.errors import ConfigError
from outrider.records.step_spec import StepSpec
from outrider.replay.archive import Reader, Writer
from outrider.replay.columns import column_specs
from outrider.replay.ring import Ring
from outrider.replay.samplers import Draws
from outrider.replay.sparse import UNKNOWN
from outrider.spec import LeafSpec, RaggedSpec
from outrider.values import objects

__all__ = ["describe_spec", "restore_ring", "write_rows"]


def describe_spec(spec: StepSpec) -> dict[str, Any]:
    """A spec as JSON, without its spaces where these have no description: no row depends on them."""
    try:
        return spec_to_json(spec)
    except ConfigError:
        return spec_to_json(replace(spec, observation_space=None, action_space=None))


def write_rows(writer: Writer, ring: Ring, draws: Draws) -> dict[str, Any]:
    """Write a ring, and the arrays of the state of a sampler; return the rest of this state."""
    _write_ring(writer, ring)
    rest = {}
    for name, value in draws.state().items():
        if isinstance(value, np.ndarray):
            writer.array(f"draws/{name}", value)
        else:
            rest[name] = value
    return rest


def _write_ring(writer: Writer, ring: Ring) -> None:
    """Write all rows that have been in use, and where each lane stands."""
    used = min(ring.rows, (int(ring.heads.max()) + 1) * ring.num_envs)
    for name, spec, leaf in _leaves(ring):
        _write(writer, name, spec, leaf[:used])
    for name, table in ring.tables.items():
        known, unknown = np.flatnonzero(table.at >= 0), np.flatnonzero(table.at == UNKNOWN)
        writer.array(f"tables/{name}/known", known)
        writer.array(f"tables/{name}/unknown", unknown)
        values = tree.leaves(table.take(known))
        for index, (spec, leaf) in enumerate(zip(tree.leaves(table.specs), values, strict=True)):
            _write(writer, f"tables/{name}/values/{index}", spec, leaf)
    for name, array in ring.lane_state.items():
        writer.array(f"lanes/{name}", array)


def restore_ring(reader: Reader, ring: Ring) -> None:
    """Fill an empty ring of the same spec and capacity; running episodes are cut, as nothing may go on behind a seam.

    Raises:
        ReplayError: the file is torn, or of another ring.
    """
    for name, spec, leaf in _leaves(ring):
        if isinstance(spec, RaggedSpec):
            values = _read_ragged(reader, name, spec)
            leaf[: len(values)] = values
        else:
            reader.into(name, leaf)
    for name, table in ring.tables.items():
        if table is not ring.finals and not reader.has(f"tables/{name}/known"):
            continue  # Recurrent states for another view than that of the buffer that was saved: nobody has kept them.
        leaves = [
            _read_ragged(reader, place, spec) if isinstance(spec, RaggedSpec) else reader.array(place)
            for index, spec in enumerate(tree.leaves(table.specs))
            for place in [f"tables/{name}/values/{index}"]
        ]
        table.put(reader.array(f"tables/{name}/known"), tree.unflatten(table.specs, leaves))
        table.mark_unknown(reader.array(f"tables/{name}/unknown"))
    for name, array in ring.lane_state.items():
        reader.into(f"lanes/{name}", array)
    ring.cut(np.arange(ring.num_envs))


def _leaves(ring: Ring) -> Iterator[tuple[str, LeafSpec, Any]]:
    """Everything that has a value for each row of the ring, under names that no two share."""
    columns, specs = {"obs": ring.obs, **ring.columns}, {"obs": ring.spec.obs, **column_specs(ring.spec)}
    for column, arrays in columns.items():
        pairs = zip(tree.leaves(specs[column]), tree.leaves(arrays), strict=True)
        for index, (spec, leaf) in enumerate(pairs):
            yield f"rows/{column}/{index}", spec, leaf


def _write(writer: Writer, name: str, spec: LeafSpec, values: np.ndarray) -> None:
    """Write rows; ragged ones as the bytes of their texts, one after the other, and where each of them ends."""
    if not isinstance(spec, RaggedSpec):
        writer.array(name, values)
        return
    texts = [encode(spec.kind, value).encode() for value in values.tolist()]
    writer.array(f"{name}/bytes", np.frombuffer(b"".join(texts), np.uint8))
    writer.array(f"{name}/ends", np.cumsum([len(text) for text in texts], dtype=np.int64))


def _read_ragged(reader: Reader, name: str, spec: RaggedSpec) -> np.ndarray:
    data, ends = reader.array(f"{name}/bytes").tobytes(), reader.array(f"{name}/ends").tolist()
    values = [decode(spec.kind, data[start:end].decode()) for start, end in zip([0, *ends], ends, strict=False)]
    return objects(values, (len(values),))
