from pages.parts.outputs import frame
from pages.parts.screen import caption
from pages.parts.state.query import VERIFY
from pages.parts.state.weighed import looked
from pages.parts.verify import log, sources

answer = frame.page(VERIFY, looked, needs_answer=False)
caption("Theory against measurement: what is computed beside what a checkpoint holds and what a GPU reports.")

choice = sources.chosen_source()
if choice == "presets":
    sources.all_presets()
elif choice == "measured":
    sources.own_measurement()
elif answer.error is not None:
    frame.explain(answer, VERIFY)
elif choice == "log":
    log.draw(answer)
else:
    sources.draw(answer, choice)
