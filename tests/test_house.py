"""The order of the house: which room may use which, what stands in one place only, and how long a file may be."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from graphlib import CycleError
from typing import get_args

import pytest

from calc.families.family_table import FAMILIES, TOWERS, WRAPPED
from calc.model.feedforward import FeedForward
from calc.model.mixers import Mixer
from calc.serving.engines import ENGINES as KNOWN_ENGINES
from docs.rooms import PACKAGES, PAGE, ROOMS, ROOT, drawing, edges, imported, modules, ordered, parsed, room, uses

MODULES = modules()
MADE = {"Attention", "Rotary", "Tower"}
"""A row of the families' table is called like what it makes."""
ENGINES = "calc.serving.engines."
NAMES = tuple(KNOWN_ENGINES)


def test_no_room_uses_one_above_it():
    wrong = {
        name: above
        for name, used in edges(uses()).items()
        if (above := {other for other in used if ROOMS.index(other) > ROOMS.index(name)})
    }
    assert wrong == {}


def test_no_circle():
    assert set(ordered(uses())) >= set(MODULES)


def test_a_circle_is_found():
    with pytest.raises(CycleError):
        ordered(uses() | {"calc.errors": {"calc.verify.compare"}})


def test_the_drawing_is_that_of_the_code():
    assert drawing(uses()) in PAGE.read_text(encoding="utf-8"), "python -m docs.rooms draws it anew"


def test_every_module_stands_in_a_room():
    assert {room(module) for module in MODULES} <= set(ROOMS)
    with pytest.raises(LookupError, match=r"calc\.attic"):
        room("calc.attic.chest")


def test_imports_of_ours_stand_at_the_top():
    """None inside a function but the door's, which is a method of what it makes; and none that the tests, the
    benchmarks or the documents would have to be there for."""
    inside = [(name, target) for name, path in MODULES.items() for target, top in imported(path) if not top]
    assert inside == [("calc.model.architecture", "calc.families")]
    outside = re.compile(r"^(?:from|import) (?:tests|benchmarks|docs)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if outside.search(path.read_text(encoding="utf-8"))] == []


def test_calc_knows_no_page_and_no_network():
    foreign = re.compile(r"^\s*(?:from|import) (streamlit|plotly|huggingface_hub|urllib|http|socket|requests)\b", re.M)
    found = [name for name, path in MODULES.items() if foreign.search(path.read_text(encoding="utf-8"))]
    assert [name for name in found if name.split(".")[0] == "calc"] == []
    assert [name for name in found if name.split(".")[0] == "presets"] == ["presets.hub"]
    assert [name for name in found if name.split(".")[0] == "cli"] == ["cli.serve"]  # the replicas that it starts


def compared(path):
    """Texts that a comparison or a match looks for."""
    for node in ast.walk(parsed(path)):
        sides = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [case.pattern for case in node.cases]
        for side in sides:
            yield from (part.value for part in ast.walk(side) if isinstance(part, ast.Constant))


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_outside_asks_which_engine_it_is(package):
    outside = [name for name in MODULES if name.split(".")[0] == package and not name.startswith(ENGINES)]
    assert [name for name in outside if set(NAMES) & set(compared(MODULES[name]))] == []


def test_few_rooms_know_an_engine():
    """Others take engines from the list in calc/serving/engines/__init__.py."""
    folders = tuple(f"{ENGINES}{name.replace('-', '_')}." for name in NAMES)
    found = {name for name, used in uses().items() for target in used if target.startswith(folders)}
    assert {name for name in found if name.startswith("calc.") and not name.startswith("calc.serving.engines")} <= {
        "calc.quantizing.files",  # what mlx_lm.convert writes
        "calc.training.workload",  # eager or flash, by transformers' words
        "calc.time.local",  # files and machines of llama.cpp, layers and experts on the host
        "calc.verify.logs.planned_buffers",  # buffers by device, which llama.cpp alone states
        "calc.verify.measurement",  # what measure.py ran is transformers' generate
    }


FAMILY_NAMES = {*FAMILIES, *WRAPPED, *TOWERS}


def strings(path):
    """Texts of a module, docstrings apart."""
    tree = parsed(path)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said]
    return {text.value for text in texts if isinstance(text.value, str)}


def test_families_and_engines_alone_name_a_family():
    """What differs between families is a field of the family's row."""
    outside = [name for name in MODULES if name.startswith("calc.") and not name.startswith(("calc.families", ENGINES))]
    named = {name: strings(MODULES[name]) & FAMILY_NAMES for name in outside}
    assert {name: families for name, families in named.items() if families} == {
        "calc.model.recurrent": {"mamba", "mamba2", "rwkv"}  # kinds, called as their papers call them
    }


def test_one_module_touches_the_query_string():
    found = [
        name
        for name, path in MODULES.items()
        if any(isinstance(node, ast.Attribute) and node.attr == "query_params" for node in ast.walk(parsed(path)))
    ]
    assert found == ["pages.parts.state.url"]


