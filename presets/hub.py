"""The only module that talks to the Hugging Face Hub, through its own client: cache, HF_ENDPOINT and offline mode are
the client's.

A token is handed on and kept nowhere: not in a log, an error text or a cache key; and what a token opened goes to a
cache that is thrown away, so that nobody else reads it from ours.
"""

import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, cast

import huggingface_hub
from httpx2 import (
    Client,
    HTTPError,
    ReadError,
    RemoteProtocolError,
    Request,
    Response,
    SyncByteStream,
    TimeoutException,
    TooManyRedirects,
)
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._http import default_client_factory  # whose hooks say what is offline

from calc import ConfigError
from calc.errors import Frozen, Message, Outside
from calc.families.gguf import config_of
from calc.families.tasks import with_base_class
from calc.formats import HF_QUANT_CONFIG, with_hf_quant_config
from calc.text import MAX_CHARACTERS, parse_config, parse_json
from calc.units import GIB
from calc.verify.checkpoint import (
    MAX_ENTRIES,
    MAX_HEADER_BYTES,
    Checkpoint,
    StoredTensor,
    check_number,
    read_safetensors,
)
from calc.verify.gguf import GGUF, Short, read_gguf
from presets.replies import Once, RecentAnswers, shared

if TYPE_CHECKING:
    from huggingface_hub import HfApi  # a third of the start of the command line, which asks the Hub seldom

huggingface_hub.utils.disable_progress_bars()
constants.HF_HUB_DISABLE_XET = True  # or hf_xet would load files past the client whose answers have bounds

CONFIG = "config.json"
MODULES = "modules.json"
"""Modules that sentence-transformers runs in turn."""
POOLS = re.compile(r'"type"\s*:\s*"[^"]*\.Pooling"')
"""A module that makes one vector of a text, by which vLLM too knows an embedder (`get_pooling_config`)."""
EMBEDS = Message(
    "Its modules.json pools what the model makes of a text: it is read as an embedding model, without head."
)
SECONDS = 10.0
FIRST_BYTES = 2**21
MOST_BYTES, MOST_OF_A_LIST = 2**27, 2**23
"""Bytes that are read of a GGUF file's header, and of what the Hub lists; of any other file MAX_HEADER_BYTES."""
LIBRARY = "weighbridge"
"""Name of our requests in User-Agent."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
USUAL_HEADER = 100_000
"""Bytes that hold the header of nearly every safetensors file, by huggingface_hub."""
READERS, MOST_SHARDS = 8, 1000
"""Files whose headers are read at the same time, and of one model; Llama-3.1-405B has 191."""
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
MOST_PARTS = 200
ONCE = Once()


class HubModel(Frozen):
    """One revision of a model on the Hub."""

    id: str
    revision: str
    """The commit."""
    files: dict[str, int | None]
    """Bytes of each file; empty when only the cache was at hand."""
    config: dict[str, Any]
    note: Message | None = None

    @property
    def source(self) -> str:
        return f"{constants.ENDPOINT}/{self.id}"

    @property
    def gguf_files(self) -> tuple[str, ...]:
        return tuple(name for name in sorted(self.files) if _is_first_gguf(name))


class HubError(ConfigError):
    """Why the Hub gives no model, and what would help. `wants_token`: a token may open it; `lasts`: the Hub would say
    the same a moment later."""

    def __init__(self, sentence: Message, *, wants_token: bool = False, lasts: bool = False) -> None:
        super().__init__(sentence, "model")
        self.wants_token = wants_token
        self.lasts = lasts


MISSING = RecentAnswers[tuple[Message, bool]](seconds=60.0, most=1000)
"""Requests that the Hub refused for good, and whether a token may open them."""


class TooLong(HTTPError):
    """An answer of more bytes than are read of any."""


class BoundedStream(SyncByteStream):
    """An answer's bytes as they come, up to the most that are read."""

    def __init__(self, stream: SyncByteStream, most: int) -> None:
        self.stream, self.most = stream, most

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self.stream:
            size += len(piece)
            if size > self.most:
                raise TooLong("too long")
            yield piece

    def close(self) -> None:
        self.stream.close()


