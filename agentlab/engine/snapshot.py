"""What a branch keeps of the run that it is forked from, and what a person puts in the place of some of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentlab.conversation import Conversation
from agentlab.errors import ConfigurationError
from agentlab.history import RunHistory
from agentlab.results import StepResult
from agentlab.types import FinishReason, Message, StopReason, ToolResult


@dataclass(frozen=True, slots=True)
class RunPrefix:
    """The beginning of a run, up to some step.

    `marks` are the lengths of the conversation after each step, `prompt_at` is the prompt's place in it, `first_length` its length
    before the first step.
    """

    prompt: str
    messages: Sequence[Message]
    history: RunHistory
    marks: tuple[int, ...]
    prompt_at: int
    first_length: int

    def until(self, at: int) -> RunPrefix:
        """The first `at` steps of it. Raises ConfigurationError where there are not so many."""
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(self.marks):
            raise ConfigurationError(f"fork(at={at!r}): give the number of steps to keep, 0 to {len(self.marks)}.")
        history = self.history.prefix(at)
        if history.last is not None:  # the reason why this run ended is none of the branch's
            history.amend(replace(history.last, stop_reason=None))
        length = self.marks[at - 1] if at else self.first_length
        return replace(self, messages=tuple(self.messages[:length]), history=history, marks=self.marks[:at])

    def with_prompt(self, prompt: str) -> RunPrefix:
        """With another prompt in the place of the run's own. Raises ConfigurationError for an empty one."""
        if not isinstance(prompt, str) or not prompt.strip():
            raise ConfigurationError(f"fork(prompt={prompt!r}): pass the task as text, or leave it out to keep the run's own.")
        before, after = self.messages[: self.prompt_at], self.messages[self.prompt_at + 1 :]
        return replace(self, prompt=prompt, messages=(*before, Message("user", prompt), *after))

    def with_message(self, message: str) -> RunPrefix:
        """With one more message of the person at its end. Raises ConfigurationError for an empty one."""
        if not isinstance(message, str) or not message.strip():
            raise ConfigurationError(f"fork(message={message!r}): pass what is said to the model as text, or leave it out.")
        return self._followed_by(Message("user", message))

    def with_tool_results(self, given: Mapping[str, str]) -> RunPrefix:
        """With other results of the newest step's tools, by the ids of their calls. Raises ConfigurationError for an id there is none
        of."""
        place, open_message = self._newest_tool_message()
        known = [result.call_id for result in open_message.tool_results]
        for call_id, text in given.items():
            if call_id not in known:
                step = f"Step {len(self.history)} has" if known else "The newest step that is kept has no tool call:"
                raise ConfigurationError(
                    f"fork(tool_results={{{call_id!r}: …}}): {step} {', '.join(map(repr, known)) or 'none'}."
                )
            if not isinstance(text, str):
                raise ConfigurationError(f"fork(tool_results={{{call_id!r}: {text!r}}}): pass what the model is told as text.")
        told = [_as_given(result, given) for result in open_message.tool_results]
        messages = list(self.messages)
        last = self.history.last
        if last is None or not given:
            return self
        messages[place] = replace(open_message, tool_results=tuple(told))
        executed = {result.call_id for result in last.tool_results}
        history = self.history.prefix(len(self.history))
        history.amend(replace(last, tool_results=tuple([one for one in told if one.call_id in executed or one.call_id in given])))
        return replace(self, messages=tuple(messages), history=history)

    def with_something_to_answer(self, hint: str) -> RunPrefix:
        """What the model can be asked to go on from: most providers refuse a conversation that ends with the model's own words.

        A cut answer is followed by the `hint` that asks for its rest; a turn that the provider paused is taken back as it is. Raises
        ConfigurationError where the model has had its say.
        """
        last, newest = self.history.last, self.messages[-1] if self.messages else None
        if last is None or newest is None or newest.role != "assistant" or not newest.text.strip():
            return self
        if last.finish_reason is FinishReason.PAUSED:
            return self
        if last.finish_reason is FinishReason.MAX_TOKENS and not _completed(last):
            return self._followed_by(Message("user", hint))
        at = len(self.history)
        raise ConfigurationError(
            f"fork(at={at}): with step {at} the model has had its say ({last.decision.reason.rstrip('.')}), so there is nothing to "
            f"ask it. Say more with message=…, or keep fewer steps (at={at - 1}), and step {at} is taken again."
        )

    def conversation(self) -> Conversation:
        """The messages as a conversation that can grow."""
        return Conversation(self.messages)

    def _followed_by(self, message: Message) -> RunPrefix:
        """The message belongs to what is kept: a branch of the branch at the same step has it too."""
        messages = (*self.messages, message)
        if not self.marks:
            return replace(self, messages=messages, first_length=len(messages))
        return replace(self, messages=messages, marks=(*self.marks[:-1], len(messages)))

    def _newest_tool_message(self) -> tuple[int, Message]:
        begin = self.marks[-2] if len(self.marks) > 1 else self.first_length
        places = range(len(self.messages) - 1, begin - 1, -1) if self.marks else ()
        found = next((place for place in places if self.messages[place].role == "tool"), None)
        return (0, Message("tool")) if found is None else (found, self.messages[found])


def _as_given(result: ToolResult, given: Mapping[str, str]) -> ToolResult:
    if result.call_id not in given:
        return result
    text = given[result.call_id]
    return replace(result, content=text, value=text, error=None, stop=None)


def _completed(step: StepResult) -> bool:
    return step.decision.stop_reason is StopReason.COMPLETED
