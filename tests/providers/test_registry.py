from __future__ import annotations

import pickle
from typing import Any

import pydantic
import pytest

from agentlab.errors import ConfigurationError, MissingKeyError, UnknownProviderError
from agentlab.providers.registry import Provider, names, resolve

SECRET = "sk-very-secret"


def test_names_lists_every_file():
    assert {"anthropic", "compatible", "gemini", "openai"} <= set(names())


def test_a_string_names_provider_and_model():
    provider = resolve("openai:gpt-4.1-mini")
    assert (provider.name, provider.model) == ("openai", "gpt-4.1-mini")


def test_a_model_may_contain_colons_and_slashes():
    assert resolve("gemini:models/x:y").model == "models/x:y"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param("opnai:gpt", ["'opnai'", "Did you mean 'openai'?", "Providers: ", "gemini"], id="close match"),
        pytest.param("zzz:gpt", ["'zzz'", "Providers: ", "anthropic"], id="no close match"),
        pytest.param("OpenAI:gpt", ["Did you mean 'openai'?"], id="other case"),
        pytest.param("gpt-4.1-mini", ["write provider:model", "openai:gpt-4.1-mini"], id="no colon"),
        pytest.param("anthropic", ["write provider:model", "anthropic:"], id="provider only"),
        pytest.param("openai:", ["write provider:model"], id="empty model"),
        pytest.param("openai:  ", ["write provider:model"], id="blank model"),
        pytest.param(":gpt", ["write provider:model"], id="empty provider"),
        pytest.param("", ["write provider:model"], id="empty"),
        pytest.param("_base:x", ["'_base'"], id="an unknown file"),
        pytest.param("anthropic/claude-sonnet-4-6", ["write 'anthropic:claude-sonnet-4-6'."], id="slash"),
        pytest.param("openai/gpt-5", ["write 'openai:gpt-5'."], id="slash of openai"),
        pytest.param("openrouter/openai/gpt-5", ["write 'openrouter:openai/gpt-5'."], id="two slashes"),
        pytest.param("x-ai/grok-4", ["write 'xai:grok-4'."], id="slash of another name"),
        pytest.param("google/gemini-3.5-flash", ["write 'gemini:gemini-3.5-flash'."], id="slash of google"),
        pytest.param("google:gemini-3.5-flash", ["No provider 'google': write 'gemini:gemini-3.5-flash'."], id="google"),
        pytest.param("ollama/gemma3", ["write 'ollama:gemma3'."], id="slash of a preset"),
        pytest.param("grok:grok-4", ["No provider 'grok': write 'xai:grok-4'."], id="the name of a model's family"),
        pytest.param("kimi:k2", ["No provider 'kimi': write 'moonshot:k2'."], id="another tool's name of a preset"),
        pytest.param("mistal:m", ["Did you mean 'mistral'?", "Providers: ", "llama-cpp"], id="close match of a preset"),
        pytest.param("nobody/x", ["write provider:model, e.g. 'openai:gpt-4.1-mini'"], id="slash of an unknown name"),
    ],
)
def test_wrong_strings_get_advice(spec: str, words: list[str]):
    with pytest.raises(UnknownProviderError) as error:
        resolve(spec)
    for word in words:
        assert word in str(error.value)


def test_an_empty_model_is_reported():
    with pytest.raises(UnknownProviderError, match="model=''"):
        Provider("openai", model="")


def test_compatible_needs_an_address():
    with pytest.raises(ConfigurationError, match="base_url="):
        resolve("compatible:some-model")


@pytest.mark.parametrize("name", ["openai", "openrouter", "xai", "azure", "anthropic", "gemini", "compatible"])
def test_an_address_must_be_http(name: str):
    with pytest.raises(ConfigurationError, match="ftp://x"):
        Provider(name, model="m", base_url="ftp://x")


@pytest.mark.parametrize("address", [f"https://user:{SECRET}@h/v1", f"https://h/v1?key={SECRET}", f"https://h/v1#{SECRET}"])
def test_an_address_must_contain_no_secret(address: str):
    with pytest.raises(ConfigurationError, match="api_key=") as error:
        Provider("compatible", model="m", base_url=address)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("setting", [{"api_key": SECRET.encode()}, {"base_url": SECRET.encode()}, {"api_key": [SECRET]}])
