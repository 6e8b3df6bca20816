"""The demo: a small GPT trains and a pretrained encoder embeds, in eager and with `backend="mps_attention"`.

`python -m inductor_mps_attention demo` runs `run.main`. Each part is a function that returns a frozen
dataclass with a `failures()` method: `training.compare_training`, `memory.compare_memory`,
`encoder.compare_encoder`. Only `presentation` and `run` print. Needs the package's extra `demo`.
"""
