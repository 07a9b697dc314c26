"""Inputs as a stranger would make them: real ones of which some parts are something else."""

import copy
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS
from calc.hardware.mig import slices
from calc.serving.engines import ENGINES
from calc.text import pack
from calc.verify.logs.parse import MAX_CHARACTERS as MAX_LOG
from cli import quantize
from cli.command import parser
from pages.parts.state.query import EVERYTHING, PAGES
from pages.parts.state.scenario import places
from presets import gpus, models
from tests import DATA, EXAMPLES, load
from tests.mutation import JUNK

NUMBERS = (0, 1, 2, 3, 5, 7, 8, 64, 100, 1023, 4096, 10**6, 16 * 10**6, 2**31 - 1, 2**53, 10**12, 10**30, -1, 0.5, 1e-9)
WORDS = (
    "", " ", "none", "null", "nan", "inf", "-inf", "1e309", "²", "٣", "true", "\ufeff1", "896.0", "0x10", "1_000",
    "\x1b[31mred\x1b]0;title\x07", "\x00", "\u202eltr", "\ud800", "../../etc/passwd", "a/b", "模型/名", "-x/y", "a/.",
    "![x](https://evil.example/x.png)", "<script>alert(1)</script>", "{layer}", "{0.__class__}", "%s%n", "re:(a+)+$",
    "(.+)+x=CPU", ".*.*.*.*.*x=CPU", "own:48GiB:960GB/s:bf16=181", "own:1e400GiB:1GB/s", ",,,,", ":=:=", "a=b=c",
    "h100-sxm:3g.40gb", "l4:9g.0gb", "h100-sxm:",
    "x" * 5000,
)  # fmt: skip
PATTERNS = (
    "re:" + "(x+x+)+y",
    "re:" + "a?" * 60 + "a" * 60,
    "re:.*.*.*.*x",
    "*" * 50,
    "re:[",
    "mlp.*.*.*.*x",
    "re:(?R)",
)
QUANTS = ("fp8", "compressed-tensors", "gptq", "awq", "bitsandbytes", "modelopt", "mxfp4", "torchao", "nvfp4", "hqq")
ANSWERS = tuple(dict.fromkeys(page.answers_at for page in PAGES if page.answers_at is not None))
SKIPS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "dynamic", "llm_int8_skip_modules")


@cache
def configs() -> tuple[Mapping[str, Any], ...]:
    """Configs of all presets and of each family's class."""
    rows = [row["config"] for name in ("oracle.json", "small.json", "towers.json") for row in load(name)]
    return (*rows, *(preset.config for preset in models().values()))


def config(random: Random) -> dict[str, Any]:
    """A config with some fields changed for the worse, or none."""
    value = copy.deepcopy(dict(random.choice(configs())))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        if places := list(fields(value)):  # none once all are gone
            change(random, *random.choice(places))
    if random.random() < 0.1:
        names = [random.choice(PATTERNS) + str(n) for n in range(random.choice((1, 6, 400, 3000)))]
        value["quantization_config"] = {"quant_method": random.choice(QUANTS), random.choice(SKIPS): names}
    return value


def fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where each value stands, the ends of lists alone."""
    for key in list(value) if isinstance(value, dict) else sorted({0, len(value) - 1}) if value else []:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from fields(value[key])


def change(random: Random, holder: Any, key: Any) -> None:
    kind = random.random()
    if kind < 0.1 and isinstance(holder, dict):
        del holder[key]
    elif kind < 0.5:
        holder[key] = random.choice(NUMBERS)
    elif kind < 0.8:
        holder[key] = copy.deepcopy(random.choice(JUNK))
    elif kind < 0.9:
        holder[key] = random.choice(WORDS)
    else:
        holder[key] = [copy.deepcopy(holder[key])] * random.choice((1, 2, 100, 1024))


def text(random: Random, original: str) -> str:
    """A text with some letters gone, doubled or others."""
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        start = random.randrange(len(original) + 1)
        end = min(len(original), start + random.choice((0, 1, 5, 50, 1000)))
        middle = random.choice(
            ("", original[start:end] * random.choice((2, 50)), random.choice(WORDS), "[" * 200, "\n")
        )
        original = (original[:start] + middle + original[end:])[:MAX_LOG]
    return original


def data(random: Random, original: bytes) -> bytes:
    """Bytes of which some are others."""
    changed = bytearray(original)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        instead = random.choice((b"", b"\0" * 8, b"\xff" * 8, struct.pack("<Q", random.choice((2**63, 2**40, 10**6)))))
        changed[at : at + len(instead)] = instead
    return bytes(changed[: random.choice((len(changed), len(changed), random.randrange(len(changed) + 1)))])


def said(random: Random, option: Any) -> str:
    """A value of an option, more often one that it takes."""
    if option.choices and random.random() < 0.6:
        return str(random.choice(option.choices))
    return str(random.choice(NUMBERS if option.is_number or random.random() < 0.3 else WORDS))


def pasted(random: Random) -> str:
    """A config.json as text."""
    written = json.dumps(config(random), ensure_ascii=random.random() < 0.9)
    return text(random, written) if random.random() < 0.3 else written


def link(random: Random) -> tuple[str, dict[str, str]]:
    """The path of a page and its query."""
    page = random.choice(PAGES)
    query = queried(random)
    if page.path == "steps" or random.random() < 0.05:
        query["steps"] = steps(random)
    return page.path, query


def queried(random: Random) -> dict[str, str]:
    engine = random.choice(list(ENGINES))
    known = places(EVERYTHING, engine)
    query = {"engine": engine} if random.random() < 0.5 else {}
    if random.random() < 0.4:
        try:
            query["pasted"] = pack(config(random))
        except ValueError:  # half a character
            query["pasted"] = "x"
    elif random.random() < 0.7:
        query["model"] = random.choice(list(models()))
    for name in random.sample(list(known), random.choice((0, 1, 2, 4, 10))):
        query.setdefault(name, said(random, known[name].option))
    if random.random() < 0.4:
        query["gpu"] = ",".join(random.sample([*gpus(), *slices()], 2))
    if random.random() < 0.3:
        name = random.choice(("num_hidden_layers", "hidden_size", "vocab_size", "num_key_value_heads", *WORDS))
        query[name] = str(random.choice(NUMBERS))
    return query


def steps(random: Random) -> str:
    """Further training steps, each as the query of a link of its own."""
    names = list(places(("training",)))
    each = []
    for _ in range(random.choice((1, 1, 2, 5, 6, 400))):
        query = {name: said(random, places(("training",))[name].option) for name in random.sample(names, 3)}
        if random.random() < 0.6:
            query["model"] = random.choice((*models(), *WORDS))
        if random.random() < 0.1:
            query = queried(random)
        each.append(urlencode(query, errors="replace"))
    return random.choice((";", ";", ";;", ",")).join(each)


def address(random: Random) -> tuple[str, bytes]:
    """The path of what this server hands out, and its query as a client sends it."""
    path, query = link(random)
    path = random.choice(
        (f"/{path}", f"/api/{random.choice(ANSWERS)}", f"/api/{random.choice(ANSWERS)}", other(random))
    )
    sent = urlencode(query, errors="surrogatepass").encode()
    if random.random() < 0.2:
        sent += b"&" + sent  # each name twice
    if random.random() < 0.2:
        sent += random.choice(
            (b"&%ff=%fe", b"&=&==&;", b"&a[]=1", b"&lang=" + b"x" * 9000, b"&\xff=1", b"&steps=%3b%3b")
        )
    return path, data(random, sent) if random.random() < 0.2 else sent


def other(random: Random) -> str:
    """A path of no page."""
    name = quote_from_bytes(random.choice(WORDS).encode(errors="replace"))
    return random.choice(
        ("/api/docs", "/api/openapi.json", "/api/", "/lists/x/en.json", "/x/../api/report", f"/{name}")
    )


@cache
def uploads() -> Mapping[str, tuple[bytes, ...]]:
    """Real files, by who reads them."""
    rows = {"a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}
    header = json.dumps(rows).encode()
    words = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64}
    entries = b"".join(entry(name, value) for name, value in words.items())
    tensor = word("blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 64, 64, 2, 0)
    logs = (DATA / "logs.txt").read_bytes().split(b"\n=== ")
    return {
        "safetensors": (
            struct.pack("<Q", len(header)) + header,
            header,
            (EXAMPLES / "model.safetensors.index.json").read_bytes(),
        ),
        "gguf": (b"GGUF" + struct.pack("<IQQ", 3, 1, len(words)) + entries + tensor,),
        "log": (*logs, *(file.read_bytes() for file in sorted(EXAMPLES.glob("*.log")))),
        "measurement": tuple(file.read_bytes() for file in sorted(DATA.glob("measurement-*.json"))),
        "printed": ((EXAMPLES / "printed.txt").read_bytes(),),
    }


def word(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def entry(name: str, value: str | int) -> bytes:
    """A row of a GGUF file's metadata."""
    return word(name) + (struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<I", 8) + word(value))


def upload(random: Random) -> tuple[str, bytes]:
    """A file and who reads it."""
    kind = random.choice(list(uploads()))
    original = random.choice(uploads()[kind])
    if kind in ("log", "printed") or random.random() < 0.3:
        return kind, text(random, original.decode(errors="replace")).encode(errors="replace")
    return kind, data(random, original)


@cache
def words_of_the_command_line() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each flag with its choices."""
    actions = parser()._actions
    return tuple((a.option_strings[-1], tuple(map(str, a.choices or ()))) for a in actions if a.option_strings)


def command(random: Random) -> list[str]:
    """What stands behind `weighbridge`."""
    word = random.choice(("report", "report", "report", "fits", "plan", "log"))
    model = random.choice((random.choice(list(models())), random.choice(WORDS), "/dev/null", "."))
    line = [*([word] if word != "report" else []), model]
    for name, choices in random.sample(words_of_the_command_line(), random.choice((0, 1, 2, 4))):
        line.append(name)
        if random.random() < 0.8:
            line.append(random.choice((*choices, *choices, *map(str, NUMBERS), *WORDS)))
    if random.random() < 0.3:
        line += ["--set", f"{random.choice(('num_hidden_layers', 'hidden_size', *WORDS))}={random.choice(NUMBERS)}"]
    if random.random() < 0.3:
        line += ["--gpu", random.choice((*gpus(), *slices(), *WORDS))]
    return [part for part in line if part not in ("-h", "--help")]


def conversion(random: Random) -> list[str]:
    """What stands behind `weighbridge`, of a model that is quantized."""
    model = random.choice((*models(), *WORDS))
    line = ["quantize", model, "--to", random.choice((*WEIGHT_FORMATS, *WORDS))]
    actions = [action for action in quantize.parser()._actions if action.option_strings]
    for action in random.sample(actions, random.choice((0, 1, 2, 4))):
        line.append(action.option_strings[-1])
        line.append(random.choice((*map(str, action.choices or ()), *map(str, NUMBERS), *WORDS)))
    if random.random() < 0.5:
        line += ["--gpu", random.choice((*gpus(), *slices(), *WORDS))]
    return [part for part in line if part not in ("-h", "--help")]


HOSTED = {
    "vllm": (
        "kv_offloading_size",
        "kv_offloading_backend",
        "enable_lora",
        "max_loras",
        "max_cpu_loras",
        "max_lora_rank",
    ),
    "sglang": ("enable_hierarchical_cache", "hicache_ratio", "hicache_size", "disable_radix_cache", "page_size"),
    "llamacpp": ("kv_offload", "n_gpu_layers", "n_cpu_moe"),
}
"""Settings of what the host keeps, by engine."""


def host(random: Random) -> tuple[str, dict[str, str]]:
    """The path of a page and its query: what the host and a disk keep, often next to a MIG slice."""
    engine = random.choice(list(HOSTED))
    known = places(EVERYTHING, engine)
    names = [
        name
        for name in (*HOSTED[engine], "ram_gib", "system_gib", "tp", "pp", "dcp", "kv", "context", "batch")
        if name in known
    ]
    query = {"engine": engine, "model": random.choice(list(models()))}
    for name in random.sample(names, random.choice((1, 2, 4, 6))):
        likely = random.choice(("1", "2", "8", "64.5", "on", "lmcache"))
        query[name] = likely if random.random() < 0.5 else said(random, known[name].option)
    if random.random() < 0.6:
        query["gpu"] = random.choice((*gpus(), *slices(), *slices()))
    if random.random() < 0.2:
        del query["model"]
        query["pasted"] = pack({**random.choice(configs()), "num_hidden_layers": random.choice(NUMBERS)})
    return random.choice(("", "plan", "compare", "gpus")), query


def doctor(random: Random) -> tuple[str, str | None]:
    """A log and the model that it is laid beside."""
    log = text(random, random.choice(uploads()["log"]).decode(errors="replace"))
    if random.random() < 0.5:  # a figure of it
        numbers = list(re.finditer(r"\d[\d.,]*", log))
        for found in random.sample(numbers, min(len(numbers), random.choice((1, 2, 5)))):
            log = log.replace(found.group(), str(random.choice((*NUMBERS, *WORDS))), 1)
    return log, random.choice((None, *random.sample(list(models()), 2)))


def sharing(random: Random) -> list[str]:
    """What stands behind `weighbridge`, of several models on the same GPUs."""
    line = ["fits", random.choice((*models(), *WORDS)), "--gpu", random.choice((*gpus(), *WORDS))]
    for _ in range(random.choice((1, 1, 2, 3, 12))):
        parts = [random.choice((*models(), *models(), *WORDS))]
        for name in random.sample(("context", "batch", "weights", "x", ""), random.choice((0, 1, 2, 3))):
            parts.append(f"{name}={random.choice((*NUMBERS, *WORDS, *WEIGHT_FORMATS))}")
        line += ["--share-with", ",".join(parts)]
    for name, choices in random.sample(words_of_the_command_line(), random.choice((0, 0, 1, 2))):
        line += [name, random.choice((*choices, *choices, *map(str, NUMBERS), *WORDS))]
    return [part for part in line if part not in ("-h", "--help")]


def tool(random: Random) -> tuple[str, dict[str, Any]]:
    """A tool for assistants and its arguments."""
    name = random.choice(("weigh", "train", "plan", "compare"))
    flags: Any = command(random)[2:]
    named: Any = random.choice((*models(), *models(), *WORDS, "-"))
    if name == "compare":
        named = [random.choice((*models(), *WORDS)) for _ in range(random.choice((0, 1, 2, 30, 3000)))]
    given = {"models" if name == "compare" else "model": named, "flags": flags}
    if random.random() < 0.3:
        holder, key = random.choice(list(fields(given)))
        change(random, holder, key)
    return name, given


def grid(random: Random) -> str:
    """The TOML of a sweep."""
    few: dict[str, Any] = {
        "models": random.sample(list(models()), 2),
        "gpus": random.sample([*gpus(), *slices()], 2),
        "engines": random.sample(list(ENGINES), 1),
        "weights": [random.choice(("auto", *WEIGHT_FORMATS))],
        "kv": [random.choice(("auto", *CACHE_FORMATS))],
        "context": [4096, 8192],
        "batch": [1, 8],
        "generated": [1],
    }
    table = {name: few[name] for name in random.sample(list(few), random.choice((2, 4, 8)))} | {"models": few["models"]}
    for _ in range(random.choice((0, 1, 2))):
        change(random, *random.choice(list(fields(table))))
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    layouts = ("tp = 2", f"tp = {random.choice(NUMBERS)}", "num_gpus = 4", f"pp = {random.choice(NUMBERS)}", "x = 1")
    if random.random() < 0.5:
        lines.append(f"layouts = [{{ {random.choice(layouts)} }}]")
    if random.random() < 0.2:
        lines.append(f"[options.{random.choice(list(ENGINES))}]\nmax_num_seqs = {random.choice(NUMBERS)}")
    written = "\n".join(lines)
    return text(random, written) if random.random() < 0.3 else written


def reply(random: Random) -> tuple[dict[str, bytes], str, bytes, int, dict[str, str]]:
    """A repository of the Hub, and the path of an answer of it that is another."""
    files = {"config.json": json.dumps(config(random)).encode()}
    if random.random() < 0.5:
        files["model.safetensors"] = upload_of(random, "safetensors")
    if random.random() < 0.3:
        files = {"m-Q4_K_M.gguf": upload_of(random, "gguf")}
    listed = {"id": "o/m", "sha": "0" * 40, "siblings": [{"rfilename": name, "size": 9} for name in files]}
    holder, key = random.choice(list(fields(listed)))
    change(random, holder, key)
    body = random.choice((json.dumps(listed).encode(), data(random, json.dumps(listed).encode()), b"", b"\xff"))
    status = random.choice((200, 200, 200, 206, 301, 401, 403, 404, 429, 500))
    headers = random.choice(({}, {}, {"Content-Encoding": "gzip"}, {"Location": "file:///etc/passwd"}))
    path = random.choice(("/api/models/o/m", "/o/m/resolve/main/config.json", "-"))
    return files, path, body, status, headers


def upload_of(random: Random, kind: str) -> bytes:
    return data(random, random.choice(uploads()[kind]))


DOORS: dict[str, Callable[[Random], Any]] = {
    "link": link,
    "paste": pasted,
    "upload": upload,
    "command": command,
    "hub": reply,
    "address": address,
    "sharing": sharing,
    "tool": tool,
    "grid": grid,
    "conversion": conversion,
    "host": host,
    "doctor": doctor,
}
"""Who makes the inputs of each door."""
