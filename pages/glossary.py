from pages.parts.outputs import frame, glossary
from pages.parts.state.query import GLOSSARY

frame.without_model(GLOSSARY)
glossary.draw()
