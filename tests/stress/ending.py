"""SIGTERM while requests are being worked on: all that were accepted are answered, and the process ends well."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from stress.http_client import ask, get, request_bytes
from stress.server_process import ServerProcess
from stress.work_mix import Ask


@dataclass(frozen=True)
class Ending:
    statuses: dict[int, int]  # of the requests that were sent before the signal; 0: no whole answer
    troubles: list[str]
    exit_code: int
    said: str


async def end_under_load(server: ServerProcess, asks: Iterator[Ask], clients: int) -> Ending:
    running = [asyncio.create_task(ask(server.port, request_bytes(*next(asks)))) for _ in range(clients)]
    # All of them are there, and at work.
    while True:
        # Counted first: one that ends in between is then missing, and not counted twice.
        done = sum(task.done() for task in running)
        ready = await get(server.port, "/health/ready")
        if ready["active"] + ready["queued"] + done >= clients:
            break
        await asyncio.sleep(0.005)
    server.terminate()
    answers = await asyncio.gather(*running)
    code = await asyncio.to_thread(server.end)
    statuses = dict(sorted(Counter(answer.status for answer in answers).items()))
    return Ending(statuses, sorted({answer.trouble for answer in answers if answer.trouble}), code, server.said())