def test_a_setting_that_is_no_text_is_reported_without_it(setting: dict[str, Any]):
    with pytest.raises(ConfigurationError, match=f"{next(iter(setting))}=… of openai is of the type .*: pass text") as error:
        Provider("openai", model="m", **setting)
    assert SECRET not in str(error.value)


def test_a_model_that_is_no_text_is_reported():
    with pytest.raises(UnknownProviderError, match=r"model=\['m'\] is not text: name a model of openai"):
        Provider("openai", model=["m"])  # type: ignore[arg-type]


def test_a_secret_of_pydantic_is_a_key():
    provider = Provider("openai", model="m", api_key=pydantic.SecretStr(SECRET))  # type: ignore[arg-type]
    assert provider.auth_headers() == {"authorization": f"Bearer {SECRET}"}


def test_a_mistyped_setting_is_reported():
    with pytest.raises(ConfigurationError, match="api_kee"):
        Provider("openai", model="m", api_kee=SECRET)


@pytest.mark.parametrize("name", ["openai", "openrouter", "xai", "azure", "anthropic", "gemini", "compatible"])
def test_keys_and_headers_are_in_no_repr(name: str):
    provider = Provider(name, model="m", base_url="http://h", api_key=SECRET, headers={"x-team": SECRET})
    assert SECRET not in repr(provider)
    assert SECRET not in str(provider)
    assert SECRET in str(provider.auth_headers())
    assert isinstance(hash(provider), int)
    assert pickle.loads(pickle.dumps(provider)) == provider


@pytest.mark.parametrize("name", ["openai", "openrouter", "xai", "anthropic", "gemini"])
def test_a_missing_key_says_what_to_do(name: str):
    provider = Provider(name, model="m")  # made without a key: replays need none
    with pytest.raises(MissingKeyError) as error:
        provider.auth_headers()
    for word in (f"{name.upper()}_API_KEY", f'lab.Provider("{name}"', "api_key=", "lab.replay("):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("name", "variables", "header", "value"),
    [
        pytest.param("openai", {"OPENAI_API_KEY": "k1"}, "authorization", "Bearer k1", id="openai"),
        pytest.param("anthropic", {"ANTHROPIC_API_KEY": "k2"}, "x-api-key", "k2", id="anthropic"),
        pytest.param("gemini", {"GEMINI_API_KEY": "k3", "GOOGLE_API_KEY": "k4"}, "x-goog-api-key", "k3", id="gemini"),
        pytest.param("gemini", {"GOOGLE_API_KEY": "k4"}, "x-goog-api-key", "k4", id="gemini, second"),
        pytest.param("gemini", {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "k4"}, "x-goog-api-key", "k4", id="gemini, blank"),
        pytest.param("openai", {"OPENAI_API_KEY": " k1\n"}, "authorization", "Bearer k1", id="white space"),
        pytest.param("openrouter", {"OPENROUTER_API_KEY": "k5"}, "authorization", "Bearer k5", id="openrouter"),
        pytest.param("xai", {"XAI_API_KEY": "k6"}, "authorization", "Bearer k6", id="xai"),
    ],
)
def test_keys_are_read_when_they_are_needed(name, variables, header, value, monkeypatch: pytest.MonkeyPatch):
    provider = Provider(name, model="m")
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    assert provider.auth_headers()[header] == value


def test_a_given_key_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "environment")
    assert Provider("openai", model="m", api_key="given").auth_headers() == {"authorization": "Bearer given"}


def test_a_key_that_no_header_can_carry_is_not_shown():
    with pytest.raises(ConfigurationError) as error:
        Provider("openai", model="m", api_key=f"{SECRET}\nx").auth_headers()
    assert SECRET not in str(error.value)


def test_compatible_sends_no_other_vendors_key(monkeypatch: pytest.MonkeyPatch):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(variable, SECRET)
    assert Provider("compatible", model="m", base_url="http://h").auth_headers() == {}
    keyed = Provider("compatible", model="m", base_url="http://h", api_key="own")
    assert keyed.auth_headers() == {"authorization": "Bearer own"}


class FakePoint:
    name = "elsewhere"

    @staticmethod
    def load():
        return lambda **settings: settings


def test_an_entry_point_is_a_provider(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [FakePoint])
    assert "elsewhere" in names()
    assert Provider("elsewhere", model="m", base_url="http://h") == {"model": "m", "base_url": "http://h"}
    assert resolve("elsewhere:m") == {"model": "m"}
