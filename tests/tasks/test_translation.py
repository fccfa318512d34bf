"""Translation as a task: its presets, its pairs, its learner, and figures that a plain computation confirms."""

import copy
import dataclasses
import json
import sys

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF
from torch.nn import functional as F

from quasirnn.data import number_words
from quasirnn.errors import DataError
from quasirnn.models import Translator
from quasirnn.tasks import translation as task
from quasirnn.tasks.settings import CELLS, SettingsError, apply_overrides
from quasirnn.tasks.translation import TASK as TRANSLATION, PreparedTranslation, TranslationLearner, build, loss_per_character
from quasirnn.tasks.translation import ALPHA, BEAM, LONGER, Decoder, Translation
from quasirnn.tasks.translation import FAST, PAPER, PRESETS
from quasirnn.training.schedule import StepInfo
from tasks.tiny_translation import NOTES, keys, paired_rows, write_paired, write_pairs


class One:
    rank, size, device = 0, 1, torch.device("cpu")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_paired(tmp_path_factory.mktemp("pairs"))


def prepare(data, *more: str, cell: str = "qrnn") -> PreparedTranslation:
    return PreparedTranslation(apply_overrides(FAST.for_cell(cell), keys(*more, cell=cell)), [str(data)])


def learner(prepared: PreparedTranslation) -> TranslationLearner:
    prepared.model.eval()
    return prepared.learner(One(), None)


def plain_loss(model: Translator, split) -> tuple[float, int]:
    """Pair by pair, in double, summed; and over how many characters and end marks."""
    double = copy.deepcopy(model).double().eval()
    total, characters = 0.0, 0
    for source, target in zip(split.sources, split.targets, strict=True):
        labels = torch.cat([target, torch.tensor([model.end])])
        target_in = torch.cat([torch.tensor([model.start]), target])
        with torch.no_grad():
            lengths = torch.tensor([len(source)]), torch.tensor([len(labels)])
            logits = double(source[:, None], lengths[0], target_in[:, None], lengths[1])[:, 0]
        total += F.cross_entropy(logits, labels, reduction="sum").item()
        characters += len(labels)
    return total, characters


# Presets.


def test_the_papers_preset_is_the_paper():
    """Section 3.3; what it leaves open is said to be ours."""
    paper = {
        "cell": "qrnn",
        "source": "de",
        "target": "en",
        "num_layers": 4,
        "hidden_size": 320,
        "kernel_size": (6, 2, 2, 2),
        "pooling": "fo",
        "zoneout": 0.0,
        "dropout": 0.0,
        "batch_size": 16,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "schedule": "constant",
        "l2": 0.0,
        "weight_decay": 0.0,
        "clip": 5.0,
        "epochs": 10,
        "max_steps": None,
        "max_minutes": None,
        "patience": None,
        "max_length": 300,
        "max_vocabulary": None,
        "lowercase": False,
    }
    settings = PAPER.for_cell("qrnn")
    assert {key: getattr(settings, key) for key in paper} == paper
    prepared = object.__new__(PreparedTranslation)
    prepared.settings, prepared.model = settings, Translator(9, hidden_size=4, num_layers=2)
    optimizer = prepared.optimizer()
    assert type(optimizer) is torch.optim.Adam
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-3, (0.9, 0.999), 1e-8, 0)
    assert prepared.schedule()(StepInfo(step=9000, epoch=9, steps_per_epoch=938, total_steps=9380)) == 1.0
    # Section 3.3, and the appendix.
    assert (BEAM, ALPHA, LONGER) == (8, 0.6, 5)


def test_the_papers_lstm_has_dropout_and_what_an_lstm_must():
    qrnn, lstm = (dataclasses.asdict(PAPER.for_cell(cell)) for cell in CELLS)
    assert {key: lstm[key] for key in qrnn if qrnn[key] != lstm[key]} == {
        "cell": "lstm",
        "kernel_size": None,
        "pooling": None,
        "zoneout": None,
        "dropout": 0.2,
    }


