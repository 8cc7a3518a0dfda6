"""Working folder of a process: where a cell has changed it, the notebook's kernel follows."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...streams import named


@named
@dataclass(frozen=True)
class WorkingFolder:
    """A folder; ``inode`` tells whether another machine sees the same one there, or just one of the same path."""

    path: str
    inode: int

    @classmethod
    def current(cls) -> WorkingFolder:
        """The folder of this process; without a path if it was deleted."""
        try:
            return cls(os.getcwd(), os.stat(".").st_ino)
        except OSError:
            return cls("", 0)

    def change_to(self) -> bool:
        """Make it this process' folder; False: it is not to be had here."""
        try:
            if os.stat(self.path).st_ino != self.inode:
                return False
            os.chdir(self.path)
        except OSError:
            return False
        return True

    def is_in(self, folder: str) -> bool:
        """Tell if it is ``folder`` or below it."""
        return bool(folder) and f"{self.path}/".startswith(f"{os.path.realpath(folder)}/")

    def say_not_followed(self, why: str) -> str:
        """A sentence for the receipt."""
        return f"the notebook stays in its folder, the cell went to `{self.path}`: {why}"
