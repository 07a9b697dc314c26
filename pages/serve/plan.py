from pages.parts.inputs import efficiencies, planning
from pages.parts.outputs import frame, from_other_pages, paper, plans
from pages.parts.state.planned import planned
from pages.parts.state.query import PLAN

answer = frame.page(PLAN, planned, *planning.SECTIONS)
from_other_pages.on_plan(answer)
plans.best(answer)
chosen = plans.table(answer)
plans.frontier(answer, chosen)
plans.sensitivity(answer)
paper.link(answer, "time")
plans.listed_prices(answer)
if chosen is not None:
    efficiencies.draw(answer, chosen.gpu, chosen.efficiencies, training=False)
frame.assumptions(answer.plans.assumptions)