def test_what_the_papers_preset_sets_has_a_note_of_where_it_is_from():
    for field in dataclasses.fields(PAPER.qrnn):
        differs = getattr(PAPER.qrnn, field.name) != field.default
        if field.metadata["group"] in ("data", "model", "optimisation") and differs:
            assert field.name in PAPER.notes, f"{field.name} has no note"
    for key, note in PAPER.notes.items():
        assert note.startswith(("paper", "ours")), f"{key}: {note}"
    for key in ("embedding_size", "min_count", "sample"):
        assert PAPER.notes[key].startswith("ours"), key


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_can_be_built(pairs, preset, cell):
    settings = apply_overrides(preset.for_cell(cell), ["hidden_size=8", "min_count=1"])
    prepared = PreparedTranslation(settings, [str(pairs)])
    config, vocabulary = prepared.model.config, prepared.vocabulary
    assert (config["cell"], config["hidden_size"], config["num_layers"]) == (cell, 8, settings.num_layers)
    assert config["vocabulary_size"] == len(vocabulary)
    assert prepared.model.embedding.embedding_dim == (settings.embedding_size or 8)
    assert (config["dropout"], config["pooling"]) == (settings.dropout, settings.pooling)
    for role in ("padding", "start", "end"):
        assert config[role] == vocabulary.special(role)
    if cell == "qrnn":
        assert tuple(config["kernel_size"]) == settings.kernel_size
        assert settings.kernel_size[0] == 6, "the first layer of the encoder sees six characters (paper 3.3)"
    optimizer, rate = prepared.optimizer(), prepared.schedule()
    assert type(optimizer).__name__.lower() == settings.optimizer
    assert optimizer.param_groups[0]["lr"] == settings.learning_rate
    assert 0 < rate(StepInfo(step=0, epoch=0, steps_per_epoch=10, total_steps=100)) <= 1


