"""Weights of an encoder, by name and shape, and how many layers hold each."""

from collections.abc import Iterator

from calc.model.tensor import Shape, Shapes

NamedShape = tuple[str, Shape, int]  # name, shape, number of layers that hold it


def weights(modules: Shapes) -> Shapes:
    """Each module's weight."""
    return {f"{name}.weight": shape for name, shape in modules.items()}


def with_biases(modules: Shapes) -> Shapes:
    """Each module's weight and bias."""
    return weights(modules) | {f"{name}.bias": shape[:1] for name, shape in modules.items()}


def placed(path: str, shapes: Shapes, copies: int = 1) -> Iterator[NamedShape]:
    """Weights under a path, each held by so many layers; none where there are no layers."""
    for name, shape in shapes.items() if copies else ():
        yield f"{path}.{name}", shape, copies
