"""What a call cost: as the provider reports it, else by public prices, else unknown. No network: the price list is a package's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentlab.types import Cost, CostSource, Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, PriceVariant, TimeOfDateConstraint
    from genai_prices.types import Provider as Seller

PRICE_BOOK_NAMES: Mapping[str, str] = {
    "openai": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "bedrock": "aws",
    "azure": "azure",
    "azure-responses": "azure",
    "openrouter": "openrouter",
    "openrouter-responses": "openrouter",
    "xai": "x-ai",
    "xai-responses": "x-ai",
}
"""Our provider names in the price list (the package genai-prices), where the vendor's own address was asked. A provider that is not
here is looked up by its own name, exactly. `compatible` has no price but by its address."""

# What has which price --------------------------------------------------------------------------------------------------------

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
"""Each count of `Usage` under the price list's name. What has no price there is charged as the kind it is a part of: cache reads,
images and video as input, reasoning as output. The next table has the exceptions."""

_NEEDS_ITS_OWN_PRICE = {
    "input_tokens": ("input_mtok", "the input"),
    "output_tokens": ("output_mtok", "the output"),
    "cache_write_1h_tokens": ("cache_write_1h_mtok", "cache writes kept for an hour"),
    "input_audio_tokens": ("input_audio_mtok", "audio in the input"),
    "output_audio_tokens": ("output_audio_mtok", "audio in the output"),
    "output_image_tokens": ("output_image_mtok", "images in the output"),
}
"""Tokens that cost something else than the kind they are a part of: without a price of their own the cost is unknown."""

_SEARCHES = {
    "web_searches": ("web_searches_kcount", "web searches"),
    "file_searches": ("storage_searches_kcount", "file searches"),
}
"""What is charged by the piece."""

_ONE_PRICE_FOR_ALL_INPUT = ("google",)
"""Sellers whose pages give audio a price where it differs from that of text."""

_STANDARD_TIERS = frozenset({"default", "standard", "on_demand", "unspecified", "traffic_type_unspecified"})
_TIER_NAMES = {"on_demand_flex": "flex", "on_demand_priority": "priority"}

_NO_EXACT_PRICE = {
    "zhipuai": "the list has only its lowest step, and it charges by the length of the prompt",
    "databricks": "its price depends on the region",
    "modal": "a server of your own there is charged by its time",
}
"""Sellers for which the list has an estimate only."""

_NO_EXACT_SEARCH_PRICE = {
    "google": "Google charges for them behind a free allowance of the account",
    "gpt-4o-mini": "this model is charged 8,000 tokens of input for each",
    "gpt-4.1-mini": "this model is charged 8,000 tokens of input for each",
}
"""Sellers and models of which the number of web searches does not give their price."""

_SEARCHES_ALWAYS = re.compile(r"search-(?:preview|api)\b")
"""OpenAI's models over chat completions that search the web in each call, for a fee by settings that the response does not say."""


_NO_USAGE = Cost(reason="The provider reports no usage.")
_PART_OF_USAGE = Cost(reason="The provider reports a part of the usage only.")


def cost_of(
    provider: str,
    model: str,
    usage: Usage,
    reported_usd: Decimal | None = None,
    *,
    at: datetime | None = None,
    address: str | None = None,
    several: bool = False,
) -> Cost:
    """The cost of one call.

    `reported_usd` wins where the provider gave it. Else the prices of genai-prices hold, for who was asked: the server at `address`,
    or without one the vendor's own under the name `provider`. The cost is unknown, never 0 and never the price of something else, where
    the list does not know the server, the model or the tier, or has no price for a part of what is charged; `reason` says which.

    `at` is when the call was made, also of a replay: prices change by the date, and some by the hour. None is a recording that does not
    say when it was made: it has a cost where the list has one price for all times.

    `several` says that the usage is the sum of several calls, which has no price where that depends on the length of each prompt.

    A cache that is not reported counts as unused. What was written to one counts as kept for the shortest time where the response does
    not say for how long: vendors that sell a longer time report it.
    """
    if reported_usd is not None:
        return Cost(reported_usd, CostSource.REPORTED)
    if usage.input_tokens is None or usage.output_tokens is None:
        return _NO_USAGE if usage.known_tokens == 0 else _PART_OF_USAGE
    book = _newest_book()
    found = book.find(provider, model, address or "")
    if isinstance(found, Cost):
        return found
    seller, known = found
    tier = _prices_of_tier(seller, known, usage.service_tier)
    if several and usage.input_tokens > min(_steps_of(known), default=usage.input_tokens):
        return Cost(reason=f"The price of {known.id} depends on the length of each prompt, and only their sum is known.")
    costs = [_cost_at(moment, seller, known, tier, usage) for moment in ([at] if at else _moments(known, tier))]
    if any(cost != costs[0] for cost in costs):
        return Cost(reason=f"The price of {known.id} depends on the time of the call, which the recording does not say.")
    if costs[0].usd is None:
        return costs[0]
    return Cost(costs[0].usd, CostSource.PRICED, price_list=f"{book.name} (prices of {at:%Y-%m-%d})" if at else book.name)


