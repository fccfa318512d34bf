"""The FastAPI application: the endpoints of all tasks, the status, the model cards, the metrics and the web page."""

import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, create_model
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Scope

from quasirnn.serving.api import LIMITS, RESPONSES, ApiError, ClientDisconnected, describe
from quasirnn.serving.exchange import (
    BodyLimitMiddleware,
    EventStream,
    JsonRoute,
    Pieces,
    refusal,
    result,
    submit,
)
from quasirnn.serving.loaded import Models
from quasirnn.serving.telemetry import AccessLog, Telemetry
from quasirnn.serving.work import Work
from quasirnn.tasks.pipeline import Endpoint
from quasirnn.tasks.registry import all_tasks

# An event of a streaming endpoint, and the data of `piece`; that of `end` is the endpoint's own.
EVENT = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["piece", "end", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
PIECE = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The next piece of text."}},
    "required": ["text"],
}

# Groups of the documentation: the task of a path, or this.
SERVER = "server"
# For a task of which no model has an example.
FALLBACK_EXAMPLE = "a text"
# The errors of a request without a body.
GET_ERRORS: dict[int | str, Any] = {status: RESPONSES[status] for status in (400, 408, 413, 421, 500)}

# Files of the web page.
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
START, API = "index.html", "api.html"

logger = logging.getLogger("quasirnn.serving")


@dataclass(frozen=True)
class PageFile:
    content: bytes
    media_type: str


