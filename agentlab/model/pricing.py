"""Computes the cost of a call: as reported by the provider, else by the price list of genai-prices (no network), else unknown."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import genai_prices
from genai_prices.data_snapshot import DataSnapshot, get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, PriceVariant, StartDateConstraint, TimeOfDateConstraint
from genai_prices.types import Provider as Seller

from agentlab._internal.names import near
from agentlab.model.usage import Cost, CostSource, Usage

PRICE_BOOK_NAMES: Mapping[str, str] = {
    "openai": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "anthropic-foundry": "azure",
    "anthropic-vertex": "google",
    "gemini": "google",
    "gemini-vertex": "google",
    "bedrock": "aws",
    "azure": "azure",
    "azure-responses": "azure",
    "openrouter": "openrouter",
    "openrouter-responses": "openrouter",
    "xai": "x-ai",
    "xai-responses": "x-ai",
    "moonshot": "moonshotai",
}
"""The names of our providers in the price list, for calls to the vendor's own address. Other providers are looked up by their exact
name; `compatible` is priced only by its address."""

# Charges ------------------------------------------------------------------------------------------------------------------------

_UNITS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
    "cache_write_1h_tokens": "cache_write_1h_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "output_audio_tokens": "output_audio_tokens",
    "cache_read_audio_tokens": "cache_audio_read_tokens",
    "input_image_tokens": "input_image_tokens",
    "output_image_tokens": "output_image_tokens",
    "cache_read_image_tokens": "cache_image_read_tokens",
    "input_video_tokens": "input_video_tokens",
    "web_searches": "web_searches",
    "file_searches": "storage_searches",
}
"""The names of `Usage` counts in the price list. A count without its own price is charged at the price of the count that includes it:
cache reads, images and video as input, reasoning as output. The next table lists the exceptions."""

_NEEDS_ITS_OWN_PRICE = {
    "input_tokens": ("input_mtok", "the input"),
    "output_tokens": ("output_mtok", "the output"),
    "cache_write_1h_tokens": ("cache_write_1h_mtok", "cache writes kept for an hour"),
    "input_audio_tokens": ("input_audio_mtok", "audio in the input"),
    "output_audio_tokens": ("output_audio_mtok", "audio in the output"),
    "output_image_tokens": ("output_image_mtok", "images in the output"),
}
"""Tokens that need their own price; without it the cost is unknown."""

_SEARCHES = {
    "web_searches": ("web_searches_kcount", "web searches"),
    "file_searches": ("storage_searches_kcount", "file searches"),
}
"""Charges per use."""

_ONE_PRICE_FOR_ALL_INPUT = ("google",)
"""Sellers for which the list has an audio price only if it differs from that of text."""

_STANDARD_TIERS = frozenset({"default", "standard", "on_demand", "unspecified", "traffic_type_unspecified"})
_TIER_NAMES = {"on_demand_flex": "flex", "on_demand_priority": "priority"}

_NO_EXACT_PRICE = {
    "zhipuai": "its prices depend on the length of the prompt, and the list has only the lowest one",
    "databricks": "its prices depend on the region",
    "modal": "it charges for the time of a server",
}
"""Sellers for which the list has only an estimate."""

_NO_EXACT_SEARCH_PRICE = {
    "google": "Google charges for them only above the account's free allowance",
    "gpt-4o-mini": "each one is charged as 8,000 input tokens",
    "gpt-4.1-mini": "each one is charged as 8,000 input tokens",
}
"""Sellers and models for which the number of web searches does not give their price."""

_IN_REGION = re.compile(r"https://([a-z0-9-]+-aiplatform|aiplatform\.[a-z]+\.rep)\.googleapis\.com")
_DEARER_IN_REGION = re.compile(r"claude|gemini-[3-9]")
"""Google Cloud's addresses in one region, and the models that cost more there: https://platform.claude.com/docs/en/about-claude/pricing,
read 2026-11-23, and the uplifts in litellm 1.109's table for Vertex AI, read 2026-11-24."""

_ROUTER = "https://router.huggingface.co/v1"
"""Hugging Face's router. The price depends on the server that answers, which the requested model names: `openai/gpt-oss-120b:groq`."""

_SAME_SERVER = {"https://api.together.ai": "https://api.together.xyz"}
"""Addresses that the price list has under an older name."""