FACADES = ("calc.design", "calc.formats", "calc.hardware", "calc.serving", "calc.time", "calc.training", "calc.verify")
SUBJECTS = ("calc.serving.comparison", "calc.serving.derivation", "calc.serving.engines", "calc.time.local")
SUBJECTS += ("calc.serving.shared_gpus", "calc.time.paper", "calc.verify.logs", "calc.formats.stored")
"""Modules that a facade names as places of their own."""


def past_facades(targets):
    """Modules of rooms with a facade that are imported from directly."""
    inside = {target for target in targets if target.startswith(tuple(f"{room}." for room in FACADES))}
    return {target for target in inside if not target.startswith(SUBJECTS)}


def test_an_import_past_a_facade_is_found():
    assert past_facades({"calc.hardware.gpu", "calc.hardware", "calc.serving.engines.rules"}) == {"calc.hardware.gpu"}


def test_pages_use_the_facades_of_rooms():
    past = {name: past_facades(named(name)) for name in MODULES if name.startswith("pages.")}
    assert {name: targets for name, targets in past.items() if targets} == {}


def named(module):
    """Modules that another names in `from ... import`."""
    return {node.module or "" for node in ast.walk(parsed(MODULES[module])) if isinstance(node, ast.ImportFrom)}


def private_parts(code):
    """What of Streamlit a module names that is not in its reference: anything below `streamlit` but what `st` has."""
    rooms = {"runtime", "proto", "web", "elements", "delta_generator", "watcher", "config", "commands", "source_util"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("streamlit."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "streamlit":
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "st":
            is_private = node.attr.startswith("_") and node.attr != "__version__"
            yield from [f"st.{node.attr}"] if is_private or node.attr in rooms else []


@pytest.mark.parametrize(
    "code",
    ["import streamlit.runtime", "from streamlit import config", "from streamlit.proto import x", "st._main.a()"],
)
def test_a_private_part_is_found(code):
    assert list(private_parts(code))


def test_one_module_knows_private_parts_of_streamlit():
    paths = MODULES | {"app": ROOT / "app.py"}
    found = [name for name, path in paths.items() if any(private_parts(path.read_text(encoding="utf-8")))]
    assert found == ["pages.parts.direct"]


def test_options_of_streamlit_are_among_those_that_it_shows():
    """The rest may go with any release."""
    command = [sys.executable, "-m", "streamlit", "config", "show"]
    shown, section = set(), ""
    for line in subprocess.check_output(command, cwd=ROOT, text=True).splitlines():
        section = found[1] if (found := re.fullmatch(r"\s*\[([\w.]+)\]\s*", line)) else section
        if option := re.match(r"(?:# )?(\w+) =", line.strip()):
            shown.add(f"{section}.{option[1]}")
    ours = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert {f"{part}.{name}" for part, names in ours.items() for name in names if part != "theme"} - shown == set()


CHANGING = set("append extend insert add update setdefault pop popitem remove discard clear".split())
"""Methods that change a container."""
CHANGEABLE = re.compile(r"(list|dict|set|bytearray|Counter|deque|defaultdict)\b")


def shared_and_changing(tree):
    """What all threads share and may change: containers and names of a module that a function changes, caches without
    bound, and caches of what their callers could change."""
    bodies = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign | ast.ImportFrom)]
    names = {name.asname or name.name for node in bodies if isinstance(node, ast.ImportFrom) for name in node.names}
    targets = [target for node in bodies for target in getattr(node, "targets", [getattr(node, "target", None)])]
    names |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        changed = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            changed = [node.func.value]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            places = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            changed = [place.value for place in places if isinstance(place, ast.Subscript)]
        elif isinstance(node, ast.Global):
            yield from node.names
        yield from (one.id for one in changed if isinstance(one, ast.Name) and one.id in names)
    for function in tree.body:
        for decorator in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
            named = ast.unparse(decorator)
            given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
            unbounded = (named == "cache" and given) or named in ("lru_cache", "lru_cache()", "lru_cache(maxsize=None)")
            remembers = named == "cache" or named.startswith("lru_cache")
            if unbounded or (remembers and CHANGEABLE.match(ast.unparse(function.returns))):
                yield function.name


