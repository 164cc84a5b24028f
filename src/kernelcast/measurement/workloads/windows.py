"""Windows that move over images: what convolutions and pooling share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.sizes import MOST_ELEMENTS, check_sizes, per_dimension

EXTENTS = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""What the dimensions of an image are called, by their number."""

LAYOUTS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}
"""N: images of a batch, C: channels, the rest: the dimensions of an image."""


@dataclass(frozen=True)
class Window:
    """A checked image and the window that moves over it; tuples have one entry a dimension.

    Attributes:
        sizes: all sizes as they were configured.
        extents: of the image.
        kernel: extent of the window, without dilation.
        stride: by how much the window moves.
        padding: zeros on either side.
        dilation: distance between neighbours in the window.
    """

    sizes: dict[str, Any]
    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def check_fits(self, name: str) -> None:
        """Makes sure that the window is nowhere larger than the padded image.

        Raises:
            ConfigError: it is; names the dimension.
        """
        for dimension, extent, kernel, padding, dilation in zip(
            EXTENTS[len(self.extents)], self.extents, self.kernel, self.padding, self.dilation, strict=True
        ):
            covered, padded = (kernel - 1) * dilation + 1, extent + 2 * padding
            if covered > padded:
                dilated = f", {covered} when dilated," if dilation > 1 else ""
                raise ConfigError(
                    f"workload {name}: kernel ({kernel}{dilated}) is larger than the padded image, whose {dimension} "
                    f"is {padded}; make kernel or dilation smaller, or padding larger"
                )
            if padded > MOST_ELEMENTS:
                raise ConfigError(
                    f"workload {name}: padding ({padding}) makes {dimension} {padded}; {MOST_ELEMENTS} at most"
                )


def window_of(
    name: str,
    dimensions: int,
    batch: int,
    extents: dict[str, int],
    channels: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    **more: int,
) -> Window:
    """A window from sizes as they are configured; `more` are further sizes to check.

    Raises:
        ConfigError: a size that cannot be; names it.
    """
    whole = check_sizes(name, batch=batch, **extents, channels=channels, **more)
    names = EXTENTS[dimensions]
    return Window(
        {**whole, "kernel": kernel, "stride": stride, "padding": padding},
        tuple(extents.values()),
        per_dimension(name, "kernel", kernel, names),
        per_dimension(name, "stride", stride, names),
        per_dimension(name, "padding", padding, names, least=0),
        per_dimension(name, "dilation", dilation, names),
    )


def shape_in(layout: str, batch: int, channels: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of images in a layout."""
    return (batch, channels, *extents) if layout[1] == "C" else (batch, *extents, channels)