def ask_uncompressed(request: Request) -> None:
    """Ask for an answer as it is: a compressed one could be a thousand times as long as it looks."""
    if is_ours(request):
        request.headers["accept-encoding"] = "identity"


def bound(response: Response) -> None:
    """Bound what is read of an answer, whatever it says of its length; and says at once that the Hub is busy or has a
    fault, which its client would try again for half a minute."""
    if is_ours(response.request) and "range" not in response.request.headers:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooLong("compressed")
        most = MOST_OF_A_LIST if response.request.url.path.startswith("/api/") else MAX_HEADER_BYTES
        response.stream = BoundedStream(cast(SyncByteStream, response.stream), most)
        if response.status_code == 429 or response.status_code >= 500:
            response.read()
            huggingface_hub.utils.hf_raise_for_status(response)


def is_ours(request: Request) -> bool:
    """Whether a request is of this module: other users of the client in this process go on as they do."""
    return LIBRARY in request.headers.get("user-agent", "")


def client() -> Client:
    """The client of huggingface_hub, whose answers to us have bounds."""
    made = default_client_factory()
    hooks = made.event_hooks
    made.event_hooks = {"request": [*hooks["request"], ask_uncompressed], "response": [*hooks["response"], bound]}
    return made


huggingface_hub.set_client_factory(client)


def is_id(text: str) -> bool:
    """Whether a text has the form organisation/name, as the Hub's client has it."""
    try:
        huggingface_hub.utils.validate_repo_id(text)
    except HFValidationError:
        return False
    return "/" in text


def search(text: str, token: str | None = None) -> list[str]:
    """Ids of the most downloaded text models that match. Raises HubError."""
    with _explained(text, None):
        models = _api(token).list_models(search=text[:100], sort="downloads", limit=8, filter="text-generation")
        return [model.id for model in models if isinstance(model.id, str) and is_id(model.id)]


def fetch(model: str, revision: str | None = None, token: str | None = None, gguf: str | None = None) -> HubModel:
    """The config of a model and the list of its files; where only GGUF files are, from the header of one of them. The
    Hub is asked once for all who ask at the same time without a token, and once a minute for what it does not have.

    Raises HubError or ConfigError.
    """
    if not is_id(model):
        raise HubError(Message(NO_ID, text=Outside(model[:100])))
    if token is not None:
        return _fetch(model, revision, token, gguf)
    question = model, revision, gguf
    if (refusal := MISSING.get(question)) is not None:
        sentence, wants_token = refusal
        raise HubError(sentence, wants_token=wants_token, lasts=True)
    try:
        return ONCE(("fetch", *question), lambda: _fetch(model, revision, None, gguf))
    except HubError as error:
        if error.lasts:
            MISSING.put(question, (error.message, error.wants_token))
        raise


@shared(HubModel, lambda: (constants.ENDPOINT, constants.HF_HUB_CACHE))
def _fetch(model: str, revision: str | None, token: str | None, gguf: str | None) -> HubModel:
    api = _api(token)
    try:
        info = api.model_info(model, revision=revision, files_metadata=True, timeout=SECONDS)
    except Exception as error:  # whatever a wrong reply makes the client raise, explained below
        with _explained(model, revision):
            cached = None if token else _from_cache(model, revision)
        if cached is None or not _unreachable(error):
            _explain(error, model, revision)
        return cached
    with _explained(model, revision):
        files = {file.rfilename: file.size for file in info.siblings or ()}
        hub_model = HubModel(id=model, revision=info.sha or revision or "main", files=files, config={})
        if CONFIG in files and gguf is None:
            config = _json_file(api, hub_model, CONFIG, revision, token)
            if HF_QUANT_CONFIG in files:
                config = with_hf_quant_config(config, _json_file(api, hub_model, HF_QUANT_CONFIG, revision, token))
            modules = _content(api, hub_model, MODULES, revision, token) if MODULES in files else ""
            return hub_model.model_copy(update=_with_modules(config, modules))
        return _from_gguf(hub_model, token, gguf)


def _with_modules(config: dict[str, Any], modules: str) -> dict[str, Any]:
    """The config as sentence-transformers runs it, and a sentence where its class would generate."""
    pooled = with_base_class(config) if POOLS.search(modules) else config
    return {"config": pooled} if pooled == config else {"config": pooled, "note": EMBEDS}


