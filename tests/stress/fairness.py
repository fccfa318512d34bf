"""Whether clients get in each other's way: many short requests beside a long one, and many long ones beside short ones.

Each client has an address of its own, 127.0.0.N, as the server tells them apart by it.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from stress.http_client import Answer, ask, request_bytes
from stress.load import p99
from stress.server_process import ServerProcess

SHORT = request_bytes("/classify", {"texts": ["Not a bad film at all."]})
REVIEW = request_bytes("/classify", {"texts": [("The music is fine but the story is weak . " * 100)[:3900]]})
GENERATION = request_bytes("/generate", {"prompt": "The ", "length": 2000, "seed": 1})
TRANSLATION = request_bytes("/translate", {"text": "der dritte März neunzehnhundertsiebenundachtzig", "beam": 8})
LONG_TRANSLATION = request_bytes("/translate", {"text": ("siebenhundertvierzehn " * 40)[:600], "beam": 16})


@dataclass(frozen=True)
class Fairness:
    """Seconds, and statuses."""

    generation_alone: float
    generation_beside_30: Answer
    translation_alone: float
    translation_beside_30: Answer
    short_beside_40: Counter[int]  # of other clients
    short_idle_p99: float
    short_beside_8_p99: float


async def measure(server: ServerProcess, seconds: float, shorts: int) -> Fairness:
    async def alone(raw: bytes) -> Answer:
        return await ask(server.port, raw, address="127.0.0.2")

    generation, translation = await alone(GENERATION), await alone(TRANSLATION)
    beside = await _beside_many_short(server)
    statuses = await _beside_one_greedy(server, shorts)
    idle = [(await ask(server.port, SHORT, address="127.0.0.3")).seconds for _ in range(shorts)]
    busy = await _short_beside_long(server, seconds)
    return Fairness(generation.seconds, beside[0], translation.seconds, beside[1], statuses, p99(idle), p99(busy))


async def _beside_many_short(server: ServerProcess) -> tuple[Answer, Answer]:
    """30 clients that classify 3,900 characters, again and again, until both long ones are answered."""
    stop = False

    async def classify(number: int) -> None:
        while not stop:
            await ask(server.port, REVIEW, address=f"127.0.1.{number}")

    clients = [asyncio.create_task(classify(number)) for number in range(1, 31)]
    await asyncio.sleep(0.5)
    both = await asyncio.gather(
        ask(server.port, GENERATION, address="127.0.0.2"), ask(server.port, TRANSLATION, address="127.0.0.3")
    )
    stop = True
    await asyncio.gather(*clients)
    return both[0], both[1]


async def _beside_one_greedy(server: ServerProcess, shorts: int) -> Counter[int]:
    """40 long translations of one client at once, and short requests of others while they last."""
    greedy = [asyncio.create_task(ask(server.port, LONG_TRANSLATION, address="127.0.0.9")) for _ in range(40)]
    await asyncio.sleep(0.2)
    answers = [await ask(server.port, SHORT, address=f"127.0.2.{number % 200 + 1}") for number in range(shorts)]
    for each in greedy:
        each.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    return Counter(answer.status for answer in answers)


async def _short_beside_long(server: ServerProcess, seconds: float) -> list[float]:
    """8 clients, each with a long request at all times."""
    until = time.monotonic() + seconds

    async def generate(number: int) -> None:
        while time.monotonic() < until:
            await ask(server.port, GENERATION if number % 2 else LONG_TRANSLATION, address=f"127.0.3.{number}")

    clients = [asyncio.create_task(generate(number)) for number in range(1, 9)]
    await asyncio.sleep(0.5)
    took = []
    while time.monotonic() < until:
        took.append((await ask(server.port, SHORT, address="127.0.0.3")).seconds)
        await asyncio.sleep(0.02)
    for each in clients:
        each.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return took
