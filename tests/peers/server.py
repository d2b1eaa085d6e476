"""A provider on loopback that gives every framework the same answers: chat completions, and Responses for frameworks that need it.

The address is `/SCENARIO/WHO/v1`, so that each framework has its own address in each scenario; `GET …/asked` returns the number of
requests. The answers are those of the synthetic fixtures, changed only where the scenario requires it.
"""

from __future__ import annotations

import copy
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

FIXTURES = Path(__file__).parents[2] / "fixtures"
Body = dict[str, Any]


def answers_of(fixture: str) -> list[Body]:
    """The bodies of a cassette, in order."""
    cassette = yaml.safe_load((FIXTURES / fixture).read_text(encoding="utf-8"))
    return [json.loads(one["response"]["body"]["string"]) for one in cassette["interactions"]]


def scenarios() -> dict[str, list[Body]]:
    """The answers of each scenario, one body per request; the last is repeated for further requests."""
    endless = answers_of("runaway/openai.yaml")
    answer = answers_of("question/openai.yaml")[-1]
    half_call = answers_of("rare/openai-half-call-at-the-cap.yaml")[0]
    before_its_arguments = copy.deepcopy(half_call)
    before_its_arguments["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = ""
    cut, whole = answers_of("essay/openai.yaml")
    rest = copy.deepcopy(whole)
    rest["choices"][0]["message"]["content"] = "THE-REST."
    uncounted = {name: value for name, value in answer.items() if name != "usage"}
    long = ("limit", "which", "tokens", "edit", "step", "fork", "killed", "sub_agent")
    return {
        **dict.fromkeys(long, endless),
        "no_usage": [uncounted],
        "cut_call": [half_call, answer],
        "cut_before_arguments": [before_its_arguments, answer],
        "cut_text": [cut, rest],
    }


def as_response(body: Body) -> Body:
    """The same answer in the format of the Responses API."""
    choice = body["choices"][0]
    message, cut = choice["message"], choice["finish_reason"] == "length"
    status = "incomplete" if cut else "completed"
    output: list[Body] = []
    if message.get("content"):
        content = [{"type": "output_text", "text": message["content"], "annotations": [], "logprobs": []}]
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content})
    for call in message.get("tool_calls") or ():
        output.append(
            {"type": "function_call", "id": "fc_" + call["id"], "call_id": call["id"], "status": status, **call["function"]}
        )
    usage = body.get("usage")
    counted = usage and {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
    made = {"id": body["id"], "object": "response", "created_at": body["created"], "model": body["model"], "status": status}
    fixed = {"error": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0}
    why = {"incomplete_details": {"reason": "max_output_tokens"} if cut else None}
    asked = {"tool_choice": "auto", "tools": [], "presence_penalty": 0, "frequency_penalty": 0, "completed_at": body["created"]}
    return {**made, **fixed, **why, **asked, "output": output, **({"usage": counted} if counted else {})}


def as_events(response: Body) -> bytes:
    """A minimal Responses stream: its start, its items and its end."""
    begun = {**response, "status": "in_progress", "output": [], "completed_at": None}
    events: list[Body] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(response["output"]):
        events += [{"type": f"response.output_item.{at}", "output_index": index, "item": item} for at in ("added", "done")]
    events.append({"type": f"response.{response['status']}", "response": response})
    lines = [
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    ]
    return "".join(lines).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        place, _, _ = self.path.partition("/v1")
        body = self.server.next_answer(place)
        if not self.path.endswith("/responses"):
            self.reply("application/json", json.dumps(body).encode())
        elif sent.get("stream"):
            self.reply("text/event-stream", as_events(as_response(body)))
        else:
            self.reply("application/json", json.dumps(as_response(body)).encode())

    def do_GET(self) -> None:
        place, _, _ = self.path.partition("/v1")
        self.reply("application/json", json.dumps(self.server.asked[place]).encode())

    def reply(self, kind: str, body: bytes) -> None:
        self.send_response_only(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[str] = Counter()
        self._answers = scenarios()
        self._one_at_a_time = threading.Lock()

    def next_answer(self, place: str) -> Body:
        answers = self._answers[place.split("/")[1]]
        with self._one_at_a_time:
            at, self.asked[place] = self.asked[place], self.asked[place] + 1
        return answers[min(at, len(answers) - 1)]


@contextmanager
def running() -> Iterator[str]:
    """The root address of a server that runs until the block ends."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
