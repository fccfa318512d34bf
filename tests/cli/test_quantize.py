"""`quasirnn quantize`: an int8 copy that the other commands take."""

import pytest

import quasirnn
from cli.command import as_json, here


@pytest.mark.parametrize("options", [(), ("--layers-only",)])
def test_the_copy_evaluates_to_nearly_the_same(tiny_runs, tmp_path, options):
    run, small = tiny_runs / "word", tmp_path / "runs" / "word8"
    result = here("quantize", run, "--out", small, *options)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Wrote {small}: ")
    before, after = as_json("evaluate", run), as_json("evaluate", small)
    assert after["tokens"] == before["tokens"]
    assert after["perplexity"] == pytest.approx(before["perplexity"], rel=0.02)
    assert (small / "model.safetensors").stat().st_size < (run / "model.safetensors").stat().st_size
    assert quasirnn.load(small).generate("a", length=3)


def test_what_is_there_stays(tiny_runs, tmp_path):
    (tmp_path / "word8").mkdir()
    result = here("quantize", tiny_runs / "word", "--out", tmp_path / "word8")
    assert result.code == 2
    assert "already exists" in result.stderr
    assert not list((tmp_path / "word8").iterdir())


def test_a_copy_of_a_copy_and_a_run_that_is_none(tiny_runs, tmp_path):
    assert as_json("quantize", tiny_runs / "word", "--out", tmp_path / "one")["bytes"] > 0
    again = here("quantize", tmp_path / "one", "--out", tmp_path / "two")
    assert again.code == 2
    assert "already quantised" in again.stderr
    assert here("quantize", tmp_path, "--out", tmp_path / "three").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]
