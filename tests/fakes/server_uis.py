"""Servers' own UIs: reviews that show one, and apps for them, well-behaved and hostile."""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

from msgspec.structs import replace

from samplegate.reviews.review import Review, ReviewUi
from tests.fakes import page_reviews as shown
from tests.paths import ROOT

PICKER: Final = (ROOT / "proxy/samplegate/demo/color_picker.html").read_bytes()
FIELDS: Final[dict[str, Any]] = {
    "color": {"type": "string", "title": "Color", "pattern": "^#[0-9a-fA-F]{6}$"},
    "name": {"type": "string", "title": "Color name"},
}
CONTEXT: Final = {"defaultColor": "#3b82f6", "theme": "light"}
Dialect = Literal["sep-3118", "rich"]


def review(
    id: str = "rv_ui" + "0" * 22, dialect: Dialect = "sep-3118", *, origins: tuple[str, ...] = (), **more: Any
) -> Review:
    """A form that asks for a color, whose UI is being loaded."""
    context = CONTEXT if dialect == "rich" else None
    ui = ReviewUi(uri="ui://deployer/picker", dialect=dialect, context=context, origins=origins)
    return shown.form(FIELDS, ("color",), **{"id": id, "ui": ui} | more)


def ready(of: Review, body: bytes) -> ReviewUi:
    """The UI of a review when these bytes have been read."""
    assert of.ui is not None
    return replace(of.ui, state="ready", sha256=hashlib.sha256(body).hexdigest(), size=len(body))


def ready_at(of: Review, url: str) -> ReviewUi:
    """The UI of a review when its server has given this URL."""
    return replace(ready(of, url.encode()), url=url)


def app(script: str, body: str = "<p>An app</p>") -> bytes:
    """A document with this script. It has ``post`` to send to the page, and ``hello`` for the messages of a
    well-behaved start in both dialects, which runs ``asked(message)`` for each request of the page."""
    return f"""<!doctype html><meta charset="utf-8"><title>App</title>{body}<script>
const post = (message) => parent.postMessage(message, "*");
function hello(asked) {{
  addEventListener("message", ({{ data }}) => {{
    if (data.id === 0 && data.result) post({{ jsonrpc: "2.0", method: "ui/notifications/initialized" }});
    else asked(data);
  }});
  post({{ type: "ui-lifecycle-iframe-ready" }});
  const appInfo = {{ name: "a", version: "1" }}, appCapabilities = {{ elicitation: {{}} }};
  post({{ jsonrpc: "2.0", id: 0, method: "ui/initialize",
    params: {{ appInfo, appCapabilities, protocolVersion: "2026-01-26" }} }});
}}
const answer = (to, action, content) => post(to.id === undefined
  ? {{ jsonrpc: "2.0", method: "ui/submit-elicitation", params: {{ action, content: content ?? null }} }}
  : {{ jsonrpc: "2.0", id: to.id, result: content === undefined ? {{ action }} : {{ action, content }} }});
{script}
</script>""".encode()
