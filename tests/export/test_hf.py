"""Our runs under transformers: generation, training, saving; offline."""

from pathlib import Path

import pytest
import torch

import quasirnn
from processes import run_with_torch
from quasirnn.errors import UserError
from quasirnn.models.sampling import Sampler

RUNS = Path(__file__).parents[1] / "golden/runs"
LM, CLASSIFIER = RUNS / "language-model-qrnn", RUNS / "sentiment-qrnn"


@pytest.fixture(scope="module", autouse=True)
def _libraries():
    """Imported where these tests run, not wherever they are collected: it takes seconds."""
    global transformers, hf
    transformers = pytest.importorskip("transformers", reason="optional: pip install 'quasirnn[hf]'")
    hf = pytest.importorskip("quasirnn.hf")


@pytest.fixture(scope="module")
def model():
    return transformers.AutoModelForCausalLM.from_pretrained(LM)


@pytest.fixture
def prompts():
    """Three prompts of different lengths, padded on the left, and their mask."""
    rows = [torch.randint(1, 20, (length,)) for length in (7, 2, 5)]
    ids = torch.stack([torch.nn.functional.pad(row, (7 - len(row), 0)) for row in rows])
    mask = torch.stack([torch.nn.functional.pad(torch.ones_like(row), (7 - len(row), 0)) for row in rows])
    return rows, ids, mask


def generate(model, ids, **options):
    return model.generate(ids, do_sample=False, eos_token_id=None, pad_token_id=0, **options)


