from pages.parts.inputs import machine
from pages.parts.outputs import frame, local
from pages.parts.screen import heading
from pages.parts.state.local import local_answer
from pages.parts.state.query import MACHINE

answer = frame.page(MACHINE, local_answer, *machine.SECTIONS)
local.best(answer)
heading("Which file to download")
local.files(answer)
local.commands(answer)
local.folders(answer)
heading("What runs on it")
local.presets(answer)
local.traps()
