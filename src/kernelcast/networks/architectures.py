"""The networks themselves, with random weights. Only the extracting process imports this: it loads torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class DeepQNetwork(nn.Sequential):
    """Values of the actions from the last four frames (Mnih et al. 2015, "Model architecture")."""

    def __init__(self, actions: int) -> None:
        super().__init__(
            nn.Conv2d(4, 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.ReLU(),
            nn.Linear(512, actions),
        )


class Generator(nn.Sequential):
    """An image of 64 by 64 pixels from noise (Radford et al. 2015, figure 1)."""

    def __init__(self, noise: int, features: int) -> None:
        layers: list[nn.Module] = []
        channels = noise
        # 1 to 4 pixels, then twice as many a layer
        for filters, stride, padding in ((8, 1, 0), (4, 2, 1), (2, 2, 1), (1, 2, 1)):
            layers += [
                nn.ConvTranspose2d(channels, filters * features, 4, stride, padding, bias=False),
                nn.BatchNorm2d(filters * features),
                nn.ReLU(),
            ]
            channels = filters * features
        super().__init__(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())


class LanguageModel(nn.Module):
    """Scores of the next token after each token of a text (Zaremba et al. 2014, section 3)."""

    def __init__(self, vocabulary: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers)
        self.scores = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores, (tokens, batch, vocabulary), of token numbers, (tokens, batch)."""
        states, _ = self.lstm(self.embedding(tokens))
        return self.scores(states)


class Output(nn.Module):
    """A network of `transformers` that returns the one tensor `key`, by position."""

    def __init__(self, network: nn.Module, inputs: str, key: str) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs
        self.key = key

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """The output `key`."""
        return getattr(self.network(**{self.inputs: values}), self.key)


def make_network(architecture: str, sizes: dict[str, int]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The network, ready for inference, and an input; the same weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, example = ARCHITECTURES[architecture](**sizes)
    return network.eval(), (example,)


def _resnet18(batch: int, image: int, classes: int) -> tuple[nn.Module, torch.Tensor]:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=classes,
    )
    return Output(ResNetForImageClassification(config), "pixel_values", "logits"), _images(batch, image)


def _mobilenet_v2(batch: int, image: int, classes: int) -> tuple[nn.Module, torch.Tensor]:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    # the same padding on all sides, as in every later version of this network
    config = MobileNetV2Config(tf_padding=False, num_labels=classes)
    return Output(MobileNetV2ForImageClassification(config), "pixel_values", "logits"), _images(batch, image)


def _dqn(batch: int, actions: int) -> tuple[nn.Module, torch.Tensor]:
    return DeepQNetwork(actions), torch.rand(batch, 4, 84, 84)


def _dcgan(batch: int, noise: int, features: int) -> tuple[nn.Module, torch.Tensor]:
    return Generator(noise, features), torch.randn(batch, noise, 1, 1)


def _lstm(batch: int, tokens: int, layers: int, hidden: int, vocabulary: int) -> tuple[nn.Module, torch.Tensor]:
    return LanguageModel(vocabulary, hidden, layers), torch.randint(vocabulary, (tokens, batch))


def _bert(
    batch: int, tokens: int, layers: int, hidden: int, heads: int, vocabulary: int
) -> tuple[nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=max(512, tokens),
        # written as matrix products and a softmax; the other way adds a mask for rows that attend to nothing
        attn_implementation="eager",
    )
    return Output(BertModel(config), "input_ids", "last_hidden_state"), torch.randint(vocabulary, (batch, tokens))


def _vit(
    batch: int, image: int, patch: int, layers: int, hidden: int, heads: int, classes: int
) -> tuple[nn.Module, torch.Tensor]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=image,
        patch_size=patch,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        num_labels=classes,
        attn_implementation="eager",
    )
    return Output(ViTForImageClassification(config), "pixel_values", "logits"), _images(batch, image)


def _images(batch: int, side: int) -> torch.Tensor:
    return torch.rand(batch, 3, side, side)


ARCHITECTURES: dict[str, Callable[..., tuple[Any, torch.Tensor]]] = {
    "resnet18": _resnet18,
    "mobilenet_v2": _mobilenet_v2,
    "dqn": _dqn,
    "dcgan": _dcgan,
    "lstm": _lstm,
    "bert": _bert,
    "vit": _vit,
}
