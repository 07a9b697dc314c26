"""What an engine allocates where, of engines that plan all of it."""

from calc.errors import Frozen


class DeviceBuffers(Frozen):
    """What an engine that plans all its memory allocates on a GPU or on the host, in bytes."""

    device: str  # gpu0, gpu1, ... or host
    model: int
    context: int
    compute: int

    @property
    def total(self) -> int:
        return self.model + self.context + self.compute
