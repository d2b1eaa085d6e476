"""Makes real .eval logs by running Inspect itself, with its model for tests: `python make_inspect_logs.py FOLDER`."""

from __future__ import annotations

import sys

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, includes, mean, scorer
from inspect_ai.solver import Generate, TaskState, generate, solver, use_tools
from inspect_ai.tool import ToolError, tool


@tool
def look():
    async def execute(q: str) -> str:
        """Look something up.

        Args:
            q: what
        """
        if q == "broken":
            raise ToolError("nothing there")
        return f"seen {q}"

    return execute


def used(output: ModelOutput, *numbers: int, cost: float | None = None, **more: int) -> ModelOutput:
    tokens_in, tokens_out = numbers
    total = tokens_in + tokens_out + sum(more.get(name, 0) for name in ("input_tokens_cache_read", "input_tokens_cache_write"))
    output.usage = ModelUsage(input_tokens=tokens_in, output_tokens=tokens_out, total_tokens=total, total_cost=cost, **more)
    return output


def model(*outputs: ModelOutput, times: int = 1):
    return get_model("mockllm/model", custom_outputs=list(outputs) * times)


def asked(name: str, **arguments: str) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", name, arguments)


def model_output(text: str, why: str = "stop") -> ModelOutput:
    return ModelOutput.from_content("mockllm/model", text, stop_reason=why)


@scorer(metrics=[mean()])
def length():
    async def score(state: TaskState, target) -> Score:
        return Score(value=len(state.output.completion))

    return score


@scorer(metrics=[accuracy()])
def graded():
    async def score(state: TaskState, target) -> Score:
        await get_model("mockllm/model", custom_outputs=[used(model_output("GRADE: C"), 900, 9)]).generate("grade this")
        return Score(value="P")

    return score


@solver
def raises():
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        raise RuntimeError("the solver broke")

    return solve


SAMPLE = [Sample(id="capital", input="What is the capital of France?", target="Paris")]


def main(folder: str) -> None:
    def run(name: str, llm, of: Task, **more) -> None:
        eval(of, model=llm, log_dir=folder, display="none", log_format="eval", fail_on_error=False, **more)

    tools = [asked("look", q="France"), asked("look", q="broken")]
    sizes = [
        used(tools[0], 10, 5, input_tokens_cache_read=100, input_tokens_cache_write=7),
        used(tools[1], 20, 6, reasoning_tokens=4),
        used(model_output("It is Paris."), 30, 8),
    ]
    run(
        "epochs",
        model(*sizes, times=2),
        Task(SAMPLE, name="epochs", solver=[use_tools(look()), generate()], scorer=includes()),
        epochs=2,
        max_samples=1,
    )
    loop = [used(asked("look", q=str(n)), 10, 10) for n in range(20)]
    run(
        "messages",
        model(*loop),
        Task(SAMPLE, name="messages", solver=[use_tools(look()), generate()], scorer=includes(), message_limit=6),
    )
    run(
        "tokens",
        model(*loop),
        Task(SAMPLE, name="tokens", solver=[use_tools(look()), generate()], scorer=includes(), token_limit=50),
    )
    run("error", model(used(model_output("so far"), 3, 4)), Task(SAMPLE, name="error", solver=raises(), scorer=includes()))
    run(
        "cut",
        model(used(model_output("It is Pa", "max_tokens"), 3, 4)),
        Task(SAMPLE, name="cut", solver=generate(), scorer=[includes(), length(), graded()]),
    )
    submit = [used(asked("look", q="x"), 4, 5), used(asked("submit", answer="Paris"), 6, 7)]
    run("react", model(*submit), Task(SAMPLE, name="react", solver=react(tools=[look()]), scorer=includes()))
    run(
        "paid",
        model(used(model_output("Paris"), 3, 4, cost=0.25)),
        Task(SAMPLE, name="paid", solver=generate(), scorer=includes()),
    )


if __name__ == "__main__":
    main(sys.argv[1])
