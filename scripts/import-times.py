"""How long `quasirnn --help` takes, and what `from quasirnn import QRNN` adds to `import torch`; medians of several."""

import statistics
import subprocess
import sys
import time

ROUNDS = 7


def seconds(*words: str) -> float:
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd="/")
    return time.perf_counter() - start


def main() -> None:
    commands = {
        "quasirnn --help": [sys.argv[1], "--help"],
        "quasirnn train --help": [sys.argv[1], "train", "--help"],
        "python": [sys.executable, "-c", ""],
        "import quasirnn": [sys.executable, "-c", "import quasirnn"],
        "import torch": [sys.executable, "-c", "import torch"],
        "from quasirnn import QRNN": [sys.executable, "-c", "import torch; from quasirnn import QRNN"],
    }
    rounds = [{name: seconds(*words) for name, words in commands.items()} for _ in range(ROUNDS)]
    times = {name: statistics.median(each[name] for each in rounds) for name in commands}
    for name, median in times.items():
        print(f"{name:28} {median:.2f} s")
    added = statistics.median(each["from quasirnn import QRNN"] - each["import torch"] for each in rounds)
    print(f"{'added to import torch':28} {added:.2f} s")


if __name__ == "__main__":
    main()
