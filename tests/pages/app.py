"""The app without a browser."""

import json

from streamlit.testing.v1 import AppTest

from tests import ROOT


def page(name="weigh", /, **query):
    """A page as one finds it behind a link."""
    app = AppTest.from_file(ROOT / "pages" / "router.py", default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    return run(app if name == "weigh" else app.switch_page(f"{name}.py"))


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
    return {metric.label: metric.value for metric in app.metric}


def charts(app):
    """The figures that the page's own chart draws, by their keys."""
    drawn = [chart.proto for chart in app.get("bidi_component") if chart.proto.component_name == "weighbridge_chart"]
    return {chart.id.rpartition("-")[2]: json.loads(chart.json)["figure"] for chart in drawn}


def texts(elements):
    return [element.value for element in elements]