def test_auto_class_reads_a_run(model):
    assert type(model) is hf.QuasiRNNForCausalLM
    ids = torch.randint(20, (2, 9))
    expected, _ = quasirnn.load(LM).model(ids.T)
    assert torch.equal(model(ids).logits, expected.transpose(0, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16", "auto"])
def test_types_of_the_weights(dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(LM, dtype=dtype)
    assert model.dtype == (torch.float32 if dtype == "auto" else torch.bfloat16)


def test_guarantee_exports_agree_greedy_generation(model):
    pipeline = quasirnn.load(LM)
    prompt = pipeline.vocabulary.encode("The ")
    ours = pipeline.model.generate(prompt, Sampler(temperature=0))
    theirs = generate(model, prompt[None], max_new_tokens=200)[0, len(prompt) :]
    assert theirs.tolist() == [next(ours) for _ in range(200)]


@pytest.mark.parametrize("beams", [1, 3])
def test_left_padding_and_beams_equal_single_calls(model, prompts, beams):
    rows, ids, mask = prompts
    together = generate(model, ids, attention_mask=mask, num_beams=beams, max_new_tokens=12)
    for row, found in zip(rows, together, strict=True):
        alone = generate(model, row[None], num_beams=beams, max_new_tokens=12)
        assert found[7:].tolist() == alone[0, len(row) :].tolist()


def test_padding_on_either_side_has_no_effect(model, prompts):
    rows, ids, mask = prompts
    logits = model(ids, attention_mask=mask).logits
    right = torch.stack([torch.nn.functional.pad(row, (0, 7 - len(row)), value=3) for row in rows])
    right_mask = mask.flip(1)
    for n, row in enumerate(rows):
        alone = model(row[None]).logits[0]
        torch.testing.assert_close(logits[n, 7 - len(row) :], alone)
        torch.testing.assert_close(model(right, attention_mask=right_mask).logits[n, : len(row)], alone)
    with pytest.raises(ValueError, match="must be contiguous"):
        model(ids, attention_mask=torch.tensor([[1, 0, 1, 1, 1, 1, 1]] * 3))


def test_sampling_and_streaming(model):
    class Collected(transformers.generation.streamers.BaseStreamer):
        tokens: list = []  # noqa: RUF012

        def put(self, value):
            self.tokens += value.flatten().tolist()

        def end(self):
            pass

    torch.manual_seed(1)
    ids = torch.tensor([[1, 2]])
    result = model.generate(
        ids, do_sample=True, top_k=5, max_new_tokens=20, eos_token_id=None, pad_token_id=0, streamer=Collected()
    )
    assert Collected.tokens == result[0].tolist()
    assert result.shape == (1, 22)


def test_saved_and_loaded_it_is_the_same_to_the_bit_for_both_libraries(model, tmp_path):
    model.save_pretrained(tmp_path / "run")
    ids = torch.randint(20, (2, 9))
    expected = model(ids).logits
    assert torch.equal(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run")(ids).logits, expected)
    ours = quasirnn.load(tmp_path / "run")
    assert torch.equal(ours.model(ids.T)[0].transpose(0, 1), expected)
    assert ours.generate("The ", 5, seed=1) == quasirnn.load(LM).generate("The ", 5, seed=1)


def test_trainer_lowers_the_loss(tmp_path):
    pytest.importorskip("accelerate")
    torch.manual_seed(1)
    model = hf.QuasiRNNForCausalLM(hf.QuasiRNNConfig(arguments={"vocabulary_size": 12, "hidden_size": 16}))
    text = torch.arange(12).repeat(20)
    rows = [{"input_ids": text[n : n + 16], "labels": text[n : n + 16]} for n in range(200)]
    arguments = transformers.TrainingArguments(
        tmp_path, max_steps=50, per_device_train_batch_size=8, learning_rate=0.02, logging_steps=10, report_to=[],
        use_cpu=True, disable_tqdm=True, save_steps=50,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert losses[-1] < 0.5 * losses[0]
    saved = hf.QuasiRNNForCausalLM.from_pretrained(tmp_path / "checkpoint-50")
    assert torch.equal(saved(text[None]).logits, model.eval()(text[None]).logits)


def test_classifier():
    model = transformers.AutoModelForSequenceClassification.from_pretrained(CLASSIFIER)
    pipeline = quasirnn.load(CLASSIFIER)
    texts = ["a good story", "not exactly a bad film , but the music is dull"]
    ids = [pipeline.vocabulary.encode(text) for text in texts]
    longest = max(map(len, ids))
    padded = torch.stack([torch.nn.functional.pad(row, (longest - len(row), 0)) for row in ids])
    mask = torch.stack([torch.nn.functional.pad(torch.ones_like(row), (longest - len(row), 0)) for row in ids])
    output = model(padded, attention_mask=mask, labels=torch.tensor([0, 1]))
    for n, text in enumerate(texts):
        probabilities = pipeline.classify(text).probabilities
        torch.testing.assert_close(
            output.logits[n].softmax(0).tolist(), list(probabilities.values()), rtol=1e-4, atol=1e-5
        )
    assert output.loss.isfinite()


def test_tokenizer_gives_our_numbers_and_texts(tmp_path):
    tokenizer = hf.tokenizer(LM)
    vocabulary = quasirnn.load(LM).vocabulary
    text = "to the stone\nof §"
    assert tokenizer(text)["input_ids"] == vocabulary.encode(text).tolist()
    tokenizer.save_pretrained(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"] == tokenizer(text)["input_ids"]
    with pytest.raises(UserError, match="tokenise_review"):
        hf.tokenizer(CLASSIFIER)


def vocabulary_and_tokenizer(folder, level):
    """Of the same text; they give the same ids."""
    vocabulary = quasirnn.load(LM).vocabulary.from_text("to be or not\nto be\n", level)
    (folder / "vocabulary.json").write_text(vocabulary.to_json())
    tokenizer = hf.tokenizer(folder)
    text = "to  do\nor be\n"
    assert tokenizer(text)["input_ids"] == vocabulary.encode(text).tolist()
    return vocabulary, tokenizer


def test_words_as_tokens(tmp_path):
    vocabulary, tokenizer = vocabulary_and_tokenizer(tmp_path, "word")
    assert tokenizer.decode(vocabulary.encode("to be or")) == "to be or"


def test_characters_as_tokens(tmp_path):
    vocabulary, tokenizer = vocabulary_and_tokenizer(tmp_path, "character")
    assert tokenizer.decode(vocabulary.encode("to be\nor")) == "to be\nor"
    # As pipelines decode: nothing of the text is a special token.
    assert tokenizer.decode(vocabulary.encode("to be\nor"), skip_special_tokens=True) == "to be\nor"
    assert tokenizer(["to be", "or"], padding=True)["attention_mask"] == [[1] * 5, [0, 0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("run", "message"), [("language-model-lstm", "this one is an LSTM"), ("translation-qrnn", "contains a Translator")]
)
def test_other_runs_are_refused(run, message):
    with pytest.raises(UserError, match=message):
        hf.QuasiRNNForCausalLM.from_pretrained(RUNS / run)


def test_without_the_package_one_line_names_the_remedy(tmp_path):
    program = "import sys; sys.modules['transformers'] = None\nimport quasirnn.hf"
    result = run_with_torch(program)
    assert "pip install 'quasirnn[hf]'" in result.stderr.splitlines()[-1]
