"""Pure. A policy that has been read but not yet checked, with its tree: so that a check can say where. Not the
checks."""

from __future__ import annotations

from samplegate.policy.catalogue import Catalogue
from samplegate.policy.schema import Policy
from samplegate.yamlfile.tree import Fault, Mapping, Mark, Node, Path, find, mark


class Draft:
    """The policy, where each of its values stands, which places are already known to be broken, and what the checks
    found."""

    def __init__(self, policy: Policy, root: Node, broken: set[Path]) -> None:
        self.policy = policy
        self.root = root
        self.problems: list[Fault] = []
        self.warnings: list[Fault] = []
        self.catalogue: Catalogue = {}
        self._broken = broken
        self._above = {path[:size] for path in broken for size in range(len(path) + 1)}

    def sound(self, *path: str | int) -> bool:
        """Whether nothing at, below or above ``path`` is broken, so that its value is what the file says."""
        return path not in self._above and not any(path[:size] in self._broken for size in range(len(path)))

    def says(self, *path: str | int) -> bool:
        """Whether the file itself has something at ``path``, rather than a default."""
        return find(self.root, path) is not None

    def problem(self, path: Path, what: str, *, key: bool = False) -> None:
        """Something that keeps the policy from being used; ``key`` points at the key rather than at its value."""
        self.problems.append(Fault(self.mark(path, key=key), path, what))

    def warn(self, path: Path, what: str, *, key: bool = False) -> None:
        """Something that is probably not meant."""
        self.warnings.append(Fault(self.mark(path, key=key), path, what))

    def mark(self, path: Path, *, key: bool = False) -> Mark:
        """Where ``path`` stands, or the nearest place above it that the file has."""
        if key and path:
            parent = find(self.root, path[:-1])
            if isinstance(parent, Mapping) and path[-1] in parent.entries:
                return parent.entries[str(path[-1])].mark
        return mark(self.root, path)

    def line(self, path: Path) -> int:
        """The line of ``path``, for a message about another place."""
        return self.mark(path).line