def _cost_at(at: datetime, seller: Seller, model: ModelInfo, tier: list[PriceVariant] | None, usage: Usage) -> Cost:
    """The cost by the prices of a moment."""
    import genai_prices

    days, hours = _conditions(model)
    if days and at.date() < days[-1] and any(one.active(at) for one in hours):
        return Cost(reason=f"The price list does not say what {model.id} cost at that hour before {days[-1]}.")
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
    except ValueError as error:  # parts that are more than the whole, or that the list needs and the response does not say
        return Cost(reason=f"The price list cannot price this usage of {model.id}: {error}.")
    return Cost(reason=more, at_least_usd=usd) if more else Cost(usd, CostSource.PRICED)


def _no_token_price(seller: Seller, model: ModelInfo, prices: Mapping[str, Any], usage: Usage) -> str:
    """Why the tokens have no price; empty where they have."""
    if why := _NO_EXACT_PRICE.get(seller.id):
        return f"{seller.name} has no exact price in the list: {why}."
    if "requests_kcount" in prices:
        return f"{model.id} is charged for each request by settings that the response does not say."
    for name, (price, words) in _NEEDS_ITS_OWN_PRICE.items():
        used = getattr(usage, name)
        if used and price not in prices and not (name == "input_audio_tokens" and seller.id in _ONE_PRICE_FOR_ALL_INPUT):
            return f"The price list has no price for {words} of {model.id}."
        if used is None and usage.output_tokens and name.startswith("output_") and price in prices:
            return f"The price of {model.id} depends on {words}, which the response does not count."
    return ""


def _no_tier_price(served: list[PriceVariant], prices: Mapping[str, Any], usage: Usage) -> str:
    """Why a service tier has no price for what was used; empty where it has."""
    if usage.service_tier == "auto":
        return "The response does not say which service tier served it."
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
    """Why what is charged beside the tokens has no price; empty where it has."""
    if usage.also_charged:
        return f"The price list has no price for what is charged beside the tokens: {', '.join(usage.also_charged)}."
    if usage.web_searches and (why := _NO_EXACT_SEARCH_PRICE.get(seller.id) or _NO_EXACT_SEARCH_PRICE.get(model.id)):
        return f"The price of the web searches is not known: {why}."
    if seller.id in ("openai", "azure", "openrouter") and _SEARCHES_ALWAYS.search(model.id):
        return f"{model.id} is charged for a web search in each call, by settings that the response does not say."
    for name, (price, words) in _SEARCHES.items():
        if getattr(usage, name) and price not in prices:
            return f"The price list has no price for {words} of {model.id}."
    return ""


def _prices_of_tier(seller: Seller, model: ModelInfo, tier: str | None) -> list[PriceVariant] | None:
    """What a service tier changes in the prices of a model, maybe nothing that is known; None for the standard tier."""
    word = (tier or "standard").lower()
    if word in _STANDARD_TIERS:
        return None
    word = _TIER_NAMES.get(word, word)
    if not any(model is one for one in seller.models):  # of another seller's list, whose tiers say nothing here
        return []
    contexts = [{kind: word} for kind in ("service_tier", "processing", "speed")]
    return [one for one in model.price_variants or () if one.when in contexts and one.prices.__dict__]


def _steps_of(model: ModelInfo) -> Iterator[int]:
    """The lengths of a prompt above which a model has other prices, now or earlier."""
    from genai_prices.types import ModelPrice

    for prices in [model.prices] if isinstance(model.prices, ModelPrice) else [one.prices for one in model.prices]:
        for price in prices.__dict__.values():
            yield from (step.start for step in getattr(price, "tiers", ()))


def _moments(model: ModelInfo, tier: list[PriceVariant] | None) -> list[datetime]:
    """A moment for each time at which the prices of a model may differ."""
    days, hours = _conditions(model, tier)
    hours_of_change = {time(0), *(hour for one in hours for hour in (one.start_time, one.end_time))}
    return [datetime.combine(day, hour, hour.tzinfo or UTC) for day in [date.min, *days] for hour in hours_of_change]