def make_app(
    models: Models,
    work: Work,
    deadline: float,
    page: dict[str, PageFile],
    hosts: set[str] | None = None,
    *,
    folder: Path | None = None,
    log: AccessLog | None = None,
) -> tuple[ASGIApp, Telemetry]:
    """The application, to be run by an ASGI server.

    Args:
        models: the models to serve.
        work: the queue for their jobs.
        deadline: seconds from the arrival of a request to its response.
        page: the files of the web page by name.
        hosts: what the Host header may name; None for anything.
        folder: where processes that serve the same socket share their metrics.
        log: gets a line for every response.
    """
    app = FastAPI(
        title="quasirnn",
        summary="Trained models: classify, continue and translate texts.",
        version=version("quasirnn"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    endpoints = [(task.name, endpoint) for task in all_tasks().values() for endpoint in task.endpoints]
    _add_error_handlers(app)
    _add_page(app, page)
    _add_status(app, models, work, deadline, [endpoint for _, endpoint in endpoints])
    _add_cards(app, models)
    for task, endpoint in endpoints:
        _add_endpoint(app, task, endpoint, models, work, deadline)
    telemetry = Telemetry((path for route in app.routes if (path := getattr(route, "path", None))), folder)

    # Not PlainTextResponse: the documentation would give its media type to the errors too.
    @app.get(
        "/metrics",
        tags=[SERVER],
        summary="Metrics in Prometheus format",
        response_class=Response,
        responses=GET_ERRORS | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        text = telemetry.text(work, [each.description for each in models.loaded])
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def ended(scope: Scope, status: int, size: int) -> None:
        path, seconds = scope["path"], time.monotonic() - scope["arrived"]
        telemetry.observe(path, status, seconds)
        if log is not None:
            request = {"client": client_of(Request(scope)), "method": scope["method"], "path": path}
            log.add(**request, status=status, seconds=round(seconds, 6), bytes=size)

    return BodyLimitMiddleware(app, hosts, lambda: work.closing, lambda: refusal(work), ended), telemetry


def _add_error_handlers(app: FastAPI) -> None:
    """Every error is JSON with one sentence."""

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        if error.status >= 500:
            logger.warning("%a: %d, %s", request.scope["path"], error.status, error.sentence)
        return JSONResponse(error.content, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        described = describe(error.errors())
        return JSONResponse(described.content, described.status)

    @app.exception_handler(ClientDisconnected)
    async def disconnected(request: Request, error: ClientDisconnected) -> Response:
        # Not sent to anyone.
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # Starlette raises it again after this, and the middleware logs it.
        return JSONResponse({"error": "internal error"}, 500)

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: "there is no such path; /docs lists them.",
            405: f"{request.method} is not for this path; /docs lists what is.",
        }
        return JSONResponse({"error": sentences.get(error.status_code, error.detail)}, error.status_code, error.headers)


def read_page() -> dict[str, PageFile]:
    """The files of the web page by name; none if they were not packaged. Only these names are served."""
    folder = files("quasirnn.serving") / "page"
    if not folder.is_dir():
        return {}
    return {
        file.name: PageFile(file.read_bytes(), PAGE_TYPES[suffix])
        for file in folder.iterdir()
        if file.is_file() and (suffix := "." + file.name.rpartition(".")[2]) in PAGE_TYPES
    }


def _add_page(app: FastAPI, page: dict[str, PageFile]) -> None:
    def answer(name: str) -> Response:
        if name not in page:
            raise ApiError(404, "the web page is not in this installation; the API is, see /openapi.json.")
        file = page[name]
        return Response(file.content, media_type=file.media_type, headers={"Cache-Control": "no-cache"})

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def start() -> Response:
        return answer(START)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def documentation() -> Response:
        return answer(API)

    # Looked up by name: no path of a request reaches the file system.
    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if page and name not in page:
            raise ApiError(404, "the web page has no such file.")
        return answer(name)


def _add_status(app: FastAPI, models: Models, work: Work, deadline: float, endpoints: list[Endpoint]) -> None:
    limits = dict(LIMITS)
    for endpoint in endpoints:
        limits |= endpoint.limits
    limits |= {"queue": work.capacity, "deadline": deadline}

    class Listing(BaseModel):
        models: list[dict[str, Any]] = Field(description="The loaded models, with examples of their input.")
        limits: dict[str, int | float] = Field(description="Limits of requests, by name.")
        version: str = Field(description="Version of quasirnn.")

    class Live(BaseModel):
        live: bool = Field(description="Always true.")

    class Ready(BaseModel):
        ready: bool = Field(description="false while the server shuts down.")
        queued: int = Field(description="Number of waiting requests.")
        active: int = Field(description="Number of requests being processed.")
        capacity: int = Field(description="Maximum number of waiting requests, for short and long ones each.")

    @app.get("/models", tags=[SERVER], summary="The loaded models, and the limits of requests", responses=GET_ERRORS)
    async def list_models() -> Listing:
        descriptions = [each.description for each in models.loaded]
        return Listing(models=descriptions, limits=limits, version=version("quasirnn"))

    @app.get("/health/live", tags=[SERVER], summary="Whether the server answers", responses=GET_ERRORS)
    async def live() -> Live:
        return Live(live=True)

    @app.get(
        "/health/ready",
        tags=[SERVER],
        summary="Whether the server accepts requests; 503 while it shuts down",
        responses=GET_ERRORS | {200: {"model": Ready}, 503: {"model": Ready}},
    )
    async def ready() -> Response:
        figures = {"queued": work.queued, "active": work.active, "capacity": work.capacity}
        return JSONResponse({"ready": not work.closing, **figures}, 503 if work.closing else 200)


def _add_cards(app: FastAPI, models: Models) -> None:
    example = next((each.name for each in models.loaded if each.readme is not None), "NAME")
    about = "The name of a loaded model, as in /models; `card` says whether it has one."
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": about}
    text = {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}}

    # Looked up by name as well.
    @app.get(
        "/card/{name}",
        tags=[SERVER],
        summary="The model card: data, results and limitations",
        response_class=Response,
        responses=GET_ERRORS | {200: text, 404: {**RESPONSES[404], "description": "No such model, or it has no card."}},
        openapi_extra={"parameters": [{**name, "example": example}]},
    )
    async def card(request: Request) -> Response:
        return Response(models.readme(request.path_params["name"]), media_type="text/markdown; charset=utf-8")


def _documented(endpoint: Endpoint) -> dict[str, Any]:
    """The response of an endpoint, for /openapi.json."""
    if not endpoint.stream:
        model: Any = (str, Field(description="The model that answered."))
        return {"model": create_model(endpoint.response.__name__, __base__=endpoint.response, model=model)}
    error = {**PIECE, "properties": {"status": {"type": "integer"}, "error": {"type": "string"}}, "required": ["error"]}
    events = {"piece": PIECE, "end": endpoint.response.model_json_schema(), "error": error}
    return {
        "description": "Events: piece, ..., piece, end; or error, if an error occurs after the first.",
        "content": {EventStream.media_type: {"schema": EVENT | {"x-events": events}}},
    }


def client_of(request: Request) -> str | None:
    """The client's address; for a proxy, which connects by a Unix socket, the last one in its X-Forwarded-For."""
    if request.client is not None:
        return request.client.host
    return request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or None


def _add_endpoint(app: FastAPI, task: str, endpoint: Endpoint, models: Models, work: Work, deadline: float) -> None:
    async def answer(request: Request, body: Any) -> Response:
        loaded = models.find(task, body.model)
        job = loaded.job(endpoint, body, request.scope["arrived"] + deadline, client_of(request))
        submit(work, job)
        return Response(await result(work, job, request.receive), media_type="application/json")

    async def stream(request: Request, body: Any) -> Response:
        loaded = models.find(task, body.model)
        pieces = Pieces()
        job = loaded.job(endpoint, body, request.scope["arrived"] + deadline, client_of(request), pieces.put)
        job.future.add_done_callback(lambda future: pieces.put(None))
        submit(work, job)
        return EventStream(work, job, pieces)

    route: Callable[[Request, Any], Awaitable[Response]] = stream if endpoint.stream else answer
    # FastAPI reads the type of the body from the signature.
    parameters = [
        inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request),
        inspect.Parameter("body", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=endpoint.request),
    ]
    route.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body: dict[str, Any] = {}
    if endpoint.example is not None:
        examples = (text for each in models.loaded if each.task == task for text in each.examples if text)
        text = next(examples, FALLBACK_EXAMPLE)
        body = {"requestBody": {"content": {"application/json": {"example": endpoint.example(text)}}}}
    app.router.add_api_route(
        endpoint.path,
        route,
        methods=["POST"],
        tags=[task],
        summary=endpoint.summary,
        operation_id=endpoint.path[1:],
        name=endpoint.path,
        responses=RESPONSES | {200: _documented(endpoint)},
        # The documentation would give the media type of another class to the errors too.
        response_class=Response if endpoint.stream else JSONResponse,
        route_class_override=JsonRoute,
        openapi_extra=body,
    )
