"""Where a run stands, as numbers. A checkpoint holds them as JSON."""

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class State:
    """All processes hold the same values, but for the minutes, where the first one's count."""

    step: int = 0
    epoch: int = 0  # epochs completed
    position: int = 0  # steps made in this epoch
    validated: int | None = None  # the step of the last validation
    best: float | None = None
    best_step: int | None = None
    stale: int = 0  # ends of epochs since the best figure
    minutes: float = 0.0
    loss_total: float = 0.0  # of all items since the last record of training
    loss_items: float = 0.0

    @property
    def epoch_number(self) -> int:
        """The epoch of the step that was made last, counted from 1."""
        return max(1, self.epoch + (self.position > 0))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "State":
        """Raises KeyError for a missing value and TypeError for one of another type."""
        state = cls(**{field.name: values[field.name] for field in fields(cls)})
        for field in fields(cls):
            value = getattr(state, field.name)
            kinds: tuple[type, ...] = (int, float) if "float" in str(field.type) else (int,)
            fits = isinstance(value, kinds) and not isinstance(value, bool)
            if not fits and not (value is None and "None" in str(field.type)):
                raise TypeError(f"state.json: {field.name} is {value!r}")
        return state
