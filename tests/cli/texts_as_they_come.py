"""Texts as files may hold them, for every command that reads lines."""

# Bytes of a file, the lines in it, or where and what the mistake is.
TEXTS = {
    "plain": (b"the cat\nthe dog ran\n", ["the cat", "the dog ran"]),
    "BOM": (b"\xef\xbb\xbfthe cat\nthe dog ran\n", ["the cat", "the dog ran"]),
    "CRLF": (b"the cat\r\nthe dog ran\r\n", ["the cat", "the dog ran"]),
    "no final newline": (b"the cat\nthe dog ran", ["the cat", "the dog ran"]),
    "U+0085": ("the cat\u0085sat\nthe dog\n".encode(), ["the cat\u0085sat", "the dog"]),
    "U+2028": ("the cat\u2028sat\nthe dog\n".encode(), ["the cat\u2028sat", "the dog"]),
    "lone CR": (b"the cat\rsat\nthe dog\n", ["the cat\rsat", "the dog"]),
    "beyond ASCII": ("the café 🐈\n".encode(), ["the café 🐈"]),
    "long line": (b"the cat " * 10_000, ["the cat " * 10_000]),
    "NUL": (b"the cat\nthe\0dog\n", ":2: byte 4 of the line is NUL."),
    "bad UTF-8": (b"the cat\nthe dog\n\xe9t\xe9\n", ":3: byte 1 of the line (0xe9) is not UTF-8."),
    "UTF-16": ("the cat\n".encode("utf-16"), ":1: byte 1 of the line is the start of UTF-16 text."),
}