def checkpoint(model: HubModel, token: str | None = None, gguf: str | None = None) -> Checkpoint:
    """The tensor table of the model's weights, read from the headers of its files, once as above. Raises HubError or
    ConfigError."""
    if token is not None:
        return _checkpoint(model, token, gguf)
    return ONCE(("checkpoint", model.id, model.revision, gguf), lambda: _checkpoint(model, None, gguf))


def _checkpoint(model: HubModel, token: str | None, gguf: str | None) -> Checkpoint:
    tables = [name for name in sorted(model.files) if name.endswith(".safetensors") and "/" not in name]
    with _explained(model.id, model.revision):
        if gguf is not None or (model.gguf_files and not tables):
            return _gguf(model, gguf or preferred(model.gguf_files), token).checkpoint
        return _safetensors(model, _shards(model, tables, token), token)


def _shards(model: HubModel, tables: list[str], token: str | None) -> list[str]:
    """The files that together are the weights: those of the index, the only one, or all that lie there."""
    names = tables
    if INDEX in model.files:
        table = parse_json(_content(_api(token), model, INDEX, model.revision, token), MAX_HEADER_BYTES, MAX_ENTRIES)
        weight_map = table.get("weight_map")
        files = set(map(str, weight_map.values())) if isinstance(weight_map, dict) else set()
        names = [name for name in tables if name in files]
    elif SINGLE in tables:
        names = [SINGLE]
    if not names:
        sentence = "{model} has no safetensors files, so there is no tensor table to read."
        raise HubError(Message(sentence, model=model.id))
    if len(names) > MOST_SHARDS:
        sentence = "{model} has {n:,} safetensors files; {most:,} are the most whose headers we read."
        raise HubError(Message(sentence, model=model.id, n=len(names), most=MOST_SHARDS))
    return names


def _safetensors(model: HubModel, names: list[str], token: str | None) -> Checkpoint:
    """The tensors of all files together."""
    tensors: dict[str, StoredTensor] = {}
    with ThreadPoolExecutor(READERS) as readers:
        for header in readers.map(lambda name: _safetensors_header(model, name, token), names):
            tensors |= header.tensors
            check_number(len(tensors))
    return Checkpoint.model_construct(tensors=tensors, total_bytes=None, unseen=())  # each row is checked


def _safetensors_header(model: HubModel, name: str, token: str | None) -> Checkpoint:
    data = _part(model, name, token, 0, USUAL_HEADER)
    end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < end <= MAX_HEADER_BYTES:
        data += _part(model, name, token, len(data), end)
    return read_safetensors(data)


def _api(token: str | None) -> "HfApi":
    return huggingface_hub.HfApi(endpoint=constants.ENDPOINT, token=token or False, library_name=LIBRARY)


def _json_file(api: "HfApi", model: HubModel, name: str, revision: str | None, token: str | None) -> dict[str, Any]:
    """A JSON file of a model, by the name of the revision, under which the cache then has it too."""
    size = model.files[name]
    if size is not None and size > MAX_CHARACTERS:
        sentence = "{file} of {model} is {size:,} bytes long; {most:,} are the most that we read."
        raise HubError(Message(sentence, file=name, model=model.id, size=size, most=MAX_CHARACTERS))
    return parse_config(_content(api, model, name, revision, token))


def _content(api: "HfApi", model: HubModel, name: str, revision: str | None, token: str | None) -> str:
    """The text of a file of a model."""
    if token is None:
        return _text(api.hf_hub_download(model.id, name, revision=revision, etag_timeout=SECONDS))
    with TemporaryDirectory() as own:
        return _text(api.hf_hub_download(model.id, name, revision=revision, cache_dir=own, etag_timeout=SECONDS))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(Message("Its {file} is not text in UTF-8.", file=Path(path).name)) from None


