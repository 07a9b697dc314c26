"""Questions drawn at random, from the tables of options that the pages and the command line are made of."""

from hypothesis import strategies as st

from calc import ConfigError, Layout, Range, Workload
from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS
from calc.hardware import find_gpu, runs
from calc.hardware.computer import MOST_CARDS
from calc.hardware.mig import slices
from calc.options import made, options
from calc.serving.engines import ENGINES
from calc.serving.engines.vllm.options import SINCE
from calc.serving.shared_gpus import MOST_MODELS
from calc.time.efficiency import SHARES, written_share
from calc.time.estimate import Estimate
from calc.units import decimal
from pages.parts.state.scenario import Scenario, ServingChoice, Source, configuration, neighbour
from presets import gpus, models

RISING = (
    st.lists(st.floats(0, 1e6), min_size=3, max_size=3)
    .map(sorted)
    .map(lambda ends: Estimate(low=ends[0], expected=ends[1], high=ends[2]))
)


def values(option):
    """Any value that a field takes."""
    if option.choices:
        taken = st.sampled_from(option.choices) | (st.integers(0, 64) if option.is_number else st.nothing())
    elif option.is_switch:
        taken = st.booleans()
    elif option.is_whole:
        powers = [2**n for n in range(option.most.bit_length()) if option.least <= 2**n <= option.most]
        taken = st.sampled_from(powers) | st.integers(option.least, option.most)
    elif option.is_number:
        most = 1e6 if option.most is None else option.most
        taken = st.floats(option.least, most, exclude_min=option.open_below, exclude_max=option.open_above)
    elif option.is_range:
        ends = st.floats(0, 1024)
        taken = st.tuples(ends, ends).map(lambda ends: Range(low=min(ends), high=max(ends)))
    else:
        taken = {
            "model": st.sampled_from([*models(), "org/own"]),
            "model_draft": st.sampled_from(["Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B"]),
            "gpu": st.lists(
                st.sampled_from([*gpus(), "My own:48GiB:960GB/s:bf16=181,fp8=362"]), min_size=1, unique=True
            ).map(tuple),
            "plan_gpus": st.lists(st.sampled_from([*gpus(), "My own:48GiB:960GB/s:bf16=181,fp8=362"]), unique=True).map(
                tuple
            ),
            "weight_formats": st.lists(st.sampled_from(WEIGHT_FORMATS), unique=True).map(tuple),
            "kv_formats": st.lists(st.sampled_from(CACHE_FORMATS), unique=True).map(tuple),
            "price": st.dictionaries(
                st.sampled_from(["h100-sxm", "l4", "My own:48GiB:960GB/s:bf16=181,fp8=362"]),
                st.floats(0, 1e6, exclude_max=True),
            ).map(lambda stated: tuple(f"{name}={decimal(usd)}" for name, usd in stated.items())),
            "my_gpus": st.lists(
                st.sampled_from([*gpus(), "My own:48GiB:960GB/s:bf16=181,fp8=362"]), max_size=MOST_CARDS
            ).map(tuple),
            "share": st.dictionaries(st.sampled_from(sorted(SHARES)), RISING).map(
                lambda stated: tuple(written_share(name, share) for name, share in stated.items())
            ),
            "pasted": st.sampled_from([{"model_type": "llama", "num_hidden_layers": n} for n in (1, 2)]),
            "version": st.sampled_from([".".join(map(str, version)) for version in sorted({*SINCE.values()})]),
            "card": st.sampled_from(list(gpus())),
            "opened": st.sampled_from(list(gpus())),
            "steps": st.lists(st.sampled_from(["model=Qwen/Qwen3-8B&method=dpo", "method=grpo,lora"]), max_size=5).map(
                tuple
            ),
            "share_with": st.lists(
                st.sampled_from(["BAAI/bge-m3,context=512,batch=8", "Qwen/Qwen3-0.6B,weights=fp8"]).map(neighbour),
                max_size=MOST_MODELS - 1,
            ).map(tuple),
            "with": st.lists(
                st.sampled_from(["Qwen/Qwen2.5-3B", "deepseek-ai/DeepSeek-V3:kv=fp8"]).map(configuration),
                max_size=5,
                unique=True,
            ).map(tuple),
        }.get(option.name, texts(option))
    return taken | st.none() if option.optional else taken


def texts(option):
    """Text that a field takes as such: what its description names, or anything."""
    anything = st.text(min_size=1, max_size=20).filter(str.isprintable)
    return st.sampled_from(option.field.examples) | anything if option.field.examples else anything


FLAGS = 4
"""Flags that are set on purpose, at most; those without which they have no effect come to them."""
LAYOUTS = [
    *(Layout(tp=tp) for tp in (1, 2, 8)),
    *(Layout(pp=2), Layout(tp=2, pp=3), Layout(dp=2)),
    *(Layout(dp=8, ep=8), Layout(tp=2, dp=2, ep=4), Layout(tp=4, dcp=2)),
]
LENGTHS = [(64, 0), (1000, 512), (4096, 0), (8192, 0), (32_768, 512), (131_072, 65_536)]


@st.composite
def flags(draw, engine):
    """Flags of an engine that go together, by its own table: where one has no effect without another, that one too."""
    kind, known = ENGINES[engine].options_type, options(ENGINES[engine].options_type)
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=FLAGS, unique=True))
    chosen = {name: draw(values(known[name])) for name in names}
    for _ in range(FLAGS):
        try:
            return made(kind, chosen)
        except ConfigError as error:
            missing = known[error.field]
            if error.nearest:
                chosen[error.field] = error.nearest[0]
            elif missing.is_switch:
                chosen[error.field] = not missing.default
            else:
                chosen[error.field] = draw(values(missing).filter(lambda value, usual=missing.default: value != usual))
    return kind()


@st.composite
def served(draw, engines=tuple(ENGINES)):
    """A question about serving: any preset, flags, formats, layout and load, on one or two GPUs, most of which the
    engine runs on."""
    engine = draw(st.sampled_from(engines))
    kind, (context, generated) = ENGINES[engine], draw(st.sampled_from(LENGTHS))
    usual = [name for name in gpus() if runs(find_gpu(name), kind.support)]
    one = st.sampled_from(usual) | st.sampled_from(usual) | st.sampled_from([*gpus(), *slices()])
    return Scenario(
        source=Source(model=draw(st.sampled_from(list(models())))),
        gpu=tuple(draw(st.lists(one, min_size=1, max_size=2, unique=True))),
        serving=ServingChoice(
            engine=engine,
            options=draw(flags(engine)),
            workload=Workload(batch=draw(st.sampled_from([1, 2, 16, 63, 300])), context=context, generated=generated),
            weights=draw(st.sampled_from([None, None, *kind.weight_formats]) | st.sampled_from(WEIGHT_FORMATS)),
            kv=draw(st.sampled_from([None, None, *kind.cache_formats]) | st.sampled_from(CACHE_FORMATS)),
            layout=draw(st.just(Layout()) | st.sampled_from(LAYOUTS)),
        ),
    )
