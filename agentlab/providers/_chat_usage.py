"""Usage and cost on the chat completions wire, where servers put the same numbers in different places.

Vendor pages, read 2026-11-22: https://platform.openai.com/docs/api-reference/chat/object,
https://openrouter.ai/docs/use-cases/usage-accounting, https://docs.x.ai/developers/cost-tracking,
https://api-docs.deepseek.com/guides/kv_cache, https://console.groq.com/docs/api-reference and recorded responses.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from agentlab.providers import _read as read
from agentlab.types import JSON, Usage, UsageSource

_CACHE_READS = ("cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens", "cache_read_input_tokens")
"""Names for cache reads at the top of the usage, where `prompt_tokens_details` has none; all of them are part of `prompt_tokens`."""

_COST_PARTS = ("usd", "total_cost")
"""Where a server reports its cost as an object: the part that is all of it, in US dollars."""

_TICK_USD = Decimal("1e-10")


def usage_object(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    """Where servers put the usage: at the top, under a vendor's own key, or in the choice. Empty where there is none."""
    for place in (body, read.as_dict(body.get("x_groq")), choice):
        if isinstance(usage := place.get("usage"), dict):
            return usage
    return {}


def read_usage(
    usage: dict[str, Any], *, reasoning_on_top: bool = False, tier: JSON = None, message: dict[str, Any] | None = None
) -> Usage:
    """What was used, by the one convention.

    `prompt_tokens` includes cache reads and writes, except on servers whose total shows that the reads come on top.
    `completion_tokens` includes reasoning, except on servers whose total shows that it comes on top (xAI among them).
    `reasoning_on_top` says so for a usage without a total. `tier` is the body's `service_tier`. A `message` that cites pages, or lists
    tools that the server ran, was charged for that: this wire has no count of it that the price list knows.
    """
    prompt, completion = read.count(usage.get("prompt_tokens")), read.count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return Usage()
    details, given = read.as_dict(usage.get("prompt_tokens_details")), read.as_dict(usage.get("completion_tokens_details"))
    cached = read.count(details.get("cached_tokens"))
    if cached is None:
        cached = _first_count(usage, _CACHE_READS)
    written = read.count(details.get("cache_write_tokens"))
    reasoning = read.count(given.get("reasoning_tokens"))
    if reasoning is None:
        reasoning = read.count(usage.get("reasoning_tokens"))
    total = read.count(usage.get("total_tokens"))
    if reasoning and completion is not None:
        if total is None or prompt is None:
            completion += reasoning if reasoning_on_top else 0
        elif total == prompt + completion + reasoning:
            completion += reasoning
    if cached and prompt is not None and total == prompt + cached + (completion or 0):
        prompt += cached
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=cached,
        cache_write_tokens=written if written is not None else read.count(usage.get("cache_creation_input_tokens")),
        reasoning_tokens=reasoning,
        source=UsageSource.REPORTED,
        cache_write_1h_tokens=read.count(read.as_dict(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
        input_audio_tokens=read.count(details.get("audio_tokens")),
        output_audio_tokens=read.count(given.get("audio_tokens")),
        input_image_tokens=read.count(details.get("image_tokens")),
        output_image_tokens=read.count(given.get("image_tokens")),
        service_tier=_tier(usage, tier),
        also_charged=tuple(dict.fromkeys(_also_charged(usage, message or {}))),
    )


def _tier(usage: dict[str, Any], tier: JSON) -> str | None:
    """The tier, where servers put it: at the top; in the usage, where it is Anthropic's or Google's behind this wire."""
    said = next(
        (text for one in (tier, usage.get("service_tier"), usage.get("trafficType")) if (text := read.some_text(one))), None
    )
    return None if said is None else said.lower()


def _also_charged(usage: dict[str, Any], message: dict[str, Any]) -> Iterator[str]:
    cited = [read.as_dict(one).get("type") for one in read.as_list(message.get("annotations"))]
    if "url_citation" in cited or read.count(usage.get("num_search_queries")):
        yield "web searches"
    if read.count(usage.get("num_sources_used")):
        yield "sources of a live search"
    for tool in read.as_list(
        usage.get("server_side_tools_used")
    ):  # of xAI's SDK: https://docs.x.ai/developers/models, read 2026-11-23
        name = read.as_text(tool).removeprefix("SERVER_SIDE_TOOL_").lower().replace("_", " ")
        if name != "mcp" and not name.startswith("view"):  # these cost their tokens only
            yield name
    if message.get("executed_tools"):  # Groq's compound systems
        yield "tools that the server ran"


def _first_count(usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found for name in names if (found := read.count(usage.get(name))) is not None), None)


def reported_cost(usage: dict[str, Any]) -> Decimal | None:
    """US dollars, where a server reports them as `cost`: a number, or an object with the sum in it.

    With a key of one's own (`is_byok`), OpenRouter's `cost` is its own fee only, and the vendor charges what `cost_details` calls the
    upstream inference cost: what is paid is the sum, unknown where a part of it is. Without such a key that cost is in `cost` already.
    """
    cost = usage.get("cost")
    if isinstance(cost, dict):
        cost = next((cost[part] for part in _COST_PARTS if cost.get(part) is not None), None)
    paid = read.money(cost)
    if paid is None or usage.get("is_byok") is not True:
        return paid
    upstream = read.money(read.as_dict(usage.get("cost_details")).get("upstream_inference_cost"))
    return None if upstream is None else paid + upstream


def cost_in_ticks(usage: dict[str, Any]) -> Decimal | None:
    """US dollars, where a server reports them as xAI does: in ticks, of which 10^10 are one dollar."""
    ticks = usage.get("cost_in_usd_ticks")
    if isinstance(ticks, str) and ticks.isascii() and ticks.isdecimal():  # as protobuf's JSON writes large integers
        ticks = read.money(ticks)
        return None if ticks is None else ticks * _TICK_USD
    ticks = read.count(ticks)
    return None if ticks is None else ticks * _TICK_USD
