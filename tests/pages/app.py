"""The app without a browser."""

import json
import re

from streamlit.testing.v1 import AppTest

from pages.parts.state.query import PAGES
from tests import ROOT

DRAWERS = ("engine_drawer", "layout_drawer", "overhead_drawer")
"""Where Weigh keeps the rarer choices of serving."""


def page(name="weigh", /, *opened, **query):
    """A page as one finds it behind a link, with these drawers and derivations open."""
    app = AppTest.from_file(ROOT / "pages" / "router.py", default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    for key in opened:
        app.session_state[key] = True
    return run(app if name == "weigh" else app.switch_page(script(name)))


def script(name):
    """Of a page by its path; that of the first is `weigh`."""
    return next(page.script for page in PAGES if (page.path or "weigh") == name)


def run(what):
    app = what.run()
    assert not app.exception
    return app


def opened(app, *keys):
    """The same with these drawers and derivations open."""
    for key in keys:
        app.session_state[key] = True
    return run(app)


def metrics(app):
    """Figures by their labels: Streamlit's, and those that open their derivation."""
    own = [figure for data in components(app, "weighbridge_figures").values() for figure in data["figures"]]
    return {metric.label: metric.value for metric in app.metric} | {one["label"]: one["value"] for one in own}


def components(app, name):
    """What components of the page's own are given, by their keys."""
    drawn = [one.proto for one in app.get("bidi_component") if one.proto.component_name == name]
    return {one.id.rpartition("-")[2]: json.loads(one.json)[0] for one in drawn}


QUESTION = "weighbridge_question"


def question(app):
    """What the controls of the question say."""
    (bar,) = components(app, QUESTION).values()
    return bar["values"]


def ask(app, **values):
    """What a reader does with controls of the question."""
    (bar,) = [one.proto for one in app.get("bidi_component") if one.proto.component_name == QUESTION]
    states = app._tree.get_widget_states()
    states.widgets.add(id=bar.id, json_value=json.dumps({"sentence": question(app) | values}))
    app._run(states)
    assert not app.exception
    return app


def charts(app):
    """The figures that the page's own chart draws, by their keys."""
    return {key: data["figure"] for key, data in components(app, "weighbridge_chart").items()}


def rows(app, key):
    """A table: a row a dict by the heads."""
    table = components(app, "weighbridge_rows")[key]
    heads = [column["label"] for column in table["columns"]]
    return [dict(zip(heads, row["cells"], strict=True)) for row in table["rows"]]


def finding(app):
    """The title of a page, without the colour of its verb or its stress, its spaces all alike."""
    return re.sub(r":[a-z]+\[(.*?)\]", r"\1", app.title[0].value).replace("**", "").replace("\N{NO-BREAK SPACE}", " ")


def facts(app):
    """The figures below the title by their labels."""
    (line,) = [one.proto.body for one in app.get("html") if "<small>" in one.proto.body]
    return {label: value for value, label in re.findall("<b>(.*?)</b><span>(.*?)</span>", line)}


def texts(elements):
    """What elements say, its spaces all alike."""
    return [element.value.replace("\N{NO-BREAK SPACE}", " ") for element in elements]


def newest(elements, name):
    """The widget that shows a field now: a new one takes its place where it is set by anything but itself."""
    numbered = {one.key.partition("~")[2]: one for one in elements if one.key and one.key.partition("~")[0] == name}
    return numbered[max(numbered, key=lambda number: int(number or 0))]