_SEARCHES_ALWAYS = re.compile(r"search-(?:preview|api)\b")
"""OpenAI's chat completion models that search the web in each call, for a fee that depends on settings not in the response."""

_NO_USAGE = Cost(reason="The provider reports no usage.")
_PART_OF_USAGE = Cost(reason="The provider reports only a part of the usage.")


def cost_of(
    provider: str,
    model: str,
    usage: Usage,
    reported_usd: Decimal | None = None,
    *,
    at: datetime | None = None,
    address: str | None = None,
    several: bool = False,
    requested: str = "",
) -> Cost:
    """Return the cost of one call.

    `reported_usd` has precedence. Otherwise the price list applies: the prices of the server at `address`, or without an address those
    of the vendor named `provider`. If the list lacks the server, the model, the tier or the price of a charged part, the cost is
    unknown, with a `reason`; it is never 0, and never based on another price.

    `at` is the time of the call, or of the recording on replay: prices change by date, and some by the hour. None: the time is unknown;
    the cost is then known only if the price was always the same.

    `several` is True if the usage is the sum of several calls; it has no price if that depends on the length of each prompt.
    `requested` is the model of the request. At Hugging Face it names the server that answers; `model`, that of the answer, does not.

    A cache that is not reported counts as unused. Cache writes of unknown lifetime are charged at the shortest one: vendors with a
    longer one report it.
    """
    if reported_usd is not None:
        return Cost(reported_usd, CostSource.REPORTED)
    if usage.input_tokens is None or usage.output_tokens is None:
        return _NO_USAGE if usage.known_tokens == 0 else _PART_OF_USAGE
    book = _newest_book()
    at_router = address.startswith(_ROUTER) if address else provider == "huggingface"
    found = book.find(provider, requested or model, _ROUTER) if at_router else book.find(provider, model, address or "")
    if isinstance(found, Cost):
        return found
    seller, known = found
    tier = _prices_of_tier(seller, known, usage.service_tier)
    if several and usage.input_tokens > min(_steps_of(known), default=usage.input_tokens):
        return Cost(reason=f"The price of {known.id} depends on the length of each prompt, and only their sum is known.")
    costs = [_cost_at(moment, seller, known, tier, usage) for moment in ([at] if at else _moments(known, tier))]
    if any(cost != costs[0] for cost in costs):
        return Cost(reason=f"The price of {known.id} depends on the time of the call, which is not in the recording.")
    if costs[0].usd is None:
        return costs[0]
    return Cost(costs[0].usd, CostSource.PRICED, price_list=f"{book.name} (prices of {at:%Y-%m-%d})" if at else book.name)


def _cost_at(at: datetime, seller: Seller, model: ModelInfo, tier: list[PriceVariant] | None, usage: Usage) -> Cost:
    """Return the cost by the prices at this time."""
    days, hours = _conditions(model)
    if days and at.date() < days[-1] and any(one.active(at) for one in hours):
        return Cost(reason=f"The price list has no price of {model.id} at that hour before {days[-1]}.")
    prices = model.get_prices(at).__dict__
    served = [one for one in tier or () if one.constraint is None or one.constraint.active(at)]
    if why := _no_token_price(seller, model, prices, usage) or ("" if tier is None else _no_tier_price(served, prices, usage)):
        return Cost(reason=why)
    counts = {theirs: used for ours, theirs in _UNITS.items() if (used := getattr(usage, ours)) is not None}
    more = _no_price_beside_tokens(seller, model, prices, usage)
    if more:
        counts = {name: used for name, used in counts.items() if name.endswith("_tokens")}
    try:
        used = genai_prices.Usage(**counts)
        context = served[0].when if served else None
        usd = model.calc_price(used, seller, genai_request_timestamp=at, price_context=context).total_price
    except ValueError as error:  # a part is larger than the whole, or a part that the list needs is missing
        return Cost(reason=f"This usage of {model.id} cannot be priced: {error}.")
    return Cost(reason=more, at_least_usd=usd) if more else Cost(usd, CostSource.PRICED)


