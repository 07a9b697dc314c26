"""The tools for assistants, asked by the protocol's own client."""

import json
import sys

import anyio
import pytest
from mcp.client import Client, stdio
from mcp.client.stdio import StdioServerParameters

from cli import main
from cli.assistant import server
from tests import ROOT

QWEN, ON_H100 = "Qwen/Qwen2.5-3B", ["--gpu", "h100-sxm"]


def asked(tool, **arguments):
    """What a tool answers, over the protocol in memory."""

    async def talk():
        async with Client(server()) as client:
            return await client.call_tool(tool, arguments)

    return anyio.run(talk)


def test_the_tools_are_named_and_described():
    async def talk():
        async with Client(server()) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(talk)}
    assert set(tools) == {"weigh", "train", "plan", "compare"}
    assert all("--gpu" in tool.description or "weigh" in tool.description for tool in tools.values())
    assert tools["weigh"].input_schema["required"] == ["model"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [("weigh", [QWEN]), ("train", [QWEN, "--train"]), ("plan", ["plan", QWEN])],
)
def test_an_answer_is_what_the_command_line_prints(tool, words, capsys):
    answer = asked(tool, model=QWEN, flags=ON_H100)
    assert main([*words, *ON_H100, "--json"]) == 0
    assert answer.structured_content == json.loads(capsys.readouterr().out)
    assert not answer.is_error


def test_models_are_compared():
    answer = asked("compare", models=[QWEN, "Qwen/Qwen3-8B"], flags=ON_H100).structured_content
    # Qwen2.5-3B has 3,085,938,688 parameters and Qwen3-8B 8,190,735,360 (safetensors of the checkpoints)
    assert {name: report["parameters"]["total"] for name, report in answer.items()} == {
        QWEN: 3_085_938_688,
        "Qwen/Qwen3-8B": 8_190_735_360,
    }


@pytest.mark.parametrize(
    ("model", "flags", "words"),
    [
        ("no-such-model", [], "neither a preset nor a file"),
        (QWEN, ["--gpu", "h1000"], "h1000"),
        (QWEN, ["--no-such-flag"], "--no-such-flag"),
        (QWEN, ["--help"], "help"),
        (QWEN, ["--context", "0"], "context"),
        ("-", [], "There is no text"),  # of standard input, where the protocol speaks
    ],
)
def test_a_bad_question_is_an_error_with_its_sentence(model, flags, words):
    answer = asked("weigh", model=model, flags=flags)
    assert answer.is_error
    assert words in answer.content[0].text


@pytest.mark.slow
def test_it_talks_over_standard_input_and_output():
    async def talk():
        launch = StdioServerParameters(command=sys.executable, args=["-m", "calc", "mcp"], cwd=str(ROOT))
        async with Client(stdio.stdio_client(launch)) as client:
            return await client.call_tool("weigh", {"model": QWEN, "flags": ON_H100})

    assert anyio.run(talk).structured_content["parameters"]["total"] == 3_085_938_688


def test_without_the_sdk_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("cli.assistant.find_spec", lambda name: None)
    assert main(["mcp"]) == 2
    assert "pip install 'weighbridge[mcp]'" in capsys.readouterr().err
