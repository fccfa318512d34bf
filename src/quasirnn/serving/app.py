"""The paths of the server. Those that work are the tasks' endpoints; here they are given to FastAPI."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from quasirnn.serving.api_errors import RESPONSES, ApiError, ClientDisconnected, describe
from quasirnn.serving.body import BodyLimitMiddleware
from quasirnn.serving.events import EventStream
from quasirnn.serving.json_route import JsonRoute
from quasirnn.serving.limits import LIMITS
from quasirnn.serving.loaded import Models
from quasirnn.serving.page import START, PageFile
from quasirnn.serving.waiting import Pieces, refusal, result, submit
from quasirnn.serving.work import Work
from quasirnn.tasks.endpoint import Endpoint
from quasirnn.tasks.registry import all_tasks

# The answer of an endpoint that streams, as the API's documentation has it.
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events: piece, ..., piece, end; or error, if it fails after the first.",
        "content": {EventStream.media_type: {"schema": {"type": "string"}}},
    }
}

logger = logging.getLogger("quasirnn.serving")


def make_app(
    models: Models, work: Work, deadline: float, page: dict[str, PageFile], hosts: set[str] | None = None
) -> ASGIApp:
    """The application, to be run by an ASGI server.

    Args:
        models: what is served.
        work: where it is done.
        deadline: seconds from the arrival of a request to its answer.
        page: the files of the web page by name.
        hosts: what the Host header may name; None for anything.
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
    for task, endpoint in endpoints:
        _add_endpoint(app, task, endpoint, models, work, deadline)
    return BodyLimitMiddleware(app, hosts, lambda: work.closing, lambda: refusal(work))


def _add_error_handlers(app: FastAPI) -> None:
    """Every error is JSON with one sentence."""

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        if error.status >= 500:
            logger.warning("%a: %d, %s", request.scope["path"], error.status, error.sentence)
        return JSONResponse(error.content, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        worded = describe(error.errors())
        return JSONResponse(worded.content, worded.status)

    @app.exception_handler(ClientDisconnected)
    async def disconnected(request: Request, error: ClientDisconnected) -> Response:
        # Nobody reads it.
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # It is raised again behind this, and logged by the middleware.
        return JSONResponse({"error": "internal error"}, 500)

    @app.exception_handler(HTTPException)
    async def no_such_thing(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: "there is no such path; /openapi.json lists them.",
            405: f"{request.method} is not for this path; /openapi.json lists what is.",
        }
        return JSONResponse({"error": sentences.get(error.status_code, error.detail)}, error.status_code, error.headers)


def _add_page(app: FastAPI, page: dict[str, PageFile]) -> None:
    def answer(name: str) -> Response:
        if name not in page:
            raise ApiError(404, "the web page is not in this installation; the API is, see /openapi.json.")
        file = page[name]
        return Response(file.content, media_type=file.kind, headers={"Cache-Control": "no-cache"})

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def start() -> Response:
        return answer(START)

    # The names are known: no path of a request comes near the file system.
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

    @app.get("/models", summary="What is loaded, and what a request may ask for")
    async def list_models() -> dict[str, Any]:
        return {
            "models": [each.description for each in models.loaded],
            "limits": limits,
            "version": version("quasirnn"),
        }

    @app.get("/health/live", summary="Whether the server answers")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/health/ready", summary="Whether the server takes requests; 503 while it ends")
    async def ready() -> Response:
        figures = {"queued": work.queued, "active": work.active, "capacity": work.capacity}
        return JSONResponse({"ready": not work.closing, **figures}, 503 if work.closing else 200)


def _add_endpoint(app: FastAPI, task: str, endpoint: Endpoint, models: Models, work: Work, deadline: float) -> None:
    async def answer(request: Request, body: Any) -> Response:
        loaded = models.find(task, body.model)
        job = loaded.job(endpoint, body, request.scope["arrived"] + deadline)
        submit(work, job)
        return Response(await result(work, job, request.receive), media_type="application/json")

    async def stream(request: Request, body: Any) -> Response:
        loaded = models.find(task, body.model)
        pieces = Pieces()
        job = loaded.job(endpoint, body, request.scope["arrived"] + deadline, pieces.put)
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
    app.router.add_api_route(
        endpoint.path,
        route,
        methods=["POST"],
        summary=endpoint.summary,
        operation_id=endpoint.path[1:],
        name=endpoint.path,
        responses=RESPONSES | (EVENTS if endpoint.stream else {}),
        # A class with a media type of its own would be that of the errors too.
        response_class=Response if endpoint.stream else JSONResponse,
        route_class_override=JsonRoute,
    )
