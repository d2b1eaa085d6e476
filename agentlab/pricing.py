"""What a call cost: as the provider reports it, else by public prices, else unknown. No network: the price data is a package's own."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache, lru_cache

from agentlab.types import Cost, CostSource, Usage

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
"""Our provider names in the price book (the package genai-prices). A provider that is not here is looked up by its own name, exactly;
`compatible` is in no book: who answers at an address, and for how much, is not known."""

_UNKNOWN = Cost()


def cost_of(provider: str, model: str, usage: Usage, reported_usd: Decimal | None = None) -> Cost:
    """The cost of one call.

    `reported_usd` wins where the provider gave it. A model that the price book does not know, and usage that is not known, have
    an unknown cost: None, never 0. `usage` is by the one convention, so the book is asked for all output, reasoning included, and for
    input of which the cached part has a price of its own; a cache that is not reported counts as unused, and what was written to one
    is priced as kept for the shortest time.
    """
    if reported_usd is not None:
        return Cost(reported_usd, CostSource.REPORTED)
    if usage.input_tokens is None or usage.output_tokens is None:
        return _UNKNOWN
    provider = PRICE_BOOK_NAMES.get(provider, provider)
    model = _bare_model(provider, model)
    if not _is_in_the_book(provider, model):
        return _UNKNOWN
    import genai_prices

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        priced = genai_prices.calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):  # no price for this use of the model
        return _UNKNOWN
    return Cost(priced.total_price, CostSource.PRICED)


def _bare_model(provider: str, model: str) -> str:
    """A model's name without the path that Google's API and Bedrock's ARNs put before it: `models/…`, `arn:aws:bedrock:…/…`."""
    has_path = (provider == "google" and "models/" in model) or (provider == "aws" and model.startswith("arn:"))
    return model.rpartition("/")[2] if has_path else model


@lru_cache(maxsize=1024)
def _is_in_the_book(provider: str, model: str) -> bool:
    """Whether the price book knows the model; kept, since looking in vain takes as long as a whole step of a run."""
    import genai_prices
    from genai_prices import data_snapshot

    if all(known.id != provider for known in data_snapshot.get_snapshot().providers):
        return False  # the book itself would take any name with another one in it, such as my-openai-proxy
    try:
        genai_prices.calc_price(genai_prices.Usage(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except (LookupError, ValueError):
        return False
    return True


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
    name = PRICE_BOOK_NAMES.get(provider, provider)
    near = get_close_matches(model, models_of(provider), n=1, cutoff=0.8)
    if not near or _is_in_the_book(name, _bare_model(name, model)):
        return ""
    return f" And the price book has no {model!r} of {provider}: did you mean {near[0]!r}?"


def vendor_of(model: str) -> str | None:
    """The provider whose model this is, by the book; None where that is not known."""
    return next((one for one in _VENDORS if _is_in_the_book(PRICE_BOOK_NAMES[one], model)), None)
