"""What came of a reload, for whoever asked for it. It reloads nothing."""

from __future__ import annotations

import msgspec


class ReloadReport(msgspec.Struct, frozen=True):
    """Taken whole, or refused whole: with problems, everything is as it was before."""

    policy: str
    """The hash of the policy that is in force now."""
    policy_before: str
    problems: tuple[str, ...] = ()
    """Why it was refused: all of them, each one line with its ``file:line:column`` where it has one."""
    warnings: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Servers, by name."""
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Other settings that are different now, by name."""
    restart: tuple[str, ...] = ()
    """Settings that were changed in the file and need a restart to count."""

    @property
    def result(self) -> str:
        """``changed``, ``unchanged`` or ``refused``: the label of samplegate_reloads_total."""
        if self.problems:
            return "refused"
        other = self.added or self.changed or self.removed or self.settings
        return "changed" if other or self.policy != self.policy_before else "unchanged"

    def lines(self) -> list[str]:
        """For people, one line each."""
        if self.problems:
            return [f"refused: nothing has changed, policy {self.policy} stays in force", *self.problems, *self._warned()]
        return [self.result, *self._changes(), *self._warned()]

    def _changes(self) -> list[str]:
        policy = f"policy {self.policy_before} -> {self.policy}" if self.policy != self.policy_before else ""
        names = {"servers added": self.added, "servers changed": self.changed, "servers removed": self.removed, "settings changed": self.settings}
        restart = f"need a restart to count: {', '.join(self.restart)}" if self.restart else ""
        return [*filter(None, [policy, *(f"{what}: {', '.join(found)}" for what, found in names.items() if found), restart])]

    def _warned(self) -> list[str]:
        return [f"warning: {warning}" for warning in self.warnings]
