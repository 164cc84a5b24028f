"""The networks to choose from: each function asks for one and can be a Hydra `_target_`.

Architectures with random weights: run times do not depend on them, and nothing is downloaded. All data are float32,
tokens int64. `fused=False` keeps every operator a kernel of its own. `network` is the name in `Workload.networks`, the
entry's own by default; the unfused network adds `/unfused`. Sizes are positive integers;
`batch` counts images or texts.
"""

from __future__ import annotations

from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.networks.requests import Request, network_request


def resnet18(
    name: str,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    fused: bool = True,
    network: str | None = None,
) -> Request:
    """ResNet-18 (He et al. 2015) over square images of `image` pixels a side."""
    return _request(name, "resnet18", network, fused, batch=batch, image=image, classes=classes)


def mobilenet_v2(
    name: str,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    fused: bool = True,
    network: str | None = None,
) -> Request:
    """MobileNetV2 (Sandler et al. 2018) over square images of `image` pixels a side."""
    return _request(name, "mobilenet_v2", network, fused, batch=batch, image=image, classes=classes)


def dqn(name: str, batch: int = 1, actions: int = 18, fused: bool = True, network: str | None = None) -> Request:
    """The deep Q-network (Mnih et al. 2015): values of `actions` from four frames of 84 by 84 pixels."""
    return _request(name, "dqn", network, fused, batch=batch, actions=actions)


def dcgan(
    name: str, batch: int = 1, noise: int = 100, features: int = 64, fused: bool = True, network: str | None = None
) -> Request:
    """The generator of DCGAN (Radford et al. 2015): an image of 64 by 64 pixels from `noise` numbers."""
    return _request(name, "dcgan", network, fused, batch=batch, noise=noise, features=features)


def lstm(
    name: str,
    batch: int = 1,
    tokens: int = 4,
    layers: int = 2,
    hidden: int = 650,
    vocabulary: int = 10000,
    fused: bool = True,
    network: str | None = None,
) -> Request:
    """A language model of LSTM layers (Zaremba et al. 2014), written out over `tokens` steps."""
    sizes = {"batch": batch, "tokens": tokens, "layers": layers, "hidden": hidden, "vocabulary": vocabulary}
    return _request(name, "lstm", network, fused, **sizes)


def bert(
    name: str,
    batch: int = 1,
    tokens: int = 128,
    layers: int = 4,
    hidden: int = 512,
    heads: int = 8,
    vocabulary: int = 30522,
    fused: bool = True,
    network: str | None = None,
) -> Request:
    """A BERT encoder (Devlin et al. 2018); by default BERT-small (Turc et al. 2019). Its layers are 4 `hidden` wide."""
    _check_heads(name, hidden, heads)
    sizes = {"batch": batch, "tokens": tokens, "layers": layers, "hidden": hidden, "heads": heads}
    return _request(name, "bert", network, fused, vocabulary=vocabulary, **sizes)


def vit(
    name: str,
    batch: int = 1,
    image: int = 224,
    patch: int = 16,
    layers: int = 12,
    hidden: int = 192,
    heads: int = 3,
    classes: int = 1000,
    fused: bool = True,
    network: str | None = None,
) -> Request:
    """A vision transformer (Dosovitskiy et al. 2020); by default ViT-tiny (Touvron et al. 2020)."""
    _check_heads(name, hidden, heads)
    sizes = {"batch": batch, "image": image, "patch": patch, "layers": layers, "hidden": hidden, "heads": heads}
    request = _request(name, "vit", network, fused, classes=classes, **sizes)
    if image % patch:
        raise ConfigError(f"workload.{name}: image ({image}) must be a multiple of patch ({patch})")
    return request


def _check_heads(name: str, hidden: int, heads: int) -> None:
    _check_sizes(name, hidden=hidden, heads=heads)
    if hidden % heads:
        raise ConfigError(f"workload.{name}: hidden ({hidden}) must be a multiple of heads ({heads})")


def _check_sizes(name: str, **sizes: int) -> None:
    for key, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError(f"workload.{name}.{key} must be a positive integer, got {size!r}")


def _request(name: str, architecture: str, network: str | None, fused: bool, **sizes: int) -> Request:
    _check_sizes(name, **sizes)
    arguments: dict[str, Any] = {"architecture": architecture, "sizes": sizes}
    return network_request(name, "architecture", arguments, network, fused)
