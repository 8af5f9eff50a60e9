"""What of a review is sent as it is: a picture, and the JSON of what was asked. In a sandbox each, and never as anything that a browser runs."""

from __future__ import annotations

import itertools
import json
from typing import Final

from starlette.responses import Response

from samplegate.core.review.review import Review
from samplegate.web import images
from samplegate.web.render import HEADERS

_SANDBOX: Final = {**HEADERS, "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}


def picture_of(review: Review, number: int) -> Response | None:
    """The picture with this number on the page; None where there is none that may be shown."""
    block = next(itertools.islice(images.all_of(review), number, None), None)
    found = None if block is None else images.picture(block)
    if found is None or isinstance(found, str):
        return None
    return Response(found.data, 200, {**_SANDBOX, "content-disposition": "inline"}, found.type)


def raw_of(review: Review) -> Response:
    """Everything that was asked, as indented text."""
    whole = {"method": review.method, "params": review.params, "arguments": review.arguments}
    if review.answer is not None:
        whole["answer"] = review.answer
    text = json.dumps(whole, indent=2, ensure_ascii=True)  # what is not ASCII is escaped: nothing hides here either
    return Response(text, 200, {**_SANDBOX, "content-disposition": "inline"}, "text/plain; charset=utf-8")
