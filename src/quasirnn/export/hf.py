"""Hugging Face transformers: our runs under `AutoModelForCausalLM` and `AutoModelForSequenceClassification`.

Importing this registers the two models; no code is fetched or run from a folder. A folder is what `quasirnn train`
makes: reading and writing are ours (`models/pretrained.py`), with their checks.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import MissingPackageError, UserError
from quasirnn.models import LanguageModel, SequenceClassifier
from quasirnn.models.pretrained import CONFIG, Pretrained, constructor_arguments, read_config
from quasirnn.nn import QRNN
from quasirnn.tasks.run_folder import Run

try:
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
    from transformers.cache_utils import DynamicCache
    from transformers.modeling_outputs import CausalLMOutputWithPast, SequenceClassifierOutput
except ImportError as error:
    raise MissingPackageError("quasirnn.hf needs transformers: pip install 'quasirnn[hf]'") from error

MODEL_TYPE = "quasirnn"
MODELS: dict[str, Any] = {model.__name__: model for model in (LanguageModel, SequenceClassifier)}
# Other files of a run, which are copied when the model is saved.
COMPANIONS = ("training.json", "vocabulary.json", "environment.json", "metrics.jsonl")
# Positions that the loss leaves out, in transformers.
IGNORED = -100


class QuasiRNNConfig(transformers.PreTrainedConfig):
    """The arguments of a model, and what transformers asks of every configuration.

    Args:
        model: "LanguageModel" or "SequenceClassifier".
        arguments: of its constructor; their defaults where left out.
        run: the folder that the model came from: its vocabulary is copied when the model is saved.
    """

    model_type = MODEL_TYPE

    def __init__(
        self, model: str = "LanguageModel", arguments: dict[str, Any] | None = None, run: str | None = None, **more: Any
    ) -> None:
        self.model = model
        self.arguments = dict(arguments or {})
        self.run = run
        built = _built(model, self.arguments)
        rnn = built.rnn
        if not isinstance(rnn, QRNN):
            raise UserError("quasirnn.hf: only QRNN models are supported; this one is an LSTM.")
        self.vocab_size = built.embedding.num_embeddings
        self.hidden_size, self.num_hidden_layers = rnn.hidden_size, rnn.num_layers
        # The cache then has one recurrent state for each layer.
        self.layer_types = ["linear_attention"] * rnn.num_layers
        self.use_cache = True
        if isinstance(built, SequenceClassifier):
            more.setdefault("num_labels", built.output.out_features)
            more.setdefault("pad_token_id", built.embedding.padding_idx)
        # Tied weights are one tensor in our modules.
        super().__init__(**{"tie_word_embeddings": False, **more})

    @classmethod
    def from_run(cls, folder: str | Path, **more: Any) -> QuasiRNNConfig:
        """The configuration of a run or of a folder that `save_pretrained` wrote."""
        folder = Path(folder)
        config = read_config(folder)
        if config.get("quantized"):
            raise UserError(f"{folder}: is an int8 copy; use the original run.")
        if config["model"] not in MODELS:
            raise UserError(f"{folder}: contains a {config['model']}; transformers supports {' and '.join(MODELS)}.")
        arguments = constructor_arguments(MODELS[config["model"]], config, folder / CONFIG)
        run = Run(folder)
        if run.vocabulary.exists():
            vocabulary = run.read_vocabulary()
            for role, name in (("padding", "pad_token_id"), ("end", "eos_token_id")):
                if role in vocabulary.specials:
                    more.setdefault(name, vocabulary.special(role))
        return cls(config["model"], _plain(arguments), str(folder.absolute()), **more)


class _OnRuns(transformers.PreTrainedModel):
    """Reads and writes run folders; rows may be padded on either side."""

    config_class = QuasiRNNConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    kind: ClassVar[type[Pretrained]]

    def __init__(self, config: QuasiRNNConfig) -> None:
        super().__init__(config)
        self.model: Any = _built(config.model, config.arguments)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing to do: the constructors of our models initialise their weights."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, *arguments: Any, **options: Any) -> Any:
        """The model of a run, in eval mode. Of the options `config`, `dtype` and `torch_dtype` have an effect."""
        config = options.get("config") or QuasiRNNConfig.from_run(folder)
        model = cls(config)
        model.model = cls.kind.from_pretrained(folder)
        dtype = options.get("dtype", options.get("torch_dtype"))
        # Also as its name: "bfloat16". "auto" is what the file has.
        dtype = getattr(torch, dtype) if isinstance(dtype, str) and dtype != "auto" else dtype
        return (model.to(dtype) if isinstance(dtype, torch.dtype) else model).eval()

    def save_pretrained(self, folder: str | Path, *arguments: Any, **options: Any) -> None:
        """What `quasirnn.load` and `from_pretrained` read; with the vocabulary of the run that the model came from."""
        folder = Path(folder)
        self.model.save_pretrained(folder)
        for name in COMPANIONS:
            file = Path(self.config.run or folder) / name
            if file.exists() and file.absolute() != (folder / name).absolute():
                shutil.copyfile(file, folder / name)

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.embedding = value


class QuasiRNNForCausalLM(_OnRuns, transformers.GenerationMixin):
    """A `LanguageModel` that `generate` can use: greedy, sampling, beams, batches padded on the left, streamers."""

    kind = LanguageModel
    # The state cannot be rolled back, so there is no assisted generation.
    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """The first call makes a `StateCache`."""
        return False

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | dict[str, Tensor | None] | None = None,
        past_key_values: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **unused: Any,
    ) -> Any:
        """Logits (B, T, V); with `labels`, shifted inside, the mean loss. `attention_mask` is 0 in the padding."""
        T = input_ids.shape[1]
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if past_key_values is None and use_cache and not self.training:
            past_key_values = StateCache(self.config)
        if isinstance(attention_mask, dict):  # generate makes one for each kind of layer
            attention_mask = attention_mask["linear_attention"]
        # During generation the mask also covers the tokens that were read before.
        mask = None if attention_mask is None else attention_mask[:, -T:].bool()
        rows = None if mask is None or bool(mask.all()) else _Rows(mask)
        tokens = input_ids if rows is None else rows.to_left(input_ids)
        state = None if past_key_values is None else past_key_values.state()
        lengths = None if rows is None else rows.lengths
        h, (_, c_n) = self.model.hidden(tokens.T, state, lengths)
        if past_key_values is not None:
            past_key_values.keep(c_n, T)
        h = h.transpose(0, 1)
        h = h if rows is None else rows.restore(h)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.model.softmax(h[:, kept])
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(
                logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=IGNORED
            )
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
        return output if return_dict is None or return_dict else output.to_tuple()

    def get_output_embeddings(self) -> nn.Module:
        return self.model.softmax


class QuasiRNNForSequenceClassification(_OnRuns):
    """A `SequenceClassifier` on (B, T) tokens, padded on either side."""

    kind = SequenceClassifier

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **unused: Any,
    ) -> Any:
        """Logits (B, classes); with `labels` the mean loss."""
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        rows = _Rows(mask)
        logits = self.model(rows.to_left(input_ids).T, rows.lengths)
        loss = None if labels is None else functional.cross_entropy(logits.float(), labels)
        output = SequenceClassifierOutput(loss=loss, logits=logits)
        return output if return_dict is None or return_dict else output.to_tuple()


class StateCache(DynamicCache):
    """transformers' cache with a recurrent state for each layer, (B, H + C); and how many tokens were read.

    The count is what `DynamicCache` asks of attention layers, of which there are none.
    """

    def __init__(self, config: QuasiRNNConfig) -> None:
        super().__init__(config=config)
        self.hidden_size, self.seen = config.hidden_size, 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen

    def state(self) -> tuple[Tensor, Tensor] | None:
        """(h, c) as our layers take it; h has no effect."""
        if not self.seen:
            return None
        c = torch.stack([layer.recurrent_states[0] for layer in self.layers])
        return c[..., : self.hidden_size], c

    def keep(self, c_n: Tensor, steps: int) -> None:
        for layer, c in zip(self.layers, c_n, strict=True):
            # reorder_cache, which beams need, looks for it.
            layer.device = c.device
            layer.update_recurrent_state(c.detach())
        self.seen += steps


class _Rows:
    """Rows of contiguous tokens, with padding before or after them."""

    def __init__(self, mask: Tensor) -> None:
        T = mask.shape[1]
        self.lengths = mask.sum(1)
        start = mask.int().argmax(1)
        step = torch.arange(T, device=mask.device)
        if not torch.equal(mask, (step >= start[:, None]) & (step < (start + self.lengths)[:, None])):
            raise ValueError(
                "attention_mask: the tokens of a row must be contiguous, with padding before or after them."
            )
        # A row without tokens reads one, whose output is not used.
        self.lengths = self.lengths.clamp(min=1)
        self.mask = mask
        self._from = (start[:, None] + step) % T
        self._back = (step - start[:, None]) % T

    def to_left(self, tokens: Tensor) -> Tensor:
        """(B, T), padded at the end."""
        return tokens.gather(1, self._from)

    def restore(self, h: Tensor) -> Tensor:
        """(B, T, H) in the order in which the rows came."""
        return h.gather(1, self._back[..., None].expand_as(h))


def tokenizer(folder: str | Path) -> transformers.PreTrainedTokenizerFast:
    """The vocabulary of a run as a tokenizer of transformers; `save_pretrained` writes it for `AutoTokenizer`.

    Raises:
        UserError: a classifier's words follow rules that such a tokenizer cannot have.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    vocabulary: Vocabulary = Run(Path(folder)).read_vocabulary()
    if vocabulary.tokeniser == "review":
        raise UserError(
            f"{folder}: its words follow the rules of quasirnn.data.vocabulary.tokenise_review, which no tokenizer of "
            "transformers has: use quasirnn.load(RUN).vocabulary.encode(text)."
        )
    specials = vocabulary.specials
    made = Tokenizer(
        models.WordLevel({token: n for n, token in enumerate(vocabulary.tokens)}, unk_token=specials.get("unknown"))
    )
    steps: list[Any] = [normalizers.Lowercase()] if vocabulary.lowercase else []
    if vocabulary.kind == "word":
        if "end" in specials:
            steps.append(normalizers.Replace("\n", f" {specials['end']} "))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        made.decoder = decoders.Fuse()
    if steps:
        made.normalizer = normalizers.Sequence(steps)
    names = {"unknown": "unk_token", "end": "eos_token", "padding": "pad_token", "start": "bos_token"}
    roles = {names[role]: token for role, token in specials.items()}
    # Running text has no padding; what fills a row up is masked, whatever it is. Not a token of the text: decoding
    # without special tokens would leave it out.
    filler = specials.get("end", specials.get("unknown"))
    if filler is not None:
        roles.setdefault("pad_token", filler)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, padding_side="left", clean_up_tokenization_spaces=False, **roles
    )


def _built(model: str, arguments: dict[str, Any]) -> Any:
    defaults = {"vocabulary_size": 2, "num_classes": 2} if model == "SequenceClassifier" else {"vocabulary_size": 2}
    return MODELS[model](**{**defaults, **arguments})


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON represents them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()}


def _with_model_type(read: Any) -> Any:
    """transformers finds a class by "model_type", which our config.json does not have: add it to those of ours."""

    def get_config_dict(cls: Any, /, folder: Any, **options: Any) -> Any:
        config, rest = read(folder, **options)
        if "model_type" not in config and config.get("model") in MODELS:
            config = QuasiRNNConfig.from_run(folder).to_dict()
        return config, rest

    return classmethod(get_config_dict)


transformers.PreTrainedConfig.get_config_dict = _with_model_type(transformers.PreTrainedConfig.get_config_dict)
AutoConfig.register(MODEL_TYPE, QuasiRNNConfig, exist_ok=True)
AutoModelForCausalLM.register(QuasiRNNConfig, QuasiRNNForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(QuasiRNNConfig, QuasiRNNForSequenceClassification, exist_ok=True)

__all__ = ["QuasiRNNConfig", "QuasiRNNForCausalLM", "QuasiRNNForSequenceClassification", "tokenizer"]
