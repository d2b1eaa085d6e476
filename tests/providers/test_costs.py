"""Our costs against those of genai-prices for the same bodies: equal, or unknown with a reason, or reported by the provider."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import genai_prices

from agentlab.model.pricing import cost_of
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import CostSource
from agentlab.transport.cassette import load_cassette

from . import test_corpus as corpus
from .bodies import parse_stream, provider

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASSETTES = corpus.RECORDINGS.parent / "cassettes"
TIMES = (datetime(2026, 11, 23, 3, tzinfo=UTC), datetime(2026, 11, 23, 20, tzinfo=UTC))

FLAVOURS = {
    # Our provider: theirs, and the name of its wire there.
    "openai": ("openai", "chat"),
    "openai-responses": ("openai", "responses"),
    "azure": ("azure", "chat"),
    "azure-responses": ("azure", "responses"),
    "anthropic": ("anthropic", "default"),
    "gemini": ("google", "default"),
    "bedrock": ("aws", "default"),
    "openrouter": ("openrouter", "chat"),
    "openrouter-responses": ("openrouter", "default"),
    "xai": ("x-ai", "chat"),
    "xai-responses": ("x-ai", "responses"),
}


@dataclass(frozen=True)
class Priced:
    """A body, read by us; `address` if a recording knows it, `at` its time, `model` the requested one."""

    where: str
    name: str
    response: ModelResponse
    model: str
    address: str = ""
    at: datetime | None = None


# Omissions of their extraction, as the bodies show. Each entry corrects their usage; the price of that must then equal ours.

MENDED: dict[str, tuple[Callable[[str, dict[str, Any]], bool], Callable[[Any, dict[str, Any]], None]]] = {}


def mended(why: str, applies: Callable[[str, dict[str, Any]], bool]) -> Callable[[Any], Any]:
    def keep(mend: Callable[[Any, dict[str, Any]], None]) -> Any:
        MENDED[why] = (applies, mend)
        return mend

    return keep


def of(body: dict[str, Any], *path: str) -> Any:
    found: Any = body
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def reasoning_on_top(name: str, body: dict[str, Any]) -> bool:
    parts = [of(body, "usage", "prompt_tokens"), of(body, "usage", "completion_tokens")]
    parts.append(of(body, "usage", "completion_tokens_details", "reasoning_tokens"))
    return not name.startswith("xai") and None not in parts and bool(parts[2]) and of(body, "usage", "total_tokens") == sum(parts)


@mended(
    "reasoning comes on top of the completion, as the total says: xAI's models on other vendors' servers "
    "(https://docs.x.ai/developers/rate-limits, read 2026-11-22: reasoning tokens are paid like the completion's)",
    reasoning_on_top,
)
def _(usage: Any, body: dict[str, Any]) -> None:
    usage.output_tokens += of(body, "usage", "completion_tokens_details", "reasoning_tokens")


@mended(
    "cache hits are at the top of the usage only (https://api-docs.deepseek.com/guides/kv_cache, read 2026-11-22)",
    lambda name, body: (
        bool(of(body, "usage", "prompt_cache_hit_tokens")) and not of(body, "usage", "prompt_tokens_details", "cached_tokens")
    ),
)
def _(usage: Any, body: dict[str, Any]) -> None:
    usage.cache_read_tokens = of(body, "usage", "prompt_cache_hit_tokens")


def calls(body: dict[str, Any], kind: str) -> int:
    return sum(item.get("type") == kind for item in body.get("output") or () if isinstance(item, dict))


@mended(
    "the vendor's own searches are items of the output, and no part of the usage "
    "(https://developers.openai.com/api/docs/pricing, read 2026-11-23: $10 and $2.50 for a thousand calls)",
    lambda name, body: "responses" in name and bool(calls(body, "web_search_call") or calls(body, "file_search_call")),
)
def _(usage: Any, body: dict[str, Any]) -> None:
    usage.web_searches = calls(body, "web_search_call")
    usage.storage_searches = calls(body, "file_search_call")


@mended(
    "modalities come as the numbers of the enumeration, which their matching by words raises on "
    "(https://ai.google.dev/api/generate-content#Modality, read 2026-11-23)",
    lambda name, body: name == "gemini" and '"modality": 1' in json.dumps(body),
)
def _(usage: Any, body: dict[str, Any]) -> None:
    """Done earlier, in `as_they_read_it`."""


@mended(
    "a summary of the conversation is paid for and is no part of the sums "
    "(https://platform.claude.com/docs/en/build-with-claude/compaction, read 2026-11-22)",
    lambda name, body: name == "anthropic" and '"compaction"' in json.dumps(of(body, "usage", "iterations") or []),
)
def _(usage: Any, body: dict[str, Any]) -> None:
    for one in of(body, "usage", "iterations"):
        if one["type"] == "compaction":
            cached = one["cache_read_input_tokens"], one["cache_creation_input_tokens"]
            usage.input_tokens += one["input_tokens"] + sum(cached)
            usage.output_tokens += one["output_tokens"]


MODALITIES = ["MODALITY_UNSPECIFIED", "TEXT", "IMAGE", "VIDEO", "AUDIO", "DOCUMENT"]


def as_they_read_it(one: Priced) -> dict[str, Any]:
    """The body with the model where their extraction looks for it, and text in place of numbers."""
    body: dict[str, Any] = one.response.raw
    asked = one.response.model or one.model
    if one.name == "gemini":
        body = {**body.get("response", body), "modelVersion": asked.rpartition("/")[2]}
        text = re.sub(r'"modality": (\d)', lambda found: f'"modality": "{MODALITIES[int(found[1])]}"', json.dumps(body))
        read: dict[str, Any] = json.loads(text)
        return read
    return {**body, "model": asked}


def theirs(one: Priced, at: datetime) -> tuple[Decimal | None, str]:
    """Their price of a body, and why it was corrected."""
    if one.address:
        who: dict[str, Any] = {"provider_api_url": one.address}
        flavours = [FLAVOURS.get(one.name, ("", "responses" if "responses" in one.name else "chat"))[1], "default"]
    else:
        who, flavours = {"provider_id": FLAVOURS[one.name][0]}, [FLAVOURS[one.name][1]]
    if "outputs" in one.response.raw:  # as xAI's SDK receives it
        flavours = ["default"]
    tier = of(one.response.raw, "service_tier")
    body = as_they_read_it(one)
    for flavour in flavours:
        try:
            found = genai_prices.extract_usage(body, **who, api_flavor=flavour)
        except (ValueError, LookupError):
            continue
        why = [why for why, (applies, _) in MENDED.items() if applies(one.name, one.response.raw)]
        for each in why:
            MENDED[each][1](found.usage, one.response.raw)
        try:
            context = {"service_tier": tier} if isinstance(tier, str) else None
            return found.calc_price(genai_request_timestamp=at, price_context=context).total_price, "; ".join(why)
        except ValueError:
            continue
    return None, ""


def compared(one: Priced) -> tuple[str, str]:
    """The result of the comparison in a word, with details."""
    model = one.response.model or one.model
    cost = cost_of(one.name, model, one.response.usage, one.response.cost_usd, at=one.at, address=one.address)
    assert bool(cost.reason) is (cost.usd is None), one.where
    if cost.source is CostSource.REPORTED:
        return "reported by the provider", ""
    if one.name not in FLAVOURS and not one.address:
        assert cost.usd is None
        return "unknown", cost.reason
    for at in (one.at,) if one.at else TIMES:
        usd, why = theirs(one, at)
        if cost.usd is not None:
            assert usd == cost.usd, (one.where, one.name, model, one.response.usage, why)
    if cost.usd is None:
        return ("unknown" if usd is not None else "unknown to both"), cost.reason
    return "equal", why


def table(found: Iterator[Priced]) -> Counter[tuple[str, str]]:
    """Compare all, and print the count of each result."""
    words: Counter[tuple[str, str]] = Counter()
    more: Counter[tuple[str, str, str]] = Counter()
    for one in found:
        word, about = compared(one)
        words[one.name, word] += 1
        more[one.name, word, re.sub(r"'[^']*'|\d{5,}", "…", about)] += bool(about)
    for key, number in sorted(words.items()):
        print(f"{number:5}  {key[0]:<22}{key[1]}")
        for (name, word, about), times in sorted(more.items()):
            if (name, word) == key and times:
                print(f"            {times:5}  {about}")
    return words


# Sources -------------------------------------------------------------------------------------------------------------------

WIRES = (
    ("/chat/completions", ""),
    ("/responses", "-responses"),
    ("/messages", "anthropic"),
    (":generateContent", "gemini"),
    (":streamGenerateContent", "gemini"),
    ("/converse", "bedrock"),
)
VENDORS = ("openai", "x.ai", "openrouter", "azure")


def provider_at(uri: str) -> str:
    """The provider of this address; empty if there is none."""
    name = next((name for path, name in WIRES if path in uri), None)
    if name is None or name in ("anthropic", "gemini", "bedrock"):
        return name or ""
    host = uri.split("/")[2]
    vendor = next((one for one in ("azure", "openrouter", "x.ai", "api.openai.com") if one in host), "compatible")
    return {"x.ai": "xai", "api.openai.com": "openai"}.get(vendor, vendor) + name


def of_cassettes(folder: Path) -> Iterator[Priced]:
    for path in sorted(folder.rglob("*.yaml")):
        for interaction in load_cassette(path).interactions:
            name, answer = provider_at(interaction.uri), interaction.response
            if not name or answer.status != 200:
                continue
            kind = answer.headers.get("content-type", "")
            try:
                body = answer.body
                response = parse_stream(name, [body])[0] if "stream" in kind else provider(name).parse(json.loads(body))
            except ValueError:
                continue
            asked = re.search(r"/models?/([^/:]+)[:/]", interaction.uri)
            model = asked[1] if asked else str(of(json.loads(interaction.body or b"{}"), "model") or "")
            if isinstance(response.raw, dict):
                yield Priced(
                    interaction.source, name, response, model.replace("%3A", ":"), interaction.uri, interaction.recorded.at
                )


@cache
def of_recordings() -> tuple[Priced, ...]:
    found = []
    for recording in corpus.recordings():
        name, data = corpus.PROVIDERS[recording["wire"]], corpus.body(recording)
        try:
            if recording["streaming"] or recording["encoding"] == "base64":
                response = parse_stream(name, [data], recording["requested_cap"])[0]
            else:
                response = provider(name).parse(json.loads(data), requested_cap=recording["requested_cap"])
        except ValueError:
            continue
        if isinstance(response.raw, dict):
            found.append(Priced(recording["id"], name, response, recording["model"] or "", at=TIMES[0]))
    return tuple(found)


def test_every_fixture_costs_what_they_compute() -> None:
    words = table(of_cassettes(FIXTURES))
    assert words["openai", "equal"] > 30
    assert words["anthropic", "equal"] > 30
    assert words["gemini", "equal"] > 30
    assert words["bedrock", "equal"] > 1


@corpus.pytestmark
def test_every_recorded_body_costs_what_they_compute() -> None:
    words = table(iter(of_recordings()))
    assert sum(number for (_, word), number in words.items() if word == "equal") > 1_300
    assert sum(words.values()) > 3_000


@corpus.pytestmark
def test_foreign_recordings_cost_what_they_compute() -> None:
    words = table(of_cassettes(CASSETTES))
    assert sum(number for (_, word), number in words.items() if word == "equal") > 50