def _conditions(model: ModelInfo, tier: list[PriceVariant] | None = None) -> tuple[list[date], list[TimeOfDateConstraint]]:
    """The days from which a model had other prices, in order, and the hours at which it has."""
    from genai_prices.types import ModelPrice, StartDateConstraint, TimeOfDateConstraint

    found = [] if isinstance(model.prices, ModelPrice) else [one.constraint for one in model.prices]
    found += [one.constraint for one in tier or ()]
    days = sorted(one.start_date for one in found if isinstance(one, StartDateConstraint))
    return days, [one for one in found if isinstance(one, TimeOfDateConstraint)]


# The price list ------------------------------------------------------------------------------------------------------------


class _Book:
    """One edition of the price list, and what was looked up in it: looking in vain takes as long as a whole step of a run."""

    def __init__(self, newest: Callable[[], DataSnapshot]) -> None:
        import genai_prices

        self.newest = newest
        self.snapshot = newest()
        updated = f" updated {self.snapshot.timestamp:%Y-%m-%d}" if self.snapshot.from_auto_update else ""
        self.name = f"genai-prices {genai_prices.__version__}{updated}"
        self.find = lru_cache(maxsize=1024)(self._find)

    def _find(self, provider: str, model: str, address: str) -> tuple[Seller, ModelInfo] | Cost:
        """Who sells the model, and the model in the list; else an unknown cost that says why it is not there."""
        if address:
            seller = self._seller_at(address)
        else:
            name = PRICE_BOOK_NAMES.get(provider, provider)
            seller = next((one for one in self.snapshot.providers if one.id == name), None)
        if seller is None:
            who = f"the server {urlsplit(address).hostname}" if address else f"the provider {provider!r}"
            return Cost(reason=f"The price list does not know {who}.")
        try:
            return self.snapshot.find_provider_model(_bare_model(seller.id, model), seller, None, None)
        except LookupError:
            return Cost(reason=f"The price list has no model {model!r} of {seller.name}.")

    def _seller_at(self, address: str) -> Seller | None:
        """Who serves at an address. The list matches beginnings: here the host must match to its end, so that a proxy with a vendor's
        address in its own is not taken for the vendor."""
        parts = urlsplit(address)
        origin = f"{parts.scheme}://{parts.netloc}"
        for seller in self.snapshot.providers:
            host = re.match(seller.api_pattern, origin)
            if host is not None:
                rest = origin[host.end() :]
                if not rest or (host.group().endswith(".") and rest.isalpha()):
                    return seller
            elif ".*" not in seller.api_pattern and re.match(seller.api_pattern, address):  # with a path in it
                return seller
        return None


_books: list[_Book] = []


def _newest_book() -> _Book:
    """The list as it is now: the package may have been asked to keep it up to date."""
    if not _books or _books[0].snapshot is not _books[0].newest():
        from genai_prices.data_snapshot import get_snapshot

        _books[:] = [_Book(get_snapshot)]
    return _books[0]


def _bare_model(seller: str, model: str) -> str:
    """A model's name without the path that Google's API and Bedrock's ARNs put before it: `models/…`, `arn:aws:bedrock:…/…`."""
    has_path = (seller == "google" and "models/" in model) or (seller == "aws" and model.startswith("arn:"))
    return model.rpartition("/")[2] if has_path else model


# Names: a model that was mistyped is nearly one of the book's. Only errors and completion ask, since that loads the book.

_VENDORS = ("openai", "anthropic", "gemini", "xai")


@cache
def models_of(provider: str) -> tuple[str, ...]:
    """The models of a provider that have a price; none for one that is in no book. Loads the book."""
    from genai_prices import data_snapshot

    wanted = PRICE_BOOK_NAMES.get(provider, provider)
    known = (one for one in data_snapshot.get_snapshot().providers if one.id == wanted)
    return tuple(sorted({model.id for one in known for model in one.models}))


def perhaps_mistyped(provider: str, model: str) -> str:
    """What an error adds about a model that the book does not know, and that is nearly one it does; else nothing."""
    near = get_close_matches(model, models_of(provider), n=1, cutoff=0.8)
    if not near or _is_listed(provider, model):
        return ""
    return f" And the price book has no {model!r} of {provider}: did you mean {near[0]!r}?"


def vendor_of(model: str) -> str | None:
    """The provider whose model this is, by the book; None where that is not known."""
    return next((one for one in _VENDORS if _is_listed(one, model)), None)


def _is_listed(provider: str, model: str) -> bool:
    return not isinstance(_newest_book().find(provider, model, ""), Cost)
