"""Inputs of strangers at every door: links, pasted texts, uploads, the command line, what the Hub says.

Each input follows from its door, a seed and its number, so that one that did harm can be made again:
`python -m tests.hostile 100000` draws so many and says what did; `python -m tests.hostile --door link --number 17`
draws one of them. An input of a number is another once a preset or an option is added: those that did harm are written
down in tests/data/hostile.json, with what they did. Drawn last: 12,000 inputs of seed 301 and 20,000 of seed 302, the
latter with slices, the host's memory, logs next to a model and conversions among them.
"""
