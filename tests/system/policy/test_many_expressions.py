"""More expressions than RE2's filter has memory for. Only that many show what RE2 does then."""

from __future__ import annotations

from hashlib import md5

from samplegate.regex import finder


def test_expressions_too_many_for_one_pass_are_searched_one_by_one() -> None:
    words = {
        f"set-{number}": "|".join(md5(b"%d %d" % (number, each)).hexdigest()[:10] for each in range(900))
        for number in range(100)
    }
    many = finder(words)
    assert many.quick is None
    assert ["set-99"] == [name for name, _ in many.hits(md5(b"99 899").hexdigest().encode())]
