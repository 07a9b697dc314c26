"""The memory of serving on paper: weights, cache, working memory, overhead, verdict."""

from collections.abc import Iterator

from calc.errors import Message
from calc.formats import CACHE_BITS
from calc.model.architecture import Architecture
from calc.model.derivation import Step, derive
from calc.model.paper import Anchor, Equation, Exact, Heading, Item, PaperTable, Section, added, legend_of, lines
from calc.model.rough import RuleOfThumb, cache_rule, gated_rule, square_rule
from calc.serving.report import Report
from calc.serving.serving_derivation import Derivations, cache_steps, total_cache_steps
from calc.serving.verdict import Verdict

BYTES = Message("Bytes")
VERDICTS = {
    "fits": Message("It fits."),
    "fits with": Message("It fits with other flags than those set."),
    "tight": Message("It is tight: the overhead decides."),
    "does not fit": Message("It does not fit."),
    "does not run": Message("It does not run there, whatever memory there is."),
}


def rules(architecture: Architecture, report: Report) -> Section:
    """Rules of thumb beside the exact figures."""
    items: list[Item] = [
        Message("What articles calculate with, beside the exact figure: where each rule goes wrong, and by how much.")
    ]
    gated = gated_rule(architecture)
    if gated is None:
        items.append(
            Message(
                "{rule} does not describe this model: it takes one grouped attention and one gated feed-forward.",
                rule="`V·h·2 + L·(4 + 3·M)·h²`",
            )
        )
    cache = cache_rule(architecture, CACHE_BITS[report.scenario.precision.kv])
    for rule in (gated, square_rule(architecture), cache):
        if rule is not None:
            items += on_paper(rule)
    return Section(anchor="rules", title=Message("Rules of thumb"), items=tuple(items))


def on_paper(rule: RuleOfThumb) -> Iterator[Item]:
    yield Heading(title=rule.what)
    yield Equation(step=Step(what="", formula=rule.formula, values=rule.values, result=rule.rough, unit=rule.unit))
    yield PaperTable(
        head=(Message("Part"), Message("Rule"), Message("Exact"), Message("Difference"), Message("Why")),
        rows=tuple(
            (
                term.what,
                Exact(number=term.rough),
                Exact(number=term.exact),
                Exact(number=term.rough - term.exact),
                term.why or Message("The same."),
            )
            for term in rule.terms
        ),
    )
    if rule.exact == rule.rough:
        yield Message("Exact: **{exact:,}**. The rule gives the same.", exact=rule.exact)
    elif rule.exact:
        yield Message(
            "Exact: **{exact:,}**. The rule gives {rough:,}: {difference:+,}, or {error:+.1%}.",
            exact=rule.exact,
            rough=rule.rough,
            difference=rule.rough - rule.exact,
            error=rule.rough / rule.exact - 1,
        )
    else:
        yield Message("Exact: **0**. The rule gives {rough:,}.", rough=rule.rough)


class ServingPaper:
    """The sections of a report, on the GPU that `of` is about."""

    def __init__(self, architecture: Architecture, report: Report, of: Derivations) -> None:
        self.architecture, self.report, self.of = architecture, report, of

    def sections(self, verdict: Verdict | None) -> list[Section]:
        parts = [
            self.section("weights", Message("Weights in memory"), self.weights()),
            self.section("kv_cache_per_token", Message("KV cache per token"), self.per_token()),
            self.section("kv_cache", Message("KV cache of all sequences"), self.cache()),
            self.section("activations", Message("Working memory at its peak"), self.activations()),
            self.section("overhead", Message("Overhead"), self.overhead()),
            self.section("memory", Message("Memory per GPU"), self.memory()),
        ]
        if verdict is not None:
            parts.append(self.section("verdict", Message("Verdict"), self.verdict(verdict)))
        return parts

    def section(self, anchor: Anchor, title: Message, items: Iterator[Item]) -> Section:
        return Section(anchor=anchor, title=title, items=tuple(items))

    def weights(self) -> Iterator[Item]:
        yield Message("Parameters on this GPU, times the bits of their format, and the bits of scales beside them.")
        steps = self.of.weights()
        yield lines(steps, BYTES)
        yield added(Message("Weights"), [step.result for step in steps], "bytes")
        loaded = self.of.loaded()
        if len(loaded) > 1:
            yield Message("Once the engine has loaded them:")
            yield lines(loaded, BYTES)
            yield added(Message("Loaded"), [step.result for step in loaded], "bytes")

    def per_token(self) -> Iterator[Item]:
        cache = self.report.kv_cache
        steps = cache_steps(self.architecture, self.report.scenario.precision.kv)
        yield Message("What attention keeps of a token in each layer, in the format of the cache.")
        if steps:
            yield lines(steps, Message("Bytes per token"), Message("Kept"))
            yield from legend_of(steps, derive(self.architecture).legend)
        yield Message(
            "The layers that keep the whole context: **{bytes:,} bytes** per token. Layers with a window stop "
            "growing; they hold {windows:,} bytes a sequence here. States that do not grow: {states:,} bytes.",
            bytes=cache.bytes_per_token,
            windows=cache.window_bytes,
            states=cache.state_bytes,
        )

    def cache(self) -> Iterator[Item]:
        steps, meanings = total_cache_steps(self.report)
        yield Message("Of all sequences, each counted once:")
        for step in steps:
            yield Equation(step=step)
        yield from legend_of(steps, meanings)
        yield Message("What one GPU holds of it, as the engine allocates it:")
        allocated = self.of.kv_cache()
        for step in allocated:
            yield Equation(step=step)
        yield from legend_of(allocated, self.of.symbols.occurring())

    def activations(self) -> Iterator[Item]:
        steps = self.of.activations()
        yield Message("The tensors that are alive at the peak:")
        yield lines(steps, BYTES, Message("Tensor"))
        yield added("activations", [step.result for step in steps], "bytes")
        yield from legend_of(steps, self.of.symbols.occurring())

    def overhead(self) -> Iterator[Item]:
        yield Message("What has no formula, as a range from public logs; the middle counts.")
        yield PaperTable(
            head=(Message("Overhead"), Message("At least"), Message("At most")),
            rows=tuple(
                (name, Exact(number=low), Exact(number=high)) for name, (low, high) in self.of.overhead_items.items()
            ),
        )
        yield from self.of.overhead_notes()
        memory = self.of.memory
        yield Equation(
            step=Step(
                what="overhead",
                formula="",
                values=f"⌊({memory.overhead_low} + {memory.overhead_high}) / 2⌋",
                result=memory.overhead,
                unit="bytes",
            )
        )

    def memory(self) -> Iterator[Item]:
        steps = self.of.total()
        yield lines(steps, BYTES)
        yield added(Message("Memory per GPU"), [step.result for step in steps], "bytes")

    def verdict(self, verdict: Verdict) -> Iterator[Item]:
        yield VERDICTS[verdict.verdict]
        yield verdict.reason
        for step in self.of.spare():
            yield Equation(step=step)
        yield from legend_of(self.of.spare(), self.of.symbols.occurring())
        budget = self.of.kv_budget()
        if budget:
            yield Message("Set aside for the KV cache:")
            yield lines(budget, Message("Bytes, blocks"))
            yield from legend_of(budget, self.of.symbols.occurring())
