"""Clients that leave at any moment: while they send, while they wait, while a stream comes."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator

from stress.http_client import get, request_bytes
from stress.server_process import ServerProcess
from stress.work_mix import Ask


async def leave_at_random(server: ServerProcess, asks: Iterator[Ask], times: int, seed: int = 1) -> None:
    draw = random.Random(seed)
    at_once = asyncio.Semaphore(16)

    async def one(raw: bytes, share: float, patience: float) -> None:
        async with at_once:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(raw[: max(1, round(share * len(raw)))])
                await writer.drain()
                await asyncio.sleep(patience)
                # Not a polite end: the connection is gone.
                writer.transport.abort()

    # Every third leaves before its request is whole.
    await asyncio.gather(
        *(
            one(request_bytes(*next(asks)), draw.random() if n % 3 == 0 else 1.0, draw.expovariate(20.0))
            for n in range(times)
        )
    )


async def seconds_until_idle(server: ServerProcess, timeout: float = 30.0) -> float | None:
    """How long until nothing is queued or active; None if that does not come."""
    began = time.perf_counter()
    while time.perf_counter() - began < timeout:
        ready = await get(server.port, "/health/ready")
        if ready["active"] == 0 and ready["queued"] == 0:
            return time.perf_counter() - began
        await asyncio.sleep(0.02)
    return None
