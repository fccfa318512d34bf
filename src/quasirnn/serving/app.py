"""The paths of the server, and what each does with a request."""

import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from quasirnn.serving import jobs, requests
from quasirnn.serving.body import App, Gate
from quasirnn.serving.events import EventStream
from quasirnn.serving.limits import LIMITS
from quasirnn.serving.loaded import Loaded, Models
from quasirnn.serving.page import START, PageFile
from quasirnn.serving.refusals import ClientLeft, Refused
from quasirnn.serving.waiting import Pieces, refusal, result, submit
from quasirnn.serving.work import Job, Work

logger = logging.getLogger("quasirnn.serving")

A = TypeVar("A", bound=requests.Asked)
MakeJob = Callable[[Loaded, A, float], Job]


def make_app(
    models: Models, work: Work, deadline: float, page: dict[str, PageFile], hosts: set[str] | None = None
) -> App:
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
    _answer_mistakes(app)
    _add_page(app, page)
    _add_state_of_things(app, models, work, deadline)
    _add_tasks(app, models, work, deadline)
    return Gate(app, hosts, lambda: work.closing, lambda: refusal(work))


def _answer_mistakes(app: FastAPI) -> None:
    """Every refusal is JSON with one sentence."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        if error.status >= 500:
            logger.warning("%s: %d, %s", request.scope["route"].path, error.status, error.sentence)
        return JSONResponse(error.content, error.status, error.headers)

    @app.exception_handler(ClientLeft)
    async def left(request: Request, error: ClientLeft) -> Response:
        # Nobody reads it.
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # It is raised again behind this, and logged by the gate.
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
            raise Refused(404, "the web page is not in this installation; the API is, see /openapi.json.")
        file = page[name]
        return Response(file.content, media_type=file.kind, headers={"Cache-Control": "no-cache"})

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def start() -> Response:
        return answer(START)

    # The names are known: no path of a request comes near the file system.
    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if page and name not in page:
            raise Refused(404, "the web page has no such file.")
        return answer(name)


def _add_state_of_things(app: FastAPI, models: Models, work: Work, deadline: float) -> None:
    @app.get("/models", summary="What is loaded, and what a request may ask for")
    async def what_is_loaded() -> dict[str, Any]:
        return {
            "models": [each.description for each in models.loaded],
            "limits": LIMITS | {"queue": work.capacity, "deadline": deadline},
            "version": version("quasirnn"),
        }

    @app.get("/health/live", summary="Whether the server answers")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/health/ready", summary="Whether the server takes requests; 503 while it ends")
    async def ready() -> Response:
        figures = {"queued": work.queued, "active": work.active, "capacity": work.capacity}
        return JSONResponse({"ready": not work.closing, **figures}, 503 if work.closing else 200)


def _add_tasks(app: FastAPI, models: Models, work: Work, deadline: float) -> None:
    async def asked(request: Request, task: str, kind: type[A]) -> tuple[Loaded, A, float]:
        found = requests.parse(await request.body(), request.headers.get("content-type", ""), kind)
        return models.find(task, found.model), found, request.scope["arrived"] + deadline

    async def answer(request: Request, job: Job) -> Response:
        submit(work, job)
        return Response(await result(work, job, request.receive), media_type="application/json")

    def add(path: str, task: str, kind: type[A], make: MakeJob[A], summary: str) -> None:
        @app.post(path, summary=summary, operation_id=path[1:], openapi_extra=_body_of(kind))
        async def serve(request: Request) -> Response:
            return await answer(request, make(*await asked(request, task, kind)))

    add("/classify", "sentiment", requests.Classify, jobs.classify, "The class of each text")
    add(
        "/classify-stream",
        "sentiment",
        requests.ClassifyStream,
        jobs.classify_stream,
        "The class after each word of a text that goes on",
    )
    add("/states", "sentiment", requests.States, jobs.states, "Cells or gates of a layer while it reads a text")
    add("/translate", "translation", requests.Translate, jobs.translate, "A text in another language")

    @app.post(
        "/generate",
        summary="The continuation of a text, as server-sent events: piece, ..., piece, end",
        operation_id="generate",
        openapi_extra=_body_of(requests.Generate),
    )
    async def generate(request: Request) -> Response:
        loaded, wanted, until = await asked(request, "language-model", requests.Generate)
        pieces = Pieces()
        job = jobs.generate(loaded, wanted, until, pieces.put)
        job.future.add_done_callback(lambda future: pieces.put(None))
        submit(work, job)
        return EventStream(work, job, pieces)


def _body_of(kind: type[requests.Asked]) -> dict[str, Any]:
    """The request body for the OpenAPI document: bodies are read and checked here and not by FastAPI."""
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}},
        "responses": {
            "422": {"description": "A field is missing, unknown, or past its limit."},
            "503": {"description": "The queue is full, or the server is about to end."},
            "504": {"description": "The deadline has passed; the work was stopped."},
        },
    }
