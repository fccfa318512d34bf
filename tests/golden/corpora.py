"""Small corpora in every layout that `--data` reads: the same bytes at every call, on every machine."""

import json
import random
from pathlib import Path

OPINIONS = {"neg": ["dull", "a waste of time", "not good"], "pos": ["great", "a joy", "not bad at all"]}
OPENINGS = ["The film", "It", "This story", "the acting", "Café Müller", "I thought it"]
FILLERS = [" ", " really ", ", they say, ", " (in 1987) ", "<br /><br />", ' "just" ', " — naïve —  ", " wasn't it? "]
WORDS = ["the", "a", "company", "bank", "market", "said", "rose", "fell", "mr.", "smith", "jones", "year", "N", "to"]
WORDS += ["of", "its", "in", "new", "<unk>", "share"]
NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "fünf": "five", "zwölf": "twelve", "zwanzig": "twenty"}
SIZES = {"train": 24, "valid": 6, "test": 8}


def labelled(split: str, rows: int) -> list[tuple[str, str]]:
    """Label and text. Some texts occur twice, which must not separate them when a part is held out."""
    draw = random.Random(f"labelled {split}")
    made = []
    for number in range(rows):
        if number % 7 == 6:
            made.append(made[-2])
            continue
        label = "neg" if number % 2 else "pos"
        text = draw.choice(OPENINGS)
        for _ in range(draw.randint(1, 4)):
            text += draw.choice(FILLERS) + draw.choice(OPINIONS[label])
        made.append((label, text + draw.choice([".", "!", " ...", ""])))
    return made


def prose(split: str, lines: int) -> str:
    """Lines of words, as the Penn Treebank has them: a blank at both ends."""
    draw = random.Random(f"prose {split}")
    return "".join(f" {' '.join(draw.choices(WORDS, k=draw.randint(3, 9)))} \n" for _ in range(lines))


def pairs(split: str, rows: int) -> list[tuple[str, str]]:
    draw = random.Random(f"pairs {split}")
    made = []
    for _ in range(rows):
        words = draw.choices(list(NUMBERS), k=draw.randint(1, 4))
        made.append((" ".join(words), " ".join(NUMBERS[word] for word in words)))
    return made


def write(file: Path, text: str, encoding: str = "utf-8") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode(encoding))


def write_all(folder: Path) -> None:
    """A folder for each layout."""
    write_labelled(folder)
    write_prose(folder)
    write_pairs(folder)


def write_labelled(folder: Path) -> None:
    for split, rows in SIZES.items():
        write(folder / f"tsv/{split}.tsv", "".join(f"{label}\t{text}\n" for label, text in labelled(split, rows)))
    # A byte order mark, other line ends, quotes, a line end inside of a text, more columns; validation is held out.
    for split in ("train", "test"):
        quoted = [(label, text.replace('"', '""')) for label, text in labelled(split, 30)]
        lines = [f'{n},"{text}\nSecond line, {n % 3}",{label}\r\n' for n, (label, text) in enumerate(quoted)]
        write(folder / f"csv/{split}.csv", "id,text,label\r\n" + "".join(lines), "utf-8-sig")
    # One file, from which both other parts are held out; three labels, which are numbers.
    rows = [{"text": text, "label": number % 3, "id": [1]} for number, (_, text) in enumerate(labelled("train", 60))]
    write(folder / "jsonl/reviews.jsonl", "\n".join(map(json.dumps, rows)))
    # IMDb as it is published, and as it is packed.
    for split in ("train", "test"):
        lines = []
        for number, (label, text) in enumerate(labelled(split, 24)):
            write(folder / f"imdb/aclImdb/{split}/{label}/{number}_{7 if label == 'pos' else 2}.txt", text)
            lines.append(f"{int(label == 'pos')}\t{7 if label == 'pos' else 2}\t{number}\t{text}\n")
        write(folder / f"packed/imdb.{split}.tsv", "".join(lines))
    write(folder / "imdb/aclImdb/train/unsup/0_0.txt", "Nobody knows .")
    draw = random.Random("vectors")
    known = ["the", "film", "great", "dull", "not", "a", "joy", "zebra", "1987"]
    write(
        folder / "vectors.txt",
        "".join(f"{word} {' '.join(f'{draw.gauss(0, 1):.3f}' for _ in range(6))}\n" for word in known),
    )


def write_prose(folder: Path) -> None:
    for split, lines in {"train": 60, "valid": 15, "test": 20}.items():
        write(folder / f"treebank/ptb.{split}.txt", prose(split, lines))
        write(folder / f"wikitext/wiki.{split}.tokens", f" \n = Title = \n{prose(split, lines)}\n")
        write(folder / f"texts/{split}.txt", prose(split, lines).replace("<unk>", "café").replace("\n", "\r\n"))
    # One file without <unk> and without a last line end, from which both other parts are cut.
    write(folder / "single/novel.txt", prose("novel", 80).replace("<unk>", "Ærø").rstrip("\n"))


def write_pairs(folder: Path) -> None:
    for split, rows in {"train": 64, "valid": 8, "test": 8}.items():
        for language, side in zip(("de", "en"), zip(*pairs(split, rows), strict=True), strict=True):
            write(folder / f"pairs/{split}.{language}", "".join(f"{line}\n" for line in side))
    # IWSLT as it is published: tags between the lines of training, XML elsewhere.
    for language, side in zip(("de", "en"), zip(*pairs("iwslt", 40), strict=True), strict=True):
        talks = "".join(
            f"<url>http://www.ted.com/talks/{start}</url>\n<title>No &amp; text</title>\n"
            + ("<translator>Somebody</translator>\n" if language == "en" else "")
            + "".join(f"{line} &amp; {line[:1]}\n" for line in side[start : start + 10])
            for start in range(0, 40, 10)
        )
        write(folder / f"iwslt/train.tags.de-en.{language}", talks)
    for name in ("tst2013", "tst2014"):
        for language, side in zip(("de", "en"), zip(*pairs(name, 6), strict=True), strict=True):
            body = "".join(f'<seg id="{n}"> {line} &amp; &#8364;\n{n} </seg>\n' for n, line in enumerate(side, 1))
            xml = f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval><doc docid="1">\n{body}</doc></mteval>\n'
            write(folder / f"iwslt/IWSLT16.TED.{name}.de-en.{language}.xml", xml)
    # Columns that are named in another order; both other parts are held out.
    rows = "".join(f"{english}\t{n}\t{german}\n" for n, (german, english) in enumerate(pairs("columns", 80)))
    write(folder / "columns/pairs.tsv", f"target\tid\tsource\n{rows}")
    # The languages twice in the name, and neither of the default ones.
    for split in ("train", "dev", "test"):
        for language, side in zip(("fr", "es"), zip(*pairs(f"fr {split}", 32), strict=True), strict=True):
            write(folder / f"french/{split}.fr-es.{language}", "".join(f"{line}\n" for line in side))
