"""Trained models for quasirnn, a run folder each; `quasirnn models` lists them, `quasirnn.load(NAME)` loads one."""
