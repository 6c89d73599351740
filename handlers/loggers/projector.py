"""Embeddings as files for TensorBoard's projector."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from ..common.media import Embedding, Image, grid
from .png import png

CONFIG = "projector_config.pbtxt"


def write_embedding(directory: Path, name: str, iteration: int, embedding: Embedding) -> None:
    """Write the points into a folder of their own, and its name into the projector's settings.

    What was written of the same name and iteration before is replaced.
    """
    folder = directory / "embeddings" / quote(name, safe="") / str(iteration)
    folder.mkdir(parents=True, exist_ok=True)
    rows = ("\t".join(map(repr, row)) for row in embedding.vectors.double().tolist())
    _write(folder / "tensors.tsv", rows)
    inside = folder.relative_to(directory).as_posix()
    settings = [f"  tensor_name: {json.dumps(f'{name}:{iteration}')}"]
    settings.append(f'  tensor_path: "{inside}/tensors.tsv"')
    if embedding.labels is not None:
        _write(folder / "metadata.tsv", (" ".join(each.split()) for each in embedding.labels))
        settings.append(f'  metadata_path: "{inside}/metadata.tsv"')
    if embedding.images is not None:
        height, width = embedding.images.shape[-2:]
        (folder / "sprite.png").write_bytes(png(Image(grid(embedding.images))))
        settings.append(f'  sprite {{ image_path: "{inside}/sprite.png"')
        settings.append(f"    single_image_dim: {width} single_image_dim: {height} }}")
    _add("embeddings {\n" + "\n".join(settings) + "\n}\n", directory / CONFIG)


def _add(entry: str, config: Path) -> None:
    known = config.read_text(encoding="utf-8") if config.exists() else ""
    if entry not in known:
        config.write_text(known + entry, encoding="utf-8")


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