def _no_token_price(seller: Seller, model: ModelInfo, prices: Mapping[str, Any], usage: Usage) -> str:
    """Return why the tokens have no price; empty if they have one."""
    if why := _NO_EXACT_PRICE.get(seller.id):
        return f"{seller.name} has no exact price in the list: {why}."
    if "requests_kcount" in prices:
        return f"{model.id} has a charge per request that depends on settings which are not in the response."
    for name, (price, words) in _NEEDS_ITS_OWN_PRICE.items():
        used = getattr(usage, name)
        if used and price not in prices and not (name == "input_audio_tokens" and seller.id in _ONE_PRICE_FOR_ALL_INPUT):
            return f"The price list has no price for {words} of {model.id}."
        if used is None and usage.output_tokens and name.startswith("output_") and price in prices:
            return f"The price of {model.id} depends on {words}, which the response does not report."
    return ""


def _no_tier_price(served: list[PriceVariant], prices: Mapping[str, Any], usage: Usage) -> str:
    """Return why the service tier has no price for this usage; empty if it has one."""
    if usage.service_tier == "auto":
        return "The response does not name its service tier."
    known = {name: price for one in served for name, price in one.prices.__dict__.items()}
    for ours, theirs in _UNITS.items():
        standard = prices.get(name := theirs.replace("_tokens", "_mtok"))
        if not getattr(usage, ours) or standard is None:
            continue
        long = any((usage.input_tokens or 0) > step.start for step in getattr(standard, "tiers", ()))
        if name not in known or (long and not hasattr(known[name], "tiers")):
            prompts = " of long prompts" if name in known else ""
            return f"The price list has no price for {ours}{prompts} in the service tier {usage.service_tier}."
    return ""


def _no_price_beside_tokens(seller: Seller, model: ModelInfo, prices: Mapping[str, Any], usage: Usage) -> str:
    """Return why charges besides the tokens have no price; empty if they have one."""
    if usage.also_charged:
        return f"The price list has no price for charges besides the tokens: {', '.join(usage.also_charged)}."
    if usage.web_searches and (why := _NO_EXACT_SEARCH_PRICE.get(seller.id) or _NO_EXACT_SEARCH_PRICE.get(model.id)):
        return f"The price of the web searches is not known: {why}."
    if seller.id in ("openai", "azure", "openrouter") and _SEARCHES_ALWAYS.search(model.id):
        return f"{model.id} searches the web in each call, for a fee that depends on settings which are not in the response."
    for name, (price, words) in _SEARCHES.items():
        if getattr(usage, name) and price not in prices:
            return f"The price list has no price for {words} of {model.id}."
    return ""


def _prices_of_tier(seller: Seller, model: ModelInfo, tier: str | None) -> list[PriceVariant] | None:
    """Return the price changes of a service tier, empty if none are known; None for the standard tier."""
    word = (tier or "standard").lower()
    if word in _STANDARD_TIERS:
        return None
    word = _TIER_NAMES.get(word, word)
    if not any(model is one for one in seller.models):  # from another seller's list, whose tiers do not apply
        return []
    contexts = [{kind: word} for kind in ("service_tier", "processing", "speed")]
    return [one for one in model.price_variants or () if one.when in contexts and one.prices.__dict__]


def _steps_of(model: ModelInfo) -> Iterator[int]:
    """Yield the prompt lengths above which a model has other prices, now or earlier."""
    for prices in [model.prices] if isinstance(model.prices, ModelPrice) else [one.prices for one in model.prices]:
        for price in prices.__dict__.values():
            yield from (step.start for step in getattr(price, "tiers", ()))


def _moments(model: ModelInfo, tier: list[PriceVariant] | None) -> list[datetime]:
    """Return one moment in each period in which a model has its own prices."""
    days, hours = _conditions(model, tier)
    hours_of_change = {time(0), *(hour for one in hours for hour in (one.start_time, one.end_time))}
    return [datetime.combine(day, hour, hour.tzinfo or UTC) for day in [date.min, *days] for hour in hours_of_change]


def _conditions(model: ModelInfo, tier: list[PriceVariant] | None = None) -> tuple[list[date], list[TimeOfDateConstraint]]:
    """Return the days on which a model's prices changed, in order, and the hours that have their own prices."""
    found = [] if isinstance(model.prices, ModelPrice) else [one.constraint for one in model.prices]
    found += [one.constraint for one in tier or ()]
    days = sorted(one.start_date for one in found if isinstance(one, StartDateConstraint))
    return days, [one for one in found if isinstance(one, TimeOfDateConstraint)]


# The price list ------------------------------------------------------------------------------------------------------------