def _from_cache(model: str, revision: str | None) -> HubModel | None:
    """Model from the client's cache on disk, for when the Hub can't be reached."""
    path = huggingface_hub.try_to_load_from_cache(model, CONFIG, revision=revision)
    if not isinstance(path, str):
        return None
    commit, config = Path(path).parent.name, parse_config(_text(path))
    quant_config = huggingface_hub.try_to_load_from_cache(model, HF_QUANT_CONFIG, revision=revision)
    if isinstance(quant_config, str):
        config = with_hf_quant_config(config, parse_config(_text(quant_config)))
    modules = huggingface_hub.try_to_load_from_cache(model, MODULES, revision=revision)
    if isinstance(modules, str):
        config = _with_modules(config, _text(modules))["config"]
    sentence = "The Hub can't be reached: this is the copy of {model} that was read before (commit {commit})."
    note = Message(sentence, model=model, commit=commit[:8])
    return HubModel(id=model, revision=commit, files={}, config=config, note=note)


def _from_gguf(model: HubModel, token: str | None, name: str | None) -> HubModel:
    files, pickles = model.gguf_files, [file for file in model.files if file.endswith(PICKLES)]
    if name is not None and name not in files:
        sentence = "{model} has no GGUF file “{name}” and no other."
        if files:
            sentence = "{model} has no GGUF file “{name}”; it has {files}."
        message = Message(sentence, model=model.id, name=Outside(name[:100]), files=Outside(", ".join(files)))
        raise HubError(message)
    if not files:
        sentence = (
            "{model} has neither a config.json nor GGUF files, so nothing says its sizes. Name the model that it was "
            "made from, or give a config.json."
        )
        if pickles:
            sentence = (
                "{model} has only pickle files such as {file}, so nothing says its sizes. Name the model that it was "
                "made from, or give a config.json."
            )
        raise HubError(Message(sentence, model=model.id, file=Outside(next(iter(pickles), ""))))
    name = name or preferred(files)
    header = _gguf(model, name, token)
    size = header.checkpoint.bytes or 0
    sentence = "Read from the header of {name}, whose tensors take {gib:.2f} GiB ({bytes:,} bytes)."
    note = Message(sentence, name=Outside(name), gib=size / GIB, bytes=size)
    return model.model_copy(update={"config": config_of(header.metadata, header.checkpoint.shapes), "note": note})


def _gguf(model: HubModel, name: str, token: str | None) -> GGUF:
    """The header of a GGUF file, or of a series of files: the metadata of the first and the tensors of all."""
    headers = [_gguf_header(model, part, token) for part in _series(name)]
    tensors = {tensor: stored for header in headers for tensor, stored in header.checkpoint.tensors.items()}
    return GGUF(metadata=headers[0].metadata, checkpoint=Checkpoint(tensors=tensors))


def _series(first: str) -> list[str]:
    """All files of a series by the name of its first one."""
    match = PART.search(first)
    if match is None:
        return [first]
    if not 1 <= int(match[2]) <= MOST_PARTS:
        sentence = "{file} is one of {n:,} files; series of 1 to {most} are the ones we read."
        raise HubError(Message(sentence, file=Outside(first), n=int(match[2]), most=MOST_PARTS))
    return [f"{first[: match.start()]}-{part:05d}-of-{match[2]}.gguf" for part in range(1, int(match[2]) + 1)]


def _gguf_header(model: HubModel, name: str, token: str | None) -> GGUF:
    """GGUF header, by ranges that double until it is whole."""
    data, end = b"", FIRST_BYTES
    while True:
        data += _part(model, name, token, len(data), end)
        try:
            return read_gguf(data)
        except Short:
            if len(data) < end or end >= MOST_BYTES:
                raise
            end *= 2


def _part(model: HubModel, name: str, token: str | None, first: int, end: int) -> bytes:
    """The bytes of a file from one to before another, or up to its end."""
    url = huggingface_hub.hf_hub_url(model.id, name, revision=model.revision, endpoint=constants.ENDPOINT)
    headers = huggingface_hub.utils.build_hf_headers(token=token or False, library_name=LIBRARY)
    wanted = headers | {"range": f"bytes={first}-{end - 1}"}
    session, data = huggingface_hub.get_session(), bytearray()
    with session.stream("GET", url, headers=wanted, timeout=SECONDS, follow_redirects=True) as reply:
        huggingface_hub.utils.hf_raise_for_status(reply)
        if reply.status_code != 206:
            sentence = "The Hub sent all of {name} where a part was asked for; its mirror can't give parts."
            raise HubError(Message(sentence, name=Outside(name)))
        for piece in reply.iter_raw():
            data += piece
            if len(data) >= end - first:
                break
    return bytes(data[: end - first])  # less than a server may send


