"""A sender whose merchant answers as the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhooks.model import Answer, Refusal, Silence

Result = Answer | Silence | Refusal | Exception


@dataclass(frozen=True)
class Post:
    """What went out."""

    url: str
    headers: Mapping[str, str]
    body: bytes


class FakeSender:
    """Answers 200 until told otherwise; `meanwhile` happens while a request is out."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self._results: list[Result] = [Answer(200)]

    def answers(self, *results: Result | int) -> None:
        """Answer these, one after the other; the last one again and again. An error is raised."""
        self._results = [Answer(result) if isinstance(result, int) else result for result in results]

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer | Silence | Refusal:
        """As Sender.post."""
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, Exception):
            raise result
        if not isinstance(result, Refusal):
            self.posts.append(Post(url, headers, body))
        self.meanwhile()
        return result