def test_the_same_seed_builds_the_same_weights(pairs):
    vocabulary = prepare(pairs).vocabulary
    settings = dataclasses.replace(FAST.for_cell("qrnn"), hidden_size=8)
    first, again, other = (
        build(dataclasses.replace(settings, seed=seed), vocabulary).state_dict() for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_default_presets(pairs, tmp_path):
    assert TRANSLATION.default_preset([], []) == "demo"
    assert TRANSLATION.default_preset([str(pairs)], []) == "fast"
    write_pairs(tmp_path, "train.tags.de-en", paired_rows("train"))
    assert TRANSLATION.default_preset([str(tmp_path)], ["epochs=3"]) == "paper"
    for key in ("train=train.tags.de-en", "source=de"):
        assert TRANSLATION.default_preset([str(tmp_path)], [key]) == "fast"
    assert TRANSLATION.default_preset([str(tmp_path), str(pairs)], []) == "fast"


def test_settings_that_contradict_one_another_are_told_together():
    with pytest.raises(SettingsError) as caught:
        apply_overrides(PAPER.for_cell("qrnn"), ["weight_decay=0.1", "target=de"])
    assert caught.value.mistakes == (
        "weight_decay: adam has none; give l2, or optimizer=adamw",
        "target: must be another language than source=de",
    )
    with pytest.raises(SettingsError, match="l2: adamw has its own; give weight_decay, or optimizer=adam"):
        apply_overrides(FAST.for_cell("qrnn"), ["l2=0.1"])
    with pytest.raises(SettingsError, match="kernel_size: lstm has none; it belongs to qrnn"):
        apply_overrides(FAST.for_cell("lstm"), ["kernel_size=6,2,2"])
    with pytest.raises(SettingsError, match="kernel_size: 2 widths for num_layers=3; give one per layer"):
        apply_overrides(FAST.for_cell("qrnn"), ["kernel_size=6,2"])


# Pairs.


def test_both_languages_have_one_vocabulary(pairs):
    prepared = prepare(pairs)
    characters = set("".join([*NOTES, *NOTES.values()])) | {" "}
    assert set(prepared.vocabulary.tokens) == characters | {"<pad>", "<s>", "</s>", "\ufffd"}
    for split, rows in ((prepared.train, paired_rows("train")), (prepared.valid, paired_rows("valid"))):
        for number, (source, target) in enumerate(rows):
            assert prepared.vocabulary.decode(split.sources[number]) == source
            assert prepared.vocabulary.decode(split.targets[number]) == target
    # "d" of the letters and "d" of "do" are the same symbol, with the same vector.
    source, target = prepared.vocabulary.encode("d"), prepared.vocabulary.encode("do")
    assert source[0] == target[0]
    assert len(prepared.model.embedding.weight) == len(prepared.vocabulary)
    assert (prepared.corpus["name"], prepared.corpus["source"], prepared.corpus["target"]) == (pairs.name, "de", "en")
    assert json.loads(json.dumps(prepared.corpus)) == prepared.corpus
    assert prepared.notes == []


def test_lower_case(tmp_path, monkeypatch):
    rows = [(source.upper(), target.upper()) for source, target in paired_rows("train")]
    write_pairs(tmp_path, "train", rows)
    prepared = prepare(tmp_path, "lowercase=yes")
    assert not any(token.isupper() for token in prepared.vocabulary.tokens)
    assert prepared.vocabulary.lowercase
    assert prepared.valid.target_texts[0].isupper(), "what scores are counted on stays as it is"
    # Of the case of a translation nothing is asked: here all are right but for it.
    right = [[Translation(text.lower(), 0.0, 0.0, True)] for text in prepared.valid.target_texts]
    monkeypatch.setattr(Decoder, "translate", lambda self, texts, beam: right[: len(texts)])
    figures = learner(prepared).validate(prepared.model, lambda done, of: None)
    assert (figures["exact_match"], figures["chrf"]) == (100, pytest.approx(100))


def test_held_out_validation_shares_no_target_with_train_and_follows_the_seed(tmp_path):
    """Sources of one target stay on one side; the test part, which is missing as well, is held out beside it."""
    rows = [(f"{source} {way}", target) for source, target in paired_rows("train") for way in "cd"]
    write_pairs(tmp_path, "train", rows)
    prepared = prepare(tmp_path)
    train, valid = set(prepared.train.target_texts), set(prepared.valid.target_texts)
    assert not train & valid
    assert len(prepared.valid.sources) == 16
    assert prepared.notes == [
        f"{tmp_path.name}: no valid or test, so held out of its train (32 of 320 pairs, no target sentence on both "
        f"sides, seed 1)"
    ]
    other = prepare(tmp_path, "seed=2")
    assert other.corpus["sha256"] != prepared.corpus["sha256"] == prepare(tmp_path).corpus["sha256"]


def test_the_test_part_is_left_alone(tmp_path):
    write_paired(tmp_path)
    (tmp_path / "test.de").write_bytes(b"\xff\0 nothing that could be read")
    assert set(prepare(tmp_path).corpus["splits"]) == {"train", "valid"}


def test_long_pairs_are_left_out_of_training_alone(pairs):
    cut = prepare(pairs, "max_length=5")
    kept = [row for row in paired_rows("train") if max(map(len, row)) <= 5]
    assert list(zip(cut.train.source_texts, cut.train.target_texts, strict=True)) == kept
    assert len(cut.valid.sources) == 8
    assert cut.notes == [
        f"train: {160 - len(kept)} of 160 pairs left out, as a side has more than max_length = 5 characters"
    ]
    assert len(prepare(pairs, "max_length=none").train.sources) == 160


def test_the_built_in_pairs():
    settings = apply_overrides(PRESETS["demo"].for_cell("qrnn"), ["hidden_size=4"])
    first, again = (PreparedTranslation(dataclasses.replace(settings, seed=seed), []) for seed in (1, 2))
    assert first.corpus["sha256"] == again.corpus["sha256"]
    assert {name: split["pairs"] for name, split in first.corpus["splits"].items()} == {"train": 12_000, "valid": 600}
    known = {*first.train.source_texts, *first.train.target_texts}
    held_out = [*first.valid.source_texts, *first.valid.target_texts]
    held_out += [side for pair in number_words.load("test") for side in pair]
    assert not known & set(held_out)
    assert first.corpus["splits"]["valid"]["unknown"] == 0


def test_more_processes_than_a_batch_has_pairs(pairs):
    class Tenth:
        rank, size, device = 9, 10, torch.device("cpu")

    with pytest.raises(DataError, match=r"160 sequences in batches of 8 cannot be divided over 10 ranks"):
        prepare(pairs).learner(Tenth(), None)


def test_a_missing_sacrebleu_is_said_before_training(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match="BLEU needs sacrebleu: pip install"):
        prepare(pairs)
    assert prepare(pairs, "sample=0").settings.sample == 0


# The learner.


def test_batches_are_of_similar_length_and_from_any_start_the_rest_of_the_epoch(pairs):
    learning = learner(prepare(pairs))
    whole = list(learning.batches(2, 0))
    assert len(whole) == learning.steps_per_epoch == 20
    rows = [batch.rows.tolist() for batch in whole]
    assert sorted(row for batch in rows for row in batch) == list(range(160))
    assert rows != [batch.rows.tolist() for batch in learning.batches(3, 0)]
    # Targets have 2 to 15 characters; without sorting, a batch would have nearly all lengths.
    spread = [int(batch.target_lengths.max() - batch.target_lengths.min()) for batch in whole]
    assert sorted(spread)[len(spread) // 2] <= 4
    for start in (0, 1, 19, 20):
        assert [batch.rows.tolist() for batch in learning.batches(2, start)] == rows[start:]


@pytest.mark.parametrize("cell", CELLS)
def test_the_losses_of_an_epoch_add_up_to_that_of_every_pair_once(pairs, cell):
    prepared = prepare(pairs, cell=cell)
    learning = learner(prepared)
    total, characters = 0.0, 0
    for batch in learning.batches(0, 0):
        loss, number, carried = learning.loss(prepared.model, batch, None)
        assert loss.requires_grad
        assert carried is None
        total, characters = total + loss.item(), characters + number
    expected, count = plain_loss(prepared.model, prepared.train)
    # The end mark of every pair is counted as well.
    assert characters == count == sum(len(target) + 1 for _, target in paired_rows("train"))
    assert total == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_validation_is_the_plain_computation_in_double_and_scores_of_a_sample(pairs, cell):
    prepared = prepare(pairs, "sample=5", cell=cell)
    learning, ticks = learner(prepared), []
    figures = learning.validate(prepared.model, lambda done, of: ticks.append((done, of)))
    total, count = plain_loss(prepared.model, prepared.valid)
    assert figures["loss"] == pytest.approx(total / count, rel=1e-6)
    sources, references = zip(*paired_rows("valid")[:5], strict=True)
    found = [best.text for best, *_ in Decoder(prepared.model, prepared.vocabulary).translate(sources, beam=1)]
    assert figures["bleu"] == BLEU().corpus_score(found, [references]).score
    assert figures["chrf"] == CHRF().corpus_score(found, [references]).score
    right = sum(one == other for one, other in zip(found, references, strict=True))
    assert figures["exact_match"] == 100 * right / 5
    assert learning.best_by == "loss"
    assert not learning.higher_is_better
    assert ticks == [(1, 1)]


def test_a_sample_of_none_and_one_that_is_larger_than_validation(pairs):
    none = learner(prepare(pairs, "sample=0"))
    assert none.validate(none.model, lambda done, of: None).keys() == {"loss"}
    all_of_it, more = (learner(prepare(pairs, f"sample={number}")) for number in (8, 1000))
    first, second = (each.validate(each.model, lambda done, of: None) for each in (all_of_it, more))
    assert first == second


@pytest.mark.parametrize("at_once", [1, 3, 32])
def test_the_loss_does_not_depend_on_how_many_pairs_are_read_at_once(pairs, monkeypatch, at_once):
    prepared = prepare(pairs)
    expected, count = plain_loss(prepared.model.eval(), prepared.valid)
    monkeypatch.setattr(task, "EVALUATION_PAIRS", at_once)
    assert loss_per_character(prepared.model, prepared.valid) == pytest.approx(expected / count, rel=1e-6)
