"""The three shapes of rows, as the tasks have them, and how tests write files of them."""

import json

from quasirnn.tasks import language_model, sentiment, translation

TASKS = {"labelled": sentiment.TASK, "paired": translation.TASK, "running": language_model.TASK}


def settings(task, **changes):
    """Those of the preset `fast`, with the data settings at their defaults."""
    plain = {"seed": 1, "min_count": None if task is language_model.TASK else 2, "max_vocabulary": None}
    return task.presets["fast"].qrnn.model_copy(update={**plain, "lowercase": False, **changes})


LABELLED, PAIRED, RUNNING = (task.columns(settings(task)) for task in TASKS.values())


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in rows)


def sides(stem, pairs):
    """The two files of some pairs, by name."""
    return {
        f"{stem}.{suffix}": "".join(f"{pair[side]}\n" for pair in pairs) for side, suffix in enumerate(("de", "en"))
    }


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def padding_share(lengths, batches):
    """How much of some batches is padding; every row has a sequence of each of the given lengths."""
    padded = sum(len(rows) * int(each[rows].max()) for rows in batches for each in lengths.values())
    return 1 - sum(int(each[rows].sum()) for rows in batches for each in lengths.values()) / padded
