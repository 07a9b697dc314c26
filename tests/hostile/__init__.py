"""Inputs of strangers at every door: links, pasted texts, uploads, the command line, what the Hub says.

Each input follows from its door, a seed and its number, so that one that did harm can be made again:
`python -m tests.hostile 100000` draws so many and says what did; `python -m tests.hostile --door link --number 17`
draws one of them. Those that did harm before are written down in tests/data/hostile.json, with what they did.
"""
