"""Uses the core and asks for all that needs the notebook toolkit: `python core_program.py REPOSITORY`, in any environment.

Prints JSON: the end of a replayed run, of a stored one and of an experiment, and by public name the error where one is not available.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import agentlab as lab

TRIP = Path(sys.argv[1], "fixtures", "trip")


def get_weather(city: str, day: str) -> dict[str, object]:
    """The weather forecast for a city."""
    return {"city": city, "sky": "rain", "high_c": 17}


def finalize(answer: str) -> str:
    """Hand in the final answer."""
    return answer


def asked(code: str, names: dict[str, object]) -> str:
    """The type and the message of the error that an expression raises, or its value as text."""
    try:
        return str(eval(code, {"lab": lab, **names}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def main() -> dict[str, object]:
    """Replay, store, resume and repeat a run."""
    agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[get_weather, finalize], instructions="Plan day trips.")
    stop = lab.HasToolCall("finalize") | lab.StepCountIs(8)
    with tempfile.TemporaryDirectory() as folder, lab.Store(Path(folder, "runs.db")) as store:
        with lab.replay(TRIP, match="order"):
            run = agent.run("Graz or Salzburg?", stop=stop, budget=lab.Budget(max_cost=0.05), observers=[store])
        result = await run
        stored = store.load(run.id)
        with lab.replay(TRIP, match="order"):
            study = lab.Experiment([agent], ["Graz or Salzburg?"], settings=[{"stop": lab.StepCountIs(2)}])
            results = await study.run(progress=False)
        names: dict[str, object] = {"run": run, "result": result, "store": store, "results": results}
        expressions = [
            "result.to_frame()", "run.to_frame()", "store.frame()", "results.runs", "lab.plots.cost(result)",
            "run.panel()", "run.to_html()", "lab.browse(store)",
        ]  # fmt: skip
        if sys.platform == "linux":  # elsewhere the core has psutil
            expressions.append("lab.scorers.Code")
        return {
            "ended": str(result.stop_reason),
            "steps": len(result.history),
            "usd": str(result.cost.usd),
            "stored": str(stored.result and stored.result.stop_reason),
            "experiment": repr(results),
            "detected": lab.detect("gemini", {"candidates": [{"finishReason": "STOP", "content": {"parts": []}}]}).raw_value,
            "shown": result._repr_mimebundle_()["text/plain"],
            "expressions": {code: asked(code, names) for code in expressions},
            "names": {name: asked(f"lab.{name} and ''", {}) for name in lab.__all__},
        }


print(json.dumps(asyncio.run(main())))
