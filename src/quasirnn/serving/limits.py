"""What a request may ask for at most. `GET /models` shows these numbers, docs/serving.md lists them."""

BODY_BYTES = 256 * 1024
# The head and the body of a request have to arrive in this time, and an answer that is ready has to be fetched in it.
RECEIVE_SECONDS = 10

# Connections that are open at the same time; whoever comes then is not let in.
CONNECTIONS = 512

CLASSIFY_TEXTS, CLASSIFY_CHARACTERS = 64, 20_000  # characters of each text
STREAM_CHARACTERS, STATE_CHARACTERS = 5_000, 128 * 1024
STATES_CHARACTERS = 2_000
PROMPT_CHARACTERS, LENGTH, TEMPERATURE, SEED = 2_000, 2_000, 5.0, 2**32 - 1
# The attention is a number for each pair of characters, of each translation.
TRANSLATE_CHARACTERS, ATTENTION_CHARACTERS, BEAM, ALPHA = 1_000, 300, 16, 2.0
NAME_CHARACTERS = 200  # of a model, a label

QUEUE, DEADLINE = 32, 30.0  # unless --queue and --deadline say otherwise

LIMITS = {
    "body_bytes": BODY_BYTES,
    "receive_seconds": RECEIVE_SECONDS,
    "connections": CONNECTIONS,
    "classify_texts": CLASSIFY_TEXTS,
    "classify_characters": CLASSIFY_CHARACTERS,
    "stream_characters": STREAM_CHARACTERS,
    "state_characters": STATE_CHARACTERS,
    "states_characters": STATES_CHARACTERS,
    "prompt_characters": PROMPT_CHARACTERS,
    "length": LENGTH,
    "temperature": TEMPERATURE,
    "seed": SEED,
    "translate_characters": TRANSLATE_CHARACTERS,
    "attention_characters": ATTENTION_CHARACTERS,
    "beam": BEAM,
    "alpha": ALPHA,
    "name_characters": NAME_CHARACTERS,
    "queue": QUEUE,
    "deadline": DEADLINE,
}
