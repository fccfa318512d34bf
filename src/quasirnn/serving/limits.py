"""What every request is limited by. Those of each endpoint are its task's; `GET /models` shows them all."""

from quasirnn.tasks.pipeline import NAME_CHARACTERS

BODY_BYTES = 256 * 1024
# The head and the body of a request have to arrive in this time, and an answer that is ready has to be fetched in it.
RECEIVE_SECONDS = 10
# Connections that are open at the same time; further ones are closed at once.
CONNECTIONS = 512
# And those of one address: others must find room.
CLIENT_CONNECTIONS = 256
# Requests that are answered together may take up so much, by the sizes that their endpoints give them.
BATCH = 64

LIMITS: dict[str, float] = {
    "body_bytes": BODY_BYTES,
    "receive_seconds": RECEIVE_SECONDS,
    "connections": CONNECTIONS,
    "client_connections": CLIENT_CONNECTIONS,
    "name_characters": NAME_CHARACTERS,
}
