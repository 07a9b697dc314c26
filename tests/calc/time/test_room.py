"""The search for plans orders candidates by a bound: no layout that fits is left out or holds more than it says."""

from random import Random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Overhead, Workload
from calc.formats import native
from calc.hardware.parallel import shapes
from calc.serving.engines import ENGINES
from calc.serving.memory import Serving
from calc.serving.verdict import MOST_BATCH, max_batch
from calc.time.plan import Needs, Search
from calc.time.room import layouts_by_format
from presets import gpus, models
from tests.structures import generating

KINDS = ("h100-sxm", "a100-sxm-80gb", "h200-sxm", "b200", "mi300x", "l40s", "rtx-4090", "rtx-3090", "v100-sxm2-16gb")
PLANNED = [name for name, engine in ENGINES.items() if engine.share_option is not None]


@pytest.mark.slow
@example("deepseek-ai/DeepSeek-V4-Flash", "sglang", {}, "h100-sxm", 1024, 1, Random(0))  # states set aside for all
@example("zai-org/GLM-5.1", "vllm", {}, "h200-sxm", 8192, 4, Random(0))  # an indexer beside latents
@given(
    st.sampled_from(generating()),
    st.sampled_from(PLANNED),
    st.sampled_from([{}, {"kv_cache_memory_bytes": 10**10}, {"num_gpu_blocks_override": 10_000}]),
    st.sampled_from(KINDS),
    st.sampled_from([1024, 8192, 32_768]),
    st.sampled_from([1, 4, 64]),
    st.randoms(use_true_random=False),
)
def test_the_bound_is_never_tighter_than_what_weigh_says(model, engine, flags, kind, context, users, chance):
    config, gpu = models()[model].config, gpus()[kind]
    needs = Needs(prompt=context - 512, output=512, users=users)
    assume(engine == "vllm" or not flags)
    architecture, started = Architecture.from_config(config), ENGINES[engine]().with_options(**flags)
    try:
        search = Search(architecture, started, needs, [gpu], [started.precision(native(config))], most=16)
    except ConfigError:  # the engine does not serve this family, this format or on this GPU
        assume(False)
    accepted = list(layouts_by_format(architecture, search.engine, search.precisions, 16, 8))
    for layout, formats in chance.sample(accepted, min(4, len(accepted))):
        bound = search.room.capacity(search.shards.shard(layout, formats))
        for place, form in enumerate(formats):
            serving = Serving.of(architecture, search.engine, search.precisions[form], layout, Overhead())
            allocation = serving.on(gpu, Workload(batch=1, context=context, generated=512))
            most = max_batch(allocation, layout.dp) if allocation.refusal is None else 0
            assert bound[place, 0] >= (MOST_BATCH if most is None else most)


@pytest.mark.parametrize("engine", PLANNED)
def test_a_bound_depends_on_no_layout_that_was_asked_about_before(engine):
    config = models()["01-ai/Yi-34B"].config
    architecture, started = Architecture.from_config(config), ENGINES[engine]()
    kinds, precisions = [gpus()[kind] for kind in KINDS], [started.precision(native(config))]

    def bounds(turn):
        search = Search(architecture, started, Needs(prompt=512, output=512, users=1), kinds, precisions, most=16)
        layouts = list(layouts_by_format(architecture, search.engine, search.precisions, 16, 8))[::turn]
        return {layout: search.room.capacity(search.shards.shard(layout, f)).tolist() for layout, f in layouts}

    assert bounds(1) == bounds(-1)


@given(st.sampled_from(generating()), st.sampled_from(PLANNED), st.sampled_from(KINDS))
def test_limits_depend_on_no_other_degree_of_a_layout(model, engine, kind):
    architecture, started, gpu = Architecture.from_config(models()[model].config), ENGINES[engine](), gpus()[kind]
    limits = {}
    for shape in shapes(architecture):
        for stages in (1, 2, 4):
            layout = shape.model_copy(update={"pp": stages})
            degrees = tuple(getattr(layout, degree) for degree in started.limits_by)
            here = started.limits(Workload(batch=1, context=8192), gpu, architecture, layout)
            assert limits.setdefault(degrees, here) == here
