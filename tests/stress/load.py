"""Load: how much the server can do, and what becomes of requests that arrive at a rate of their own."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from stress.http_client import Answer, ask, request_bytes
from stress.server_process import ServerProcess
from stress.work_mix import Ask


@dataclass(frozen=True)
class LoadFigures:
    """What became of the requests of one run."""

    rate: float  # requests that arrived in a second
    seconds: float  # of arrivals
    statuses: dict[int, int]
    goodput: float  # answers of status 200 in a second, as long as requests arrived
    accepted_p50: float  # seconds
    accepted_p99: float
    refused_share: float  # of all
    refused_p99: float | None  # seconds from connecting to the whole answer; None if nothing was refused
    retry_after: bool  # every refusal said when to come again
    late: float  # the longest that the generator itself was behind its plan, in seconds
    late_p99: float  # how long its event loop lets a thing wait: what it adds to a time each time that it waits
    memory_before: int  # bytes
    memory_after: int


async def capacity(server: ServerProcess, asks: Iterator[Ask], seconds: float, clients: int) -> float:
    """Answers in a second when so many clients ask one request after the other."""
    stop = time.perf_counter() + seconds
    answered = 0

    async def client() -> None:
        nonlocal answered
        while time.perf_counter() < stop:
            answer = await ask(server.port, request_bytes(*next(asks)))
            answered += answer.status == 200

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return answered / (time.perf_counter() - began)


async def open_loop(
    server: ServerProcess, asks: Iterator[Ask], rate: float, seconds: float, seed: int = 1
) -> LoadFigures:
    """Requests that arrive at random moments, whether or not those before them have been answered."""
    draw = random.Random(seed)
    before = server.memory()
    began = time.perf_counter()
    arrival = 0.0
    late, running = [], []
    while arrival < seconds:
        await asyncio.sleep(max(0.0, began + arrival - time.perf_counter()))
        late.append(time.perf_counter() - began - arrival)
        running.append(asyncio.create_task(ask(server.port, request_bytes(*next(asks)))))
        arrival += draw.expovariate(rate)
    answers = await asyncio.gather(*running)
    return figures(answers, began, seconds, late, (before, server.memory()))


def figures(
    answers: list[Answer], began: float, seconds: float, late: list[float], memory: tuple[int, int]
) -> LoadFigures:
    accepted = [answer.seconds for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 503]
    return LoadFigures(
        rate=len(answers) / seconds,
        seconds=seconds,
        statuses=dict(sorted(Counter(answer.status for answer in answers).items())),
        goodput=sum(answer.status == 200 and answer.ended < began + seconds for answer in answers) / seconds,
        accepted_p50=statistics.median(accepted) if accepted else float("nan"),
        accepted_p99=p99(accepted),
        refused_share=len(refused) / len(answers),
        refused_p99=p99([answer.seconds for answer in refused]) if refused else None,
        retry_after=all("retry-after" in answer.headers for answer in refused),
        late=max(late),
        late_p99=p99(late),
        memory_before=memory[0],
        memory_after=memory[1],
    )


def p99(values: list[float]) -> float:
    """
    >>> p99([float(n) for n in range(1, 201)])
    198.0
    """
    return sorted(values)[-(-99 * len(values) // 100) - 1] if values else float("nan")
