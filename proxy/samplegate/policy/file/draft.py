"""Pure. Draft of a policy: read but not yet checked, with its tree, so that checks can report positions."""

from __future__ import annotations

from samplegate.policy.catalogue import Catalogue
from samplegate.policy.schema import Policy
from samplegate.yamlfile.tree import Fault, Mapping, Mark, Node, Path, find, mark


class Draft:
    """A policy with its tree, the paths that are already known to be broken, and the findings of the checks."""

    def __init__(self, policy: Policy, root: Node, broken: set[Path]) -> None:
        self.policy = policy
        self.root = root
        self.problems: list[Fault] = []
        self.warnings: list[Fault] = []
        self.catalogue: Catalogue = {}
        self._broken = broken
        self._above = {path[:size] for path in broken for size in range(len(path) + 1)}

    def sound(self, *path: str | int) -> bool:
        """Whether nothing at, below or above ``path`` is broken, so that its value is the file's."""
        return path not in self._above and not any(path[:size] in self._broken for size in range(len(path)))

    def has_value(self, *path: str | int) -> bool:
        """Whether the file has a value at ``path``, rather than a default."""
        return find(self.root, path) is not None

    def problem(self, path: Path, what: str, *, key: bool = False) -> None:
        """Add an error. ``key`` points at the key instead of its value."""
        self.problems.append(Fault(self.mark(path, key=key), path, what))

    def warn(self, path: Path, what: str, *, key: bool = False) -> None:
        """Add a warning about a probable mistake."""
        self.warnings.append(Fault(self.mark(path, key=key), path, what))

    def mark(self, path: Path, *, key: bool = False) -> Mark:
        """The position of ``path``, or of its nearest parent in the file."""
        if key and path:
            parent = find(self.root, path[:-1])
            if isinstance(parent, Mapping) and path[-1] in parent.entries:
                return parent.entries[str(path[-1])].mark
        return mark(self.root, path)

    def line(self, path: Path) -> int:
        """The line of ``path``, for a message about another position."""
        return self.mark(path).line
