"""Parameters that each provider has under another name: one meaning, the wire's own fields, and errors before sending."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model.messages import Message, ModelRequest, Parameters, ToolSpec

ADDRESSES = {"azure": "https://x.openai.azure.com", "compatible": "http://h", "compatible-responses": "http://h"}
MODELS = {"anthropic": "claude-sonnet-4-6", "gemini": "gemini-3.5-flash", "openai": "gpt-4.1-mini"}
TOOL = ToolSpec("search", "Search.", {"type": "object", "properties": {}}, '{"type":"object","properties":{}}')
ALL = Parameters(0.5, 7, "low", "search", False)


def sent(name: str, asked: Parameters, *, model: str = "", tools: bool = True, **options: Any) -> dict[str, Any]:
    more = {"base_url": ADDRESSES[name]} if name in ADDRESSES else {}
    provider = lab.Provider(name, model=model or MODELS.get(name, "m"), **more)
    request = ModelRequest((Message("user", "Hi"),), tools=(TOOL,) if tools else (), options=options, parameters=asked)
    return json.loads(provider.build_request(request).body)


def added(name: str, asked: Parameters, **more: Any) -> dict[str, Any]:
    """Return the fields that the parameters add to a body, or change."""
    plain = sent(name, Parameters(), **more)
    return {key: value for key, value in sent(name, asked, **more).items() if plain.get(key) != value}


CHAT = {
    "temperature": 0.5,
    "seed": 7,
    "reasoning_effort": "low",
    "tool_choice": {"type": "function", "function": {"name": "search"}},
    "parallel_tool_calls": False,
}


@pytest.mark.parametrize(
    "name", ["openai", "azure", "xai", "compatible", "groq", "together", "fireworks", "cerebras", "vllm", "llama-cpp"]
)
def test_chat_completions(name: str) -> None:
    assert added(name, ALL) == CHAT


def test_names_that_differ() -> None:
    seed = {key: value for key, value in CHAT.items() if key != "seed"}
    assert added("mistral", ALL) == {**seed, "random_seed": 7}
    effort = {key: value for key, value in CHAT.items() if key != "reasoning_effort"}
    assert added("openrouter", ALL) == {**effort, "reasoning": {"effort": "low"}}
    for name in ("deepseek", "moonshot"):
        assert added(name, ALL) == CHAT
        assert added(name, Parameters(reasoning_effort="none")) == {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_choices_of_the_wires(choice: str) -> None:
    asked = Parameters(tool_choice=choice)
    for name in ("openai", "openai-responses", "mistral", "lmstudio"):
        assert added(name, asked) == {"tool_choice": choice}
    kind = {"auto": "auto", "required": "any", "none": "none"}[choice]
    assert added("anthropic", asked) == {"tool_choice": {"type": kind}}
    assert added("gemini", asked) == {"toolConfig": {"functionCallingConfig": {"mode": kind.upper()}}}
    if choice != "none":
        assert added("bedrock", asked)["toolConfig"]["toolChoice"] == {kind: {}}


def test_responses() -> None:
    asked = Parameters(0.5, None, "low", "search", False)
    for name in ("openai-responses", "compatible-responses"):
        assert added(name, asked) == {
            "temperature": 0.5,
            "reasoning": {"effort": "low"},
            "tool_choice": {"type": "function", "name": "search"},
            "parallel_tool_calls": False,
        }
    summary = sent("openai-responses", asked, reasoning={"summary": "auto", "effort": "high"})["reasoning"]
    assert summary == {"summary": "auto", "effort": "low"}  # a parameter takes precedence over options


def test_anthropic() -> None:
    assert added("anthropic", Parameters(0.5, None, "low", "search", False)) == {
        "temperature": 0.5,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "tool_choice": {"type": "tool", "name": "search", "disable_parallel_tool_use": True},
    }
    assert added("anthropic", Parameters(reasoning_effort="none")) == {"thinking": {"type": "disabled"}}
    single = {"type": "auto", "disable_parallel_tool_use": True}
    assert added("anthropic", Parameters(parallel_tool_calls=False)) == {"tool_choice": single}
    assert added("anthropic", Parameters(parallel_tool_calls=True)) == {}


def test_gemini() -> None:
    assert added("gemini", Parameters(0.5, 7, "low", "search", True)) == {
        "generationConfig": {"temperature": 0.5, "seed": 7, "thinkingConfig": {"thinkingLevel": "LOW"}},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["search"]}},
    }
    off = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
    assert added("gemini", Parameters(reasoning_effort="none"), model="gemini-2.5-flash") == off


def test_bedrock() -> None:
    found = added("bedrock", Parameters(0.5, tool_choice="search", parallel_tool_calls=True))
    assert found["inferenceConfig"] == {"temperature": 0.5}
    assert found["toolConfig"]["toolChoice"] == {"tool": {"name": "search"}}


@pytest.mark.parametrize("name", [*MODELS, "openai-responses", "bedrock", "mistral"])
def test_choices_are_sent_with_tools_only(name: str) -> None:
    assert added(name, Parameters(tool_choice="required", parallel_tool_calls=True), tools=False) == {}


def test_zero_is_sent_and_none_is_not() -> None:
    assert added("openai", Parameters(0, 0)) == {"temperature": 0, "seed": 0}
    assert added("openai", Parameters()) == {}


@pytest.mark.parametrize(
    ("name", "model", "asked", "words"),
    [
        ("openai-responses", "m", Parameters(seed=7), "seed=7: openai-responses does not take this parameter"),
        ("anthropic", "claude-sonnet-4-6", Parameters(seed=7), "seed=7: anthropic does not take"),
        ("anthropic", "claude-sonnet-4-6", Parameters(temperature=1.5), "from 0 to 1"),
        ("anthropic", "claude-sonnet-4-6", Parameters(reasoning_effort="minimal"), "does not take this value"),
        ("anthropic", "claude-sonnet-4-5", Parameters(reasoning_effort="low"), "budget_tokens"),
        ("anthropic@2026-10-21", "claude-sonnet-4-6", Parameters(temperature=0), "temperature=0: Anthropic's API version"),
        ("anthropic", "claude-opus-4-6", Parameters(reasoning_effort="xhigh"), "takes low, medium, high or max"),
        ("gemini", "gemini-3.5-flash", Parameters(parallel_tool_calls=False), "parallel_tool_calls=False: gemini does not"),
        ("gemini", "gemini-3.5-flash", Parameters(reasoning_effort="none"), "takes minimal, low, medium, high, xhigh"),
        ("gemini", "gemini-2.5-pro", Parameters(reasoning_effort="low"), "thinkingBudget"),
        ("bedrock", "m", Parameters(seed=7), "seed=7: bedrock does not take this parameter"),
        ("bedrock", "m", Parameters(tool_choice="none"), "tool_choice='none': bedrock does not take this value"),
        ("ollama", "m", Parameters(tool_choice="auto"), "ollama does not take this parameter"),
        ("lmstudio", "m", Parameters(tool_choice="search"), "tool_choice='search': lmstudio does not take this value"),
        ("cohere", "m", Parameters(parallel_tool_calls=True), "parallel_tool_calls=True: cohere does not take this parameter"),
        ("cohere", "m", Parameters(reasoning_effort="low"), "reasoning_effort='low': cohere does not take this value"),
        ("moonshot", "kimi-k2.6", Parameters(tool_choice="required"), "kimi-k2.6 takes no forced tool choice while it reasons"),
        ("deepseek", "deepseek-v4-pro", Parameters(None, None, "high", "search"), "deepseek-v4-pro takes no forced tool choice"),
        *(
            (name, model, Parameters(temperature=0), f"temperature=0: {model} always reasons")
            for name in ("openai", "openai-responses")
            for model in ("gpt-5", "gpt-5-mini-2025-08-07", "gpt-5.2-pro", "gpt-5.3-chat-latest", "o3", "o4-mini")
        ),
        ("openai", "gpt-5.5", Parameters(temperature=0), "gpt-5.5 takes no temperature but 1 while it reasons"),
        (
            "openai",
            "gpt-5.4-mini",
            Parameters(0, reasoning_effort="low"),
            "gpt-5.4-mini takes no temperature but 1 while it reasons",
        ),
    ],
)
def test_what_is_known_to_be_refused_is_an_error(name: str, model: str, asked: Parameters, words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        sent(name, asked, model=model)
    assert words in str(error.value)


# Of the vendor's client, which takes seconds to import as a whole
TYPES = Path(find_spec("anthropic").origin).parent / "types"  # type: ignore[union-attr,arg-type]
CLAUDES = sorted({one for kind in get_args(run_path(str(TYPES / "model_param.py"))["ModelParam"]) for one in get_args(kind)})


@pytest.mark.parametrize("model", CLAUDES)
def test_what_models_of_claude_refuse_is_what_pydantic_ai_knows(model: str) -> None:
    from pydantic_ai.profiles import anthropic as profiles  # a development dependency

    known = profiles.anthropic_model_profile(model)
    if "supports_forced_tool_choice" not in profiles.anthropic_model_profile("claude-opus-5-5"):
        pytest.skip("this version of pydantic-ai does not know the models yet")
    refused = {
        "temperature": known.get("anthropic_disallows_sampling_settings", False),
        "tool_choice": not known.get("supports_forced_tool_choice", True),
        "none": known.get("thinking_always_enabled", False),
    }
    asked = {
        "temperature": Parameters(temperature=0),
        "tool_choice": Parameters(tool_choice="required"),
        "none": Parameters(reasoning_effort="none"),
    }
    for name, parameters in asked.items():
        with pytest.raises(ConfigurationError, match=model) if refused[name] else nullcontext():
            body = sent("anthropic", parameters, model=model)
            between = known.get("anthropic_disables_thinking_with_between_tools", False)
            assert name != "none" or body["thinking"] == {"type": "between_tools" if between else "disabled"}
    assert sent("anthropic", Parameters(temperature=1, tool_choice="none"), model=model)["temperature"] == 1


@pytest.mark.parametrize("name", ["anthropic", "anthropic-vertex", "bedrock"])
def test_claude_refuses_the_same_on_each_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    model = "us.anthropic.claude-opus-4-8-v1:0" if name == "bedrock" else "claude-opus-4-8"
    with pytest.raises(ConfigurationError, match=r"temperature=0\.5: .* takes no temperature but 1\. Leave it out"):
        sent(name, Parameters(temperature=0.5), model=model)
    assert sent(name, Parameters(tool_choice="required"), model=model)


def test_models_that_do_not_reason_now_take_more() -> None:
    assert added("openai", Parameters(0, reasoning_effort="none"), model="gpt-5.5") == {
        "temperature": 0,
        "reasoning_effort": "none",
    }
    plain = sent("openai", Parameters(0), model="gpt-5.5", reasoning_effort="none")
    assert (plain["temperature"], plain["reasoning_effort"]) == (0, "none")
    forced = {"tool_choice": "required"}
    assert added("deepseek", Parameters(tool_choice="required"), model="deepseek-chat") == forced
    assert added("moonshot", Parameters(tool_choice="required"), model="kimi-k3") == forced
    assert added("moonshot", Parameters(None, None, "none", "required"), model="kimi-k2.6")["tool_choice"] == "required"
    assert added("moonshot", Parameters(tool_choice="none"), model="kimi-k2.6") == {"tool_choice": "none"}


@pytest.mark.parametrize("model", ["gpt-5-chat-latest", "gpt-5.4-mini", "gpt-4o", "o1x"])
def test_other_models_take_a_temperature(model: str) -> None:
    assert added("openai", Parameters(temperature=0), model=model) == {"temperature": 0}
    assert added("openai", Parameters(temperature=1), model="gpt-5") == {"temperature": 1}


@pytest.mark.parametrize(
    ("keyword", "value", "words"),
    [
        ("temperature", 2.5, "pass a number from 0 to 2"),
        ("temperature", float("nan"), "pass a number from 0 to 2"),
        ("temperature", True, "pass a number from 0 to 2"),
        ("temperature", "warm", "pass a number from 0 to 2"),
        ("seed", 1.5, "pass a whole number"),
        ("seed", True, "pass a whole number"),
        ("reasoning_effort", "huge", "choose one of none, minimal, low, medium, high, xhigh, max"),
        ("tool_choice", "serach", "Did you mean 'search'?"),
        ("tool_choice", "requird", "Did you mean 'required'?"),
        ("tool_choice", 3, "auto, required, none"),
        ("parallel_tool_calls", "no", "pass True or False"),
    ],
)
def test_a_value_that_no_provider_takes_is_refused_when_the_agent_is_made(keyword: str, value: Any, words: str) -> None:
    def search() -> str:
        """Search."""
        return ""

    with pytest.raises(ConfigurationError, match=f"{keyword}={value!r}".replace(".", r"\.")) as error:
        lab.Agent("openai:gpt-4.1-mini", tools=[search], **{keyword: value})
    assert words in str(error.value)


def test_bodies_are_valid_for_the_vendors_types() -> None:
    for vendor in ("anthropic", "google.genai", "openai"):
        pytest.importorskip(vendor, reason="the vendor's client is a development dependency")
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
    from google.genai.types import GenerateContentConfig
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

    TypeAdapter(CompletionCreateParamsNonStreaming).validate_python(sent("openai", ALL), strict=False, extra="forbid")
    responses = sent("openai-responses", Parameters(0.5, None, "xhigh", "search", False))
    TypeAdapter(ResponseCreateParamsNonStreaming).validate_python(responses, strict=False, extra="forbid")
    claude = sent("anthropic", Parameters(None, None, "max", "search", False))  # later versions have no temperature
    TypeAdapter(MessageCreateParamsNonStreaming).validate_python(claude, strict=False, extra="forbid")
    gemini = sent("gemini", Parameters(0.5, 7, "xhigh", "search"))
    GenerateContentConfig.model_validate({**gemini["generationConfig"], "toolConfig": gemini["toolConfig"]})


@pytest.mark.parametrize("temperature", [None, 0, 1.0])
@pytest.mark.parametrize("choice", [None, "auto", "required", "search"])
def test_bodies_are_valid_for_bedrocks_service_model(choice: str | None, temperature: float | None) -> None:
    session = pytest.importorskip("botocore.session", reason="botocore is a development dependency").Session()
    validator = pytest.importorskip("botocore.validate").ParamValidator()
    shape = session.get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}}  # reasoning is the model's own field
    body = sent("bedrock", Parameters(temperature, tool_choice=choice), additionalModelRequestFields=thinking)
    assert body["additionalModelRequestFields"] == thinking
    report = validator.validate({"modelId": "m", **body}, shape)
    assert not report.has_errors(), report.generate_report()
    wrong = validator.validate({"modelId": "m", **body, "inferenceConfig": {"temperatur": 1}}, shape)
    assert wrong.has_errors()


@pytest.mark.parametrize("asked", [Parameters(seed=1), Parameters(reasoning_effort="low"), Parameters(parallel_tool_calls=False)])
def test_bedrock_refuses_what_its_service_model_lacks(asked: Parameters) -> None:
    with pytest.raises(ConfigurationError, match="bedrock does not take this"):
        sent("bedrock", asked)


def test_a_run_sends_them_in_each_request_and_stores_them(tmp_path: Any) -> None:
    seen: list[ModelRequest] = []

    async def watch(request: ModelRequest, ask: Any) -> Any:
        seen.append(request)
        return await ask(request)

    async def run() -> str:
        model = lab.testing.ScriptedProvider(["Done."])
        agent = lab.Agent(model, temperature=0, seed=7, middleware=[watch], observers=[lab.Store(tmp_path / "runs.db")])
        run = agent.run("?")
        await run
        return run.id

    run_id = asyncio.run(run())
    assert [request.parameters for request in seen] == [Parameters(0, 7)]
    stored = lab.Store(tmp_path / "runs.db").load(run_id)
    assert stored.agent.parameters == Parameters(0, 7)
