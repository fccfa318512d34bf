"""What is trained for the golden values: commands as a user types them, in a folder that has `corpora/`."""

from dataclasses import dataclass

# Sizes that train in a moment; dropout, zoneout, optimizer and schedule are those of the preset that the data choose,
# and what is drawn at random is part of what is compared.
SMALL = ("hidden_size=8", "num_layers=2", "embedding_size=6", "batch_size=4", "precision=float32", "warm_up=1")

# Data of these folders lead to the preset `paper`, none to `demo`, others to `fast`, some of whose values follow the
# size of the data today. Here they are what they were when the values were recorded.
PAPERS = ("imdb", "packed", "treebank", "iwslt")
FORMER = {
    "sentiment": (
        *("dropout=0.4", "zoneout=0.1", "learning_rate=0.001", "epochs=4", "patience=none"),
        *("word_init=random", "word_dropout=0", "dense=true"),
    ),
    "language-model": (
        *("level=word", "dropout=0.4", "output_dropout=0.4", "zoneout=0.1", "learning_rate=0.002", "epochs=5"),
        *("patience=none", "tied=true", "gates_start=usual"),
    ),
    "translation": ("dropout=0.1", "learning_rate=0.002", "epochs=10", "patience=none"),
}


@dataclass(frozen=True)
class Case:
    """`quasirnn train TASK --data DATA... WORDS...`; no data stands for the built-in corpus."""

    task: str
    data: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        data = [word for folder in self.data for word in ("--data", f"corpora/{folder}")]
        given = {word.partition("=")[0] for word in self.words}
        if "lstm" in self.words:
            # It has no zoneout, and its gates were initialised in another way.
            given |= {"zoneout", "gates_start"}
        former = FORMER[self.task] if self.data and self.data[0] not in PAPERS else ()
        former += ("gate_init=unit",) if former and self.task == "language-model" and "lstm" in self.words else ()
        return [
            "train",
            self.task,
            *data,
            *(word for word in (*SMALL, *former) if word.partition("=")[0] not in given),
            *self.words,
        ]

    @property
    def evaluation(self) -> list[str] | None:
        """For `quasirnn evaluate RUN`; none where the test part takes too long: 600 texts to translate."""
        if self.task != "translation":
            return ["--split", "test"]
        return ["--split", "test", "--beam", "1"] if self.data else None


# Every layout of data, two or three steps.
FEW = ("max_steps=3",)
CORPORA = {
    "sentiment-tsv-vectors": Case("sentiment", ("tsv",), ("--vectors", "corpora/vectors.txt", "min_count=1", *FEW)),
    "sentiment-csv": Case("sentiment", ("csv",), ("lowercase=true", *FEW)),
    "sentiment-jsonl": Case("sentiment", ("jsonl",), ("max_vocabulary=12", "max_length=5", *FEW)),
    "sentiment-aclimdb": Case("sentiment", ("imdb",), FEW),
    "sentiment-packed": Case("sentiment", ("packed",), ("seed=2", "kernel_size=4,2", *FEW)),
    "sentiment-joined": Case("sentiment", ("csv", "tsv"), ("valid=valid", "pooling=ifo", *FEW)),
    "sentiment-built-in": Case("sentiment", (), FEW),
    "language-model-ptb": Case("language-model", ("treebank",), ("length=7", "output_dropout=0", *FEW)),
    "language-model-wikitext": Case("language-model", ("wikitext",), ("length=7", "tied=false", *FEW)),
    "language-model-texts": Case("language-model", ("texts",), ("length=7", "embedding_size=8", "min_count=3", *FEW)),
    "language-model-characters": Case(
        "language-model", ("texts",), ("level=character", "tied=false", "length=11", "lowercase=true", *FEW)
    ),
    "language-model-single": Case(
        "language-model", ("single",), ("tied=false", "length=7", "max_vocabulary=15", "seed=3", *FEW)
    ),
    "language-model-joined": Case(
        "language-model", ("single", "texts"), ("tied=false", "length=7", "gates_start=small", *FEW)
    ),
    "language-model-built-in": Case("language-model", (), ("batch_size=16", *FEW)),
    "translation-pairs": Case("translation", ("pairs",), ("kernel_size=3,2", "sample=2", *FEW)),
    "translation-iwslt": Case("translation", ("iwslt",), ("kernel_size=3,2", "max_length=20", "sample=2", *FEW)),
    "translation-columns": Case("translation", ("columns",), ("kernel_size=2", "lowercase=true", "sample=0", *FEW)),
    "translation-french": Case(
        "translation", ("french",), ("source=fr", "target=es", "kernel_size=2", "min_count=5", "sample=0", *FEW)
    ),
    "translation-built-in": Case(
        # As the demo was when the values were made.
        "translation",
        (),
        ("kernel_size=6,2", "learning_rate=4e-3", "epochs=20", "sample=0", *FEW),
    ),
}

# What is kept as a run folder, stopped in the middle of an epoch that is not the first. The cosine schedule counts the
# steps of the whole run, so a resume that forgot where it was would show.
RUNS = {
    "sentiment-qrnn": Case(
        "sentiment",
        ("tsv",),
        ("--preset", "fast", "learning_rate=0.02", "batch_size=3", "epochs=3", "min_count=1", "checkpoint_every=3"),
    ),
    "language-model-qrnn": Case(
        "language-model",
        ("texts",),
        (
            *("--preset", "fast", "embedding_size=8", "length=9", "learning_rate=0.02", "epochs=3"),
            "checkpoint_every=3",
        ),
    ),
    "translation-qrnn": Case(
        "translation",
        ("pairs",),
        (
            *("--preset", "fast", "kernel_size=3,2", "zoneout=0.1", "hidden_size=16", "embedding_size=16"),
            *("learning_rate=0.03", "batch_size=8", "epochs=20", "min_count=1", "sample=2", "checkpoint_every=41"),
        ),
    ),
}
RUNS |= {
    name.replace("qrnn", "lstm"): Case(
        case.task,
        case.data,
        (*(word for word in case.words if not word.startswith(("kernel_size", "zoneout"))), "--cell", "lstm"),
    )
    for name, case in RUNS.items()
}

# Of each task: what is asked of its runs, besides `evaluate`.
QUESTIONS = {
    "sentiment": [
        ["classify", "RUN", "--json", "The film was a joy.", "  ", "Café dull, a waste of time", "zzz"],
        ["classify", "RUN", "--words", "The acting (in 1987) wasn't great!"],
    ],
    "language-model": [
        ["score", "RUN", "--json", "the company said", "a bank rose in N zebras"],
        ["generate", "RUN", "--prompt", "the company", "--length", "30", "--seed", "1", "--top-p", "0.9"],
        ["generate", "RUN", "--length", "20", "--temperature", "0.7", "--top-k", "5", "--seed", "7"],
        ["generate", "RUN", "--prompt", "mr. smith", "--length", "10", "--temperature", "0"],
    ],
    "translation": [
        ["translate", "RUN", "--json", "eins zwei", "", "zwölf fünf drei", "drei Zebras", "--n-best", "3"],
        ["translate", "RUN", "zwanzig eins", "fünf", "--beam", "1"],
    ],
}
EVALUATIONS = {
    "sentiment": [["--split", "test"], ["--split", "valid"], ["--data", "corpora/csv", "--split", "train"]],
    "language-model": [
        ["--split", "test"],
        ["--split", "valid"],
        ["--data", "corpora/single/novel.txt", "--split", "novel"],
    ],
    "translation": [["--split", "test", "--beam", "1"], ["--split", "valid", "--beam", "3", "--alpha", "1"]],
}
