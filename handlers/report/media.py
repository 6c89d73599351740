"""The cards of images and of histograms."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from .facts import Picture, RunFacts, shown
from .figures import histogram_key, look_of
from .markup import Html, breakable, counted, swatch, tag

Address = Callable[[Picture], str]
"""Where a page finds a picture."""
SMALL = 256
"""Pixels: narrower images are enlarged, with their pixels as squares."""


def embedded_image(picture: Picture) -> str:
    """The address that holds the picture itself."""
    return f"data:image/png;base64,{base64.b64encode(picture.content).decode()}"


def images(runs: Sequence[RunFacts], address: Address) -> list[Html]:
    """A card for each name of images and each run, with a slider over its images."""
    chosen = shown({f"{run.name}/{name}": run.images[name] for run in runs for name in run.images})
    names = dict.fromkeys(name for run in runs for name in run.images)
    cards = [
        _image_card(name, runs, place, kept, address)
        for name in names
        for place, run in enumerate(runs)
        if (kept := [picture for picture in run.images.get(name, []) if picture in chosen])
    ]
    if more := sum(len(run.images) for run in runs) - len(cards):
        left = f"Not shown: images of {counted(more, 'other name')}, in the run's directory"
        cards.append(tag("p", left, class_="empty"))
    return cards


def _image_card(
    name: str,
    runs: Sequence[RunFacts],
    place: int,
    kept: Sequence[Picture],
    address: Address,
) -> Html:
    last = len(kept) - 1
    frames = [
        tag(
            "img",
            src=address(picture),
            alt=f"{name} at iteration {picture.iteration}",
            loading="lazy",
            data_iteration=picture.iteration,
            **({"class_": "pixels"} if picture.width < SMALL else {}),
            **({} if index == last else {"hidden": ""}),
        )
        for index, picture in enumerate(kept)
    ]
    slider = tag("input", type="range", min=0, max=last, value=last, aria_label=f"Image of {name}")
    at = tag("output", f"iteration {kept[-1].iteration:,}")
    more = len(runs[place].images[name]) - len(kept)
    left = f"{counted(more, 'other image')} in the run's directory" if more else ""
    return tag(
        "figure",
        _caption(name, runs, place),
        tag("div", *frames, class_="frames"),
        tag("label", *([slider] if last else []), at, class_="slider"),
        tag("p", left, class_="notes"),
        class_="card image",
        data_metrics=name,
        data_run=place,
    )


def histograms(runs: Sequence[RunFacts]) -> list[Html]:
    """A card for each metric of histograms and each run."""
    names = dict.fromkeys(name for run in runs for name in run.histograms)
    return [
        _histogram_card(name, runs, place)
        for name in names
        for place, run in enumerate(runs)
        if name in run.histograms
    ]


def _histogram_card(name: str, runs: Sequence[RunFacts], place: int) -> Html:
    found = runs[place].histograms[name]
    words = f"Heat map of {name}: the share of its values in each range, by iteration."
    left = f"{len(found['x'])} of {counted(found['count'], 'histogram')}"
    key = histogram_key(place, name)
    return tag(
        "figure",
        _caption(name, runs, place),
        tag("div", class_="chart", role="img", aria_label=words, data_figure=key),
        tag("p", left if len(found["x"]) < found["count"] else "", class_="notes"),
        class_="card",
        data_metrics=name,
        data_run=place,
    )


def _caption(name: str, runs: Sequence[RunFacts], place: int) -> Html:
    of = [swatch(*look_of(place, 0, len(runs))), runs[place].name] if len(runs) > 1 else []
    return tag("figcaption", tag("h3", breakable(name)), tag("span", *of, class_="metrics"))
