"""What went wrong before a link could carry its first line. Not the end of a link: that is a value, told to its receiver."""

from __future__ import annotations


class CannotStart(Exception):
    """A link cannot be opened, and the person at the command line can mend it. Its text is one finished message."""

    def __init__(self, place: str, value: str, fault: str, remedy: str) -> None:
        super().__init__(f"{place}: {value!r} {fault}; {remedy}" if value else f"{place}: {fault}; {remedy}")
        self.place = place
        self.value = value
        self.fault = fault
        self.remedy = remedy
