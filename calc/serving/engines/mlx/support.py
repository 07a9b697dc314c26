"""GPUs on which MLX runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, PlatformNeeds

INSTALL = "https://ml-explore.github.io/mlx/build/html/install.html"

SUPPORT = EngineSupport(title="MLX", platforms={"metal": PlatformNeeds(source=INSTALL)})
