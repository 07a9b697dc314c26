from pages.parts.outputs import frame, glossary
from pages.parts.state.query import GLOSSARY
from pages.parts.words import say

frame.without_model(GLOSSARY, say("Glossary"))
glossary.draw()
