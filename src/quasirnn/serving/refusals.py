"""A request that is not served: a status, and one sentence that says why."""

from typing import Any


class Refused(Exception):
    """What the client is told: `{"error": sentence}`, and the field at fault where it is one."""

    def __init__(self, status: int, sentence: str, field: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.sentence, self.field, self.headers = status, sentence, field, headers

    @property
    def content(self) -> dict[str, Any]:
        return {"error": self.sentence} | ({} if self.field is None else {"field": self.field})


class ClientLeft(Exception):
    """There is nobody to answer any more."""


def too_late() -> Refused:
    return Refused(504, "the deadline has passed, and the work was stopped; ask for less, or try again later.")


def unfit(field: str, sentence: str) -> Refused:
    """A 422: what is wrong with a field, in words that follow its name."""
    return Refused(422, f"{field}: {sentence}", field.partition("[")[0])
