"""`weighbridge mcp`: the answers as tools of the Model Context Protocol (modelcontextprotocol.io), on standard input
and output, for assistants that call programs. A tool's flags are those of the command line, and so is its JSON."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

from calc import ConfigError
from cli import command, plan
from cli.options import Parser

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

MOST_COMPARED = 20
INSTRUCTIONS = """
Weighbridge tells how many parameters a language model has, how much GPU memory it takes to serve or to train, and
which GPUs it fits. A model is a preset or Hugging Face id (Qwen/Qwen3-8B), or the path of a config.json. Flags are
those of the command line: ['--gpu', 'h100-sxm', '--context', '32768', '--batch', '16', '--weights', 'fp8']. Sizes in
the answers are bytes.
"""


def main(argv: Sequence[str] | None = None) -> int:
    about = "Serve the answers to assistants as tools of the Model Context Protocol, on standard input and output."
    Parser(prog="weighbridge mcp", description=about, allow_abbrev=False).parse_args(argv)
    if find_spec("mcp") is None:
        print("It needs the SDK of the protocol: pip install 'weighbridge[mcp]' adds it.", file=sys.stderr)
        return 2
    server().run()
    return 0


def server() -> "MCPServer":
    """The server with its four tools."""
    from mcp.server.mcpserver import MCPServer

    tools = MCPServer("weighbridge", instructions=INSTRUCTIONS)
    named: dict[str, Callable[..., Any]] = {"weigh": weigh, "train": train, "plan": plan_servers, "compare": compare}
    for name, tool in named.items():
        tools.add_tool(tool, name=name)
    return tools


def weigh(model: str, flags: list[str] | None = None) -> dict[str, Any]:
    """Parameters of a model, memory to serve it, and for each GPU whether it fits, with the flags that it takes.

    Flags, among others: --gpu ID..., --num-gpus N, --context TOKENS, --batch SEQUENCES, --weights FORMAT, --kv FORMAT,
    --engine vllm|sglang|tensorrt-llm|transformers|llamacpp|mlx, --tp N, --pp N."""
    return answered(command.parser(), lambda arguments: command.run(arguments)[0], model, flags)


def train(model: str, flags: list[str] | None = None) -> dict[str, Any]:
    """Memory of a training step of a model, and for each GPU whether it fits.

    Flags, among others: --gpu ID..., --micro-batch N, --sequence TOKENS, --optimizer NAME, --lora-rank N, --zero 0..3,
    --dp N, --recompute none|selective|full, --method sft|dpo|grpo|..."""
    return answered(command.parser(), lambda arguments: command.run(arguments)[0], model, ["--train", *(flags or ())])


def plan_servers(model: str, flags: list[str] | None = None) -> dict[str, Any]:
    """On which GPUs, how many and laid out how a model is served best: speed, price and the command that starts it.

    Flags, among others: --users N, --prompt TOKENS, --output TOKENS, --gpu ID..., --ttft-ms N, --tpot-ms N."""
    return answered(plan.parser(), plan.run, model, flags)


def compare(models: list[str], flags: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """The report of `weigh` for several models with the same flags, by the name of each."""
    from mcp.server.mcpserver.exceptions import ToolError

    if len(models) > MOST_COMPARED:
        raise ToolError(f"At most {MOST_COMPARED} models are compared at once.")
    return {model: weigh(model, flags) for model in models}


def answered(
    parser: Parser, run: Callable[[Namespace], Any], model: str, flags: Sequence[str] | None
) -> dict[str, Any]:
    """The JSON that `--json` prints. Raises ToolError with the sentence that the command line prints."""
    from mcp.server.mcpserver.exceptions import ToolError

    printed = StringIO()
    try:
        with redirect_stderr(printed), redirect_stdout(printed), without_input():
            arguments = parser.parse_args([model, *(flags or ())])
            result: dict[str, Any] = run(arguments).model_dump(mode="json")
    except SystemExit:
        raise ToolError(printed.getvalue().strip()) from None
    except ConfigError as error:
        raise ToolError(str(error)) from None
    return result


@contextmanager
def without_input() -> Iterator[None]:
    """No config is read from standard input, where the protocol speaks."""
    read, sys.stdin = sys.stdin, StringIO()
    try:
        yield
    finally:
        sys.stdin = read
