"""A run whose model needs no network: the cost of the loop itself, with its history, readings and recorder."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved, traced_mb
from tests.benchmarks.peers.setup import ROOT, peers_python
from tests.benchmarks.table import Row, attempt, least

SIZES = (10, 100, 1_000, 5_000)
PEERS = {"autogen": "autogen_loop", "smolagents": "smolagents_loop", "pydantic-ai": "pydantic_ai_loop"}


@dataclass(frozen=True, slots=True)
class Report:
    """The output of a peer's file: CPU microseconds per step by size, and megabytes at 1,000 steps (None: too slow to trace)."""

    us_per_step: dict[int, float]
    traced_mb: float | None


def floor(steps: int) -> Prepare:
    """The minimal agent loop: await the model, await the tool, append to a list."""

    async def model(messages: list[dict[str, str]]) -> dict[str, str]:
        return {"tool": "lookup", "key": "a"} if len(messages) < 2 * steps else {"text": "done"}

    async def lookup(key: str) -> str:
        return "value of " + key

    async def loop() -> None:
        messages = [{"text": "go"}]
        while "text" not in (answer := await model(messages)):
            messages.append(answer)
            messages.append({"result": await lookup(answer["key"])})
        assert len(messages) == 2 * steps + 1

    def ready() -> Thunk:
        return lambda: await_it(loop())

    return ready


def peers() -> dict[str, Report]:
    """Each peer's own figures, from a process in the peers' environment."""
    reports = {}
    for name, module in PEERS.items():
        command = [str(peers_python()), "-m", f"tests.benchmarks.peers.{module}"]
        printed = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        us_per_step = {int(steps): us for steps, us in printed["us_per_step"].items()}
        reports[name] = Report(us_per_step, printed["traced_mb"])
        print(f"  {name}:", ", ".join(f"{us:,.0f} us at {steps:,}" for steps, us in us_per_step.items()), flush=True)
    return reports


def ours(steps: int) -> Prepare:
    """An agent over a scripted provider, with a condition of five leaves, a budget, and the events that the recorder reads."""
    from agentlab import Agent, Budget, FinishReason, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs
    from agentlab.model.messages import ModelRequest, ToolCall
    from agentlab.model.responses import ModelResponse
    from agentlab.testing import ScriptedProvider, say

    async def lookup(key: str) -> str:
        """Look up a key."""
        return "value of " + key

    asks = say(finish=FinishReason.TOOL_CALLS, cost="0.0001")
    done = say("done", cost="0.0001")

    def answer(request: ModelRequest, number: int) -> ModelResponse:
        if number > steps:
            return done
        call = ToolCall(f"call_{number}", "lookup", '{"key": "a"}')
        return ModelResponse("", asks.signal, (call,), asks.usage, model="script", cost_usd=asks.cost_usd)

    budget = Budget(max_turns=steps + 1, max_tokens=10**9, max_cost=Decimal(10**6))
    agent = Agent(ScriptedProvider(answer), tools=[lookup], budget=budget)
    never = StepCountIs(10**6) | MaxTokensUsed(10**9) | MaxCost(10**6) | HasToolCall("finish") | FinishReasonIs("length")

    def ready() -> Thunk:
        run = agent.run("go", stop=never)

        def whole() -> None:
            result = await_it(run)
            assert result.text == "done", result
            assert len(result.history) == steps + 1, result

        return whole

    return ready


def growth() -> float:
    """Microseconds per step of one run of 5,000 steps, as a multiple of 50 runs of 100 steps: the same duration, so the same noise."""

    def many() -> Thunk:
        runs = [ours(100)() for _ in range(50)]
        return lambda: [run() for run in runs]

    taken = interleaved({"many": many, "one": ours(5_000)}, repeats=5)
    return taken["one"] / taken["many"]


def rows(with_peers: bool) -> Iterator[Row]:
    """Time per step at each size, its growth, and memory."""
    reports = peers() if with_peers else {}
    _, why_not = attempt(lambda: ours(10))
    candidates: dict[str, Callable[[int], Prepare]] = {"floor": floor} if why_not else {"floor": floor, "ours": ours}
    for steps in SIZES:
        taken = interleaved({name: of(steps) for name, of in candidates.items()}, repeats=15, seconds=4.0)
        best = least({name: report.us_per_step.get(steps) for name, report in reports.items()})
        has_goal = steps == 100
        yield Row(
            benchmark=f"scripted run, a step of {steps:,}",
            unit="us",
            goal="<= 1/10 of the fastest peer" if has_goal else "",
            at_most=1 / 10 if has_goal else None,
            floor=taken["floor"] / steps,
            peer=best,
            ours=taken["ours"] / steps if "ours" in taken else None,
            against=best.value if best else None,
            why_not=why_not,
        )
    yield Row(
        benchmark="scripted run, a step of 5,000 to one of 100",
        unit="x",
        goal="<= 1.15",
        at_most=1.15,
        peer=least({name: r.us_per_step[5_000] / r.us_per_step[100] for name, r in reports.items() if 5_000 in r.us_per_step}),
        ours=None if why_not else growth(),
        against=1.0,
        why_not=why_not,
    )
    yield Row(
        benchmark="scripted run, memory at 1,000",
        unit="MB",
        goal="<= 5 MB",
        at_most=1.0,
        floor=traced_mb(floor(1_000)),
        peer=least({name: report.traced_mb for name, report in reports.items()}),
        ours=None if why_not else traced_mb(ours(1_000)),
        against=5.0,
        why_not=why_not,
    )
