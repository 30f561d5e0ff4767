"""Training on several ranks gives the same network as training on one.

A network with one hidden layer learns the handwritten digits that scikit-learn ships. Every rank computes the gradient
of its slice of the same global batch; `comm.all_reduce` adds the slices' gradients up, so that every rank takes the
same step as one process would with the whole batch. The losses agree to rounding (1e-5).

    pip install scikit-learn
    python examples/digits.py                          # one process
    paceline run -n 4 -- python examples/digits.py     # four
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy
import paceline

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("the digits come with scikit-learn: pip install scikit-learn")

Array = Any
HIDDEN, CLASSES = 64, 10
LEARNED = 1500  # images; the others are to test with


def data() -> tuple[Array, Array, Array, Array]:
    """Images as rows of 64 grey values in 0..1, and their digits: 1,500 to learn from, 297 to test with."""
    digits = load_digits()
    order = numpy.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16).astype(numpy.float32)
    targets = digits.target[order]
    return images[:LEARNED], targets[:LEARNED], images[LEARNED:], targets[LEARNED:]


class Network:
    """64 inputs, a hidden layer of rectified units, 10 classes. All parameters lie in one array: one all-reduce."""

    def __init__(self, seed: int) -> None:
        shapes = {"w1": (64, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}
        ends = numpy.cumsum([numpy.prod(shape) for shape in shapes.values()])
        self.parameters = numpy.zeros(ends[-1], numpy.float32)
        self.gradient = paceline.empty(int(ends[-1]) + 1, "float32")  # and one more for the loss
        self.of = self._named(shapes, ends, self.parameters)
        self.gradient_of = self._named(shapes, ends, self.gradient)
        random = numpy.random.default_rng(seed)
        for name, inputs in (("w1", 64), ("w2", HIDDEN)):
            self.of[name][:] = random.standard_normal(self.of[name].shape) * (2 / inputs) ** 0.5

    @staticmethod
    def _named(shapes: dict[str, tuple[int, ...]], ends: Array, flat: Array) -> dict[str, Array]:
        parts = numpy.split(flat[: ends[-1]], ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def forward(self, images: Array) -> tuple[Array, Array]:
        hidden = numpy.maximum(images @ self.of["w1"] + self.of["b1"], 0)
        return hidden, hidden @ self.of["w2"] + self.of["b2"]

    def backward(self, images: Array, targets: Array) -> None:
        """Write the sums over these images of the loss and of its gradient."""
        hidden, scores = self.forward(images)
        scores -= scores.max(axis=1, keepdims=True)
        log_probabilities = scores - numpy.log(numpy.exp(scores).sum(axis=1, keepdims=True))
        rows = numpy.arange(len(targets))
        delta = numpy.exp(log_probabilities)
        delta[rows, targets] -= 1
        back = (delta @ self.of["w2"].T) * (hidden > 0)
        self.gradient_of["w2"][:], self.gradient_of["b2"][:] = hidden.T @ delta, delta.sum(axis=0)
        self.gradient_of["w1"][:], self.gradient_of["b1"][:] = images.T @ back, back.sum(axis=0)
        self.gradient[-1] = -log_probabilities[rows, targets].sum()

    def accuracy(self, images: Array, targets: Array) -> float:
        return float((self.forward(images)[1].argmax(axis=1) == targets).mean())


def train(comm: paceline.Communicator, epochs: int, batch: int, rate: float) -> tuple[list[float], float]:
    """The loss of every step and the accuracy on the test images, the same on every rank."""
    images, targets, test_images, test_targets = data()
    network = Network(seed=1)
    order = numpy.random.default_rng(2)  # the same on every rank: all agree on the global batch
    losses = []
    for _ in range(epochs):
        shuffled = order.permutation(len(targets))
        for first in range(0, len(targets) - batch + 1, batch):
            mine = numpy.array_split(shuffled[first : first + batch], comm.size)[comm.rank]
            network.backward(images[mine], targets[mine])
            comm.all_reduce(network.gradient)
            network.gradient /= batch
            network.parameters -= rate * network.gradient[:-1]
            losses.append(float(network.gradient[-1]))
    return losses, network.accuracy(test_images, test_targets)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--epochs", type=int, default=10)
    options.add_argument("--batch", type=int, default=100, help="images in a global batch")
    options.add_argument("--rate", type=float, default=0.2, help="learning rate")
    options.add_argument("--save-losses", metavar="FILE", help="write the losses and the accuracy as JSON")
    chosen = options.parse_args()
    if not 1 <= chosen.batch <= LEARNED:
        options.error(f"--batch {chosen.batch}: there are {LEARNED} images to learn from")
    if chosen.epochs < 1:
        options.error(f"--epochs {chosen.epochs}: give at least 1")
    with paceline.init() as comm:
        losses, accuracy = train(comm, chosen.epochs, chosen.batch, chosen.rate)
        if comm.rank == 0:
            steps = len(losses) // chosen.epochs
            for epoch in range(chosen.epochs):
                loss = numpy.mean(losses[epoch * steps : (epoch + 1) * steps])
                print(f"epoch {epoch + 1:3}  loss {loss:.4f}  {'#' * round(20 * loss)}")
            print(f"{comm.size} {'rank' if comm.size == 1 else 'ranks'}, {accuracy:.2%} of the test images right")
            if chosen.save_losses:
                Path(chosen.save_losses).write_text(json.dumps({"losses": losses, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