def _is_first_gguf(name: str) -> bool:
    """A GGUF file that holds a header of weights: the first of a series, and no image projector."""
    part = PART.search(name)
    projector = PurePosixPath(name).name.lower().startswith("mmproj")
    return name.endswith(".gguf") and not projector and (part is None or part[1] == "00001")


def preferred(names: tuple[str, ...]) -> str:
    """The quantization that most people load."""
    return next((name for name in names if "Q4_K_M" in name), names[0])


def _unreachable(error: Exception) -> bool:
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    return status is None or status == 429 or status >= 500


@contextmanager
def _explained(model: str, revision: str | None) -> Iterator[None]:
    """Any failure as a sentence: a wrong reply makes the client raise a KeyError as well as errors of its own."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # whatever it is, the reader gets a sentence
        _explain(error, model, revision)


def _explain(error: Exception, model: str, revision: str | None) -> NoReturn:
    """Error as a sentence with a way on. The client's own text is not shown: it may quote what was sent."""
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    here = Message("{model}, revision {revision},", model=model, revision=Outside(revision)) if revision else model
    alone = Message("{model}, revision {revision}", model=model, revision=Outside(revision)) if revision else model
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    logging.getLogger(__name__).info("The Hub gives no answer: %s, status %s.", type(error).__name__, status)
    wants_token = False
    if isinstance(error, OfflineModeIsEnabled) or constants.HF_HUB_OFFLINE:
        sentence = "This server is offline (HF_HUB_OFFLINE) and has no copy of {model}. Give its config.json instead."
    elif isinstance(error, GatedRepoError) or status == 403:
        wants_token = True
        sentence = (
            "{model} is gated: its owners let in only people who accepted their terms. Accept them on {hub}/{model}, "
            "then give a read token of yours; or give its config.json."
        )
    elif isinstance(error, RevisionNotFoundError):
        sentence = "{model} has no revision “{revision}”. Give a branch, a tag or a commit, or leave it empty for main."
    elif isinstance(error, RepositoryNotFoundError) or status == 401:
        wants_token = True
        sentence = "The Hub knows no {model}, or it is private. Check the name; for a private model give a token."
    elif isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
        sentence = "{here} lacks a file that its list of files names. {ways}"
    elif isinstance(error, HFValidationError):
        sentence = NO_ID
    elif status == 404:
        sentence = "The Hub knows no {alone}. Check the name."
    elif status == 429:
        wants_token = True
        sentence = "The Hub takes no more requests from here for now (429). Wait a minute, or give a token. {ways}"
    elif status is not None and status >= 500:
        sentence = "The Hub has a fault of its own ({status}). {ways}"
    elif isinstance(error, TimeoutException):
        sentence = "The Hub did not answer within {seconds:.0f} seconds. {ways}"
    elif isinstance(error, TooLong):
        sentence = "The Hub's answer about {alone} is longer than we read, or compressed. {ways}"
    elif isinstance(error, TooManyRedirects):
        sentence = "The Hub ({hub}) sends every request on to another address, in a circle. {ways}"
    elif isinstance(error, RemoteProtocolError | ReadError):
        sentence = "The Hub ({hub}) broke off or garbled its answer about {alone}. {ways}"
    elif isinstance(error, HTTPError | OSError | LocalEntryNotFoundError) and status is None:
        sentence = "The Hub ({hub}) can't be reached. {ways}"
    else:
        sentence = "The Hub's answer about {here} can't be read ({error}). {ways}"
    values: dict[str, Any] = {"model": model, "text": Outside(model[:100]), "revision": Outside(revision)}
    values |= {"hub": constants.ENDPOINT, "here": here, "alone": alone, "ways": WAYS}
    values |= {"status": status, "seconds": SECONDS, "error": type(error).__name__}
    lasts = status in (401, 403, 404) and not isinstance(error, EntryNotFoundError)
    raise HubError(Message(sentence, **values), wants_token=wants_token, lasts=lasts) from None


WAYS = Message("Give its config.json instead, or try again.")
NO_ID = "“{text}” is no model id; one looks like Qwen/Qwen2.5-3B: organisation, slash, name."
