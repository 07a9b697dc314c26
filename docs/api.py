"""python -m docs.api > docs/api.md: what `import calc` offers, from its docstrings and fields."""

import inspect
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import calc

INTRODUCTION = """# `import calc`

Written by `python -m docs.api > docs/api.md`. calc takes a dict as a `config.json` holds it and needs no network, no
Streamlit and no GPU; what a config or a question has wrong is a `ConfigError` with a sentence for people.

```python
from presets import gpus, models  # any dict in the fields of a config.json does
import calc

report = calc.report(
    models()["Qwen/Qwen3-8B"].config, workload=calc.Workload(batch=4, context=8192), gpus=[gpus()["h100-sxm"]]
)
report.parameters.total, report.memory.weights, report.verdicts[0].verdict
report.model_dump()  # the JSON of `python -m calc MODEL --json`
```
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *(section(name) for name in calc.__all__)])


def section(name: str) -> str:
    """One thing that is offered: what it is, how it is called, its fields."""
    thing = getattr(calc, name)
    lines = [f"## `{name}`", "", inspect.getdoc(thing) if callable(thing) else "By their names.", ""]
    if inspect.isfunction(thing):
        lines += ["```python", f"{name}{signature(thing)}", "```", ""]
    elif isinstance(thing, type) and issubclass(thing, BaseModel):
        lines += [*fields(thing), ""]
    elif isinstance(thing, dict):
        lines += [", ".join(f"`{key}`" for key in thing), ""]
    return "\n".join(line or "" for line in lines)


def signature(function: object) -> str:
    """Its parameters; those after the star by name."""
    assert callable(function)
    parameters = inspect.signature(function).parameters
    keywords = [name for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    named = [name for name in parameters if name not in keywords]
    return f"({', '.join([*named, '*', *keywords] if keywords else named)})"


def fields(model: type[BaseModel]) -> Iterator[str]:
    """The fields of a model, with their defaults and what they are."""
    yield "| Field | Default | What it is |"
    yield "| --- | --- | --- |"
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {default(field)} | {field.description or ''} |"


def default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True, validated_data={})
    return f"`{value}`" if isinstance(value, str | int | float | bool | None) else "its own defaults"


if __name__ == "__main__":
    print(page(), end="")
