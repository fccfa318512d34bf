"""`quasirnn models`: the trained models that are installed."""

import json

from quasirnn.tasks.console import AsJson


def models(as_json: AsJson = False) -> None:
    """List the installed models with their size and test results.

    You can use these names wherever a command takes a RUN: quasirnn classify reviews-en "...".
    """
    from quasirnn.tasks import shipped

    installed = [shipped.facts(folder) for folder in shipped.models().values()]
    if as_json:
        print(json.dumps({"models": installed}))
    elif not installed:
        print(f"No trained models are installed. To install ours: {shipped.INSTALL}")
    for each in [] if as_json else installed:
        print(f"{each['name']:<15} {each['task']:<15} {each['bytes'] / 1e6:>4.1f} MB   {figure(each['test'])}")
        print(f"{'':<15} {each['card']}")


def figure(test: dict[str, object]) -> str:
    """The first of the figures that a task is known by, in its unit."""
    units = {
        "accuracy": "accuracy {:.2f} %",
        "bleu": "BLEU {:.2f}",
        "bits_per_character": "{:.3f} bits per character",
        "perplexity": "perplexity {:.2f}",
    }
    for name, form in units.items():
        if isinstance(value := test.get(name), int | float):
            return f"{form.format(value)} on {test.get('corpus')}, {test.get('split')}"
    return "not evaluated"
