"""Routes whose bodies are strict JSON: FastAPI's parser takes NaN, and has other words for what it does not take."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from quasirnn.errors import shown
from quasirnn.files import unique_keys
from quasirnn.serving.api_errors import ApiError


class JsonRoute(APIRoute):
    """Parses the body before FastAPI does, which then validates these values."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            _check_type(request.headers.get("content-type", ""))
            values = parse(await request.body())
            return await handle(_ParsedRequest(request, values))

        return handle_json


class _ParsedRequest(Request):
    def __init__(self, request: Request, values: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._received, self._values = request, values

    async def body(self) -> bytes:
        return await self._received.body()

    async def json(self) -> Any:
        return self._values


def _check_type(kind: str) -> None:
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, f"Content-Type: must be application/json, got {shown(kind)}.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    try:
        return unique_keys(pairs)
    except ValueError as error:
        raise ApiError(400, f"the body is not sound JSON: {error}.") from None


def parse(body: bytes) -> Any:
    """JSON as the standard has it.

    Raises:
        ApiError: 400.
    """

    def no_constant(name: str) -> None:
        raise ApiError(400, f"the body is not JSON: {name} is no number there.")

    try:
        return json.loads(body.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start + 1} cannot be read.") from None
    except json.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}.") from None
    except RecursionError:
        raise ApiError(400, "the body cannot be read: it is nested too deeply.") from None
    except ValueError:
        raise ApiError(400, "the body cannot be read: a number in it has too many digits.") from None
