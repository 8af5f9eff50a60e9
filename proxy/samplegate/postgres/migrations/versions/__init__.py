"""One file per migration. Never change a released migration; add another."""