@pytest.mark.parametrize(
    "code",
    [
        "KNOWN = []\ndef f(x):\n    KNOWN.append(x)",
        "KNOWN = {}\ndef f(x):\n    KNOWN[x] = 1",
        "from a import KNOWN\nKNOWN.append(1)",
        "KNOWN = 1\ndef f(x):\n    global KNOWN",
        "@cache\ndef f(x: str) -> str: ...",
        "@lru_cache(maxsize=None)\ndef f(x: str) -> str: ...",
        "@cache\ndef f() -> dict[str, int]: ...",
    ],
)
def test_what_all_threads_share_and_may_change_is_found(code):
    assert len(list(shared_and_changing(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    known = []\n    known.append(x)",
        "@cache\ndef f() -> tuple[str, ...]: ...",
        "@lru_cache(maxsize=8)\ndef f(x: str) -> Mapping[str, int]: ...",
    ],
)
def test_what_no_other_thread_sees_may_change(code):
    assert list(shared_and_changing(ast.parse(code))) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_all_threads_share_stays_as_it_is(package):
    trees = {name: parsed(path) for name, path in MODULES.items() if name.split(".")[0] == package}
    found = {name: list(shared_and_changing(tree)) for name, tree in trees.items()}
    assert {name: names for name, names in found.items() if names} == {}


def words(path):
    """Classes and types that a module defines."""
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and re.fullmatch("[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", target.id):
                yield target.id


def test_a_class_or_type_has_a_name_of_its_own():
    """In all of calc; the engines' folders do not see each other, so that theirs count once."""
    places = defaultdict(set)
    for name, path in MODULES.items():
        folder = name.removeprefix(ENGINES).split(".")[0] if name.startswith(ENGINES) else None
        if name.split(".")[0] == "calc":
            for word in words(path):
                places[word].add("an engine" if folder and (ROOT / "calc/serving/engines" / folder).is_dir() else name)
    assert {word for word, found in places.items() if len(found) > 1} - MADE == set()


def test_a_module_has_a_name_of_its_own():
    """In its room; an engine's folder may call its parts as the others do."""
    names = [(room(name), name.split(".")[-1]) for name in MODULES if name.startswith("calc.") and ENGINES not in name]
    assert {name for name, count in Counter(names).items() if count > 1} == set()


KINDS = {kind.__name__ for kind in (*get_args(Mixer), *get_args(FeedForward))} | {"Attention", "Recurrent", "MixerKind"}
ASKED_WHICH_KIND = {
    "calc.model.block": 4,  # the doors: attentions, recurrences, moe, dense
    "calc.serving.engines.llamacpp.graph": 6,  # its graph of each kind
    "calc.serving.engines.llamacpp.slots": 1,  # recurrences whose states its graph reads before it attends
    "calc.serving.engines.mlx.working_memory": 2,  # the recurrence that mlx-lm computes by chunks, without a kernel
    "calc.serving.engines.sglang.engine": 1,  # kinds that it captures no graphs of prompts for
    "calc.serving.engines.rules": 1,  # rates of DeepSeek-V4's attention
    "calc.serving.engines.sglang.cache": 4,  # formats of index keys by kernel
    "calc.serving.engines.vllm.layers": 7,  # its cache spec of each kind, and what their kernels hand out
    "calc.serving.engines.vllm.cache": 1,  # blocks of DeepSeek-V4's attention
    "calc.serving.kv_cache": 1,  # tokens that wait to be compressed, which one kind has
    "calc.training.course": 1,  # masks: none is counted for compressed attention
    "calc.training.decoder": 8,  # the forward pass of each kind on the tape
}
"""Type tests on mixers and feed-forwards outside families; all else is answered by the kind (`MixerKind`)."""


def kind_tests(tree):
    """Names of kinds that `isinstance` or the class of a match asks for."""
    for node in ast.walk(tree):
        asked = None
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            asked = node.args[1]
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        if asked is not None and KINDS & {name.id for name in ast.walk(asked) if isinstance(name, ast.Name)}:
            yield ast.unparse(asked)


def test_kinds_answer_for_themselves():
    outside = {name: path for name, path in MODULES.items() if not name.startswith("calc.families")}
    counts = {name: len(list(kind_tests(parsed(path)))) for name, path in outside.items()}
    assert {name: count for name, count in counts.items() if count} == ASKED_WHICH_KIND


BEGINNING = re.compile(r"(What|The same|Of|How|Those|That|Which|Who|Whose|Where)\b")
"""Words that leave open what is returned, where an editor shows a docstring alone."""
RULED_OUT = set("asked beside face fullest found granted held kept meant moments of_its_own one".split())


def docstrings(tree):
    """Strings that stand alone: docstrings of a module, a class, a function, or a value above."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else ():
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                yield part.value.value.strip()


def values_called(tree):
    """Names of functions, parameters and values that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_what_is_returned(package):
    begun = {
        name: wrong
        for name, path in MODULES.items()
        if name.split(".")[0] == package
        if (wrong := [text for text in docstrings(parsed(path)) if BEGINNING.match(text)])
    }
    assert begun == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_what_a_value_is(package):
    named_so = {
        name: wrong
        for name, path in MODULES.items()
        if name.split(".")[0] == package
        if (wrong := set(values_called(parsed(path))) & RULED_OUT)
    }
    assert named_so == {}


@pytest.mark.parametrize(
    "code",
    ['"""What it takes."""', 'def f():\n    """The same."""', 'A = 1\n"""Of a GPU."""', "class A:\n    '''How.'''"],
)
def test_a_docstring_that_leaves_its_subject_open_is_found(code):
    assert any(map(BEGINNING.match, docstrings(ast.parse(code))))


@pytest.mark.parametrize("code", ["held = 1", "def f(found): ...", "def kept(): ...", "[one for one in x]"])
def test_a_name_that_says_nothing_is_found(code):
    assert set(values_called(ast.parse(code))) & RULED_OUT
