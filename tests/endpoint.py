"""A real HTTP server on this machine that speaks the chat-completions API, scripted reply by reply."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What the server does with one request: wait, then send a status, headers and a JSON body (or raw bytes)."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Endpoint:
    """The server: gives `answers` in order, the last one over and over, or what `script` makes of a request's body.

    `seen` is what it was asked, with the time.
    """

    url: str = ""
    script: Callable[[dict[str, Any]], Answer] | None = None
    answers: list[Answer] = field(default_factory=list)
    seen: list[tuple[str, dict[str, Any], dict[str, str], float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        with self.lock:
            self.seen.append((path, body, headers, time.monotonic()))
            if self.script is not None:
                return self.script(body) if body else reply()  # without a body it is asked for its models
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def reply(content: str | None = "4", finish_reason: str | None = "stop", **more: Any) -> Answer:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return Answer(
        body={"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], **more}
    )


def refusal(status: int, message: str = "no", code: str | None = None, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"error": {"message": message, "type": "t", "code": code}}, names)


@contextmanager
def serve(state: Endpoint) -> Iterator[Endpoint]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            answer = state.take(self.path, body, {name.lower(): value for name, value in self.headers.items()})
            state.closing.wait(answer.seconds)
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            try:
                self.send_response(answer.status)
                for name, value in {"content-type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the caller has given up
                self.close_connection = True

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
