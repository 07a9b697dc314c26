import streamlit as st

from pages.parts.inputs import machine
from pages.parts.outputs import frame, local
from pages.parts.state.local import local_answer
from pages.parts.state.query import MACHINE
from pages.parts.words import say

answer = frame.page(MACHINE, local_answer, *machine.SECTIONS)
local.best(answer)
st.header(say("Which file to download"), anchor=False)
local.files(answer)
local.commands(answer)
local.folders(answer)
st.header(say("What runs on it"), anchor=False)
local.presets(answer)
local.traps()