class _Book:
    """One edition of the price list, with a cache: a lookup without a result takes as long as a step of a run."""

    def __init__(self, newest: Callable[[], DataSnapshot]) -> None:
        self.newest = newest
        self.snapshot = newest()
        updated = f" updated {self.snapshot.timestamp:%Y-%m-%d}" if self.snapshot.from_auto_update else ""
        self.name = f"genai-prices {genai_prices.__version__}{updated}"
        self.find = lru_cache(maxsize=1024)(self._find)

    def _find(self, provider: str, model: str, address: str) -> tuple[Seller, ModelInfo] | Cost:
        """Return the seller and the model in the list, else an unknown cost with the reason."""
        if address == _ROUTER:
            model, _, server = model.partition(":")
            seller = next((one for one in self.snapshot.providers if server and one.id == f"huggingface_{server}"), None)
            if seller is None:
                return Cost(reason=f"The price depends on the server that answers. Name one that has prices: {model}:together.")
        elif address:
            seller = self._seller_at(address)
        else:
            name = PRICE_BOOK_NAMES.get(provider, provider)
            seller = next((one for one in self.snapshot.providers if one.id == name), None)
        if seller is None:
            label = f"the server {urllib.parse.urlsplit(address).hostname}" if address else f"the provider {provider!r}"
            return Cost(reason=f"The price list does not have {label}.")
        if _DEARER_IN_REGION.match(model) and _IN_REGION.match(address):
            return Cost(reason=f"The price list has only the price of {model} at Google Cloud's global address.")
        try:
            return self.snapshot.find_provider_model(_bare_model(seller.id, model), seller, None, None)
        except LookupError:
            return Cost(reason=f"The price list has no model {model!r} of {seller.name}.")

    def _seller_at(self, address: str) -> Seller | None:
        """Return the seller at an address. The list's patterns match prefixes, but here the whole host must match, so that a proxy
        whose host begins with a vendor's host is not mistaken for the vendor."""
        parts = urllib.parse.urlsplit(address)
        origin = f"{parts.scheme}://{parts.netloc}"
        origin = _SAME_SERVER.get(origin, origin)
        for seller in self.snapshot.providers:
            host = re.match(seller.api_pattern, origin)
            if host is not None:
                rest = origin[host.end() :]
                if not rest or (host.group().endswith(".") and rest.isalpha()):
                    return seller
            elif ".*" not in seller.api_pattern and re.match(seller.api_pattern, address):  # the pattern contains a path
                return seller
        return None


_books: list[_Book] = []


def _newest_book() -> _Book:
    """Return the current list, which the package may update."""
    if not _books or _books[0].snapshot is not _books[0].newest():
        _books[:] = [_Book(get_snapshot)]
    return _books[0]


def read_price_list() -> None:
    """Read the price list, which takes some time once in each process."""
    _newest_book()


def _bare_model(seller: str, model: str) -> str:
    """Return a model's name without the path of Google's API and of Bedrock's ARNs: `models/…`, `arn:aws:bedrock:…/…`."""
    has_path = (seller == "google" and "models/" in model) or (seller == "aws" and model.startswith("arn:"))
    return model.rpartition("/")[2] if has_path else model


# Names of models, for errors and completion ---------------------------------------------------------------------------------------

_VENDORS = ("openai", "anthropic", "gemini", "xai")


@cache
def models_of(provider: str) -> tuple[str, ...]:
    """Return the models of a provider by their names in the price list, without entries for many models; none without prices."""
    name = PRICE_BOOK_NAMES.get(provider, provider)
    sellers = (seller for seller in get_snapshot().providers if seller.id == name)
    return tuple(sorted({model.id for seller in sellers for model in seller.models if model.is_match(model.id)}))


def misspelling_hint(provider: str, model: str) -> str:
    """Return a hint to add to an error if the model's name is close to one in the price list; else ""."""
    meant = near(model, models_of(provider), 0.8)
    if not meant or _is_listed(provider, model):
        return ""
    return f" And the price list has no {model!r} of {provider}: did you mean {meant!r}?"


def vendor_of(model: str) -> str | None:
    """Return the provider of a model by the price list; None if unknown."""
    return next((one for one in _VENDORS if _is_listed(one, model)), None)


def _is_listed(provider: str, model: str) -> bool:
    return not isinstance(_newest_book().find(provider, model, ""), Cost)
