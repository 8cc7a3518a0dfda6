"""Access lists of folders (POSIX ACLs): named users may enter and read, and beside the owner nobody else."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

#: as the kernel has them: acl(5), linux/posix_acl_xattr.h
_NAME, _VERSION = "system.posix_acl_access", 2
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF
_READ = 0o5


def admit(folder: Path, uid: int) -> None:
    """Let this user enter and read a folder, too; raises OSError where the filesystem keeps no lists."""
    users = set(admitted(folder))
    if uid in users:
        return
    named = [(_USER, _READ, user) for user in sorted({uid, *users})]
    closed = [(_GROUP, 0, _NO_ID), (_MASK, _READ, _NO_ID), (_OTHERS, 0, _NO_ID)]
    entries = [(_OWNER, _READ, _NO_ID), *named, *closed]
    os.setxattr(folder, _NAME, _HEAD.pack(_VERSION) + b"".join(_ENTRY.pack(*each) for each in entries))


def admitted(folder: Path) -> list[int]:
    """Users who are named in a folder's list; raises OSError where the filesystem keeps no lists."""
    try:
        found = os.getxattr(folder, _NAME)
    except OSError as error:
        if error.errno == errno.ENODATA:  # it has none
            return []
        raise
    return [uid for tag, _, uid in _ENTRY.iter_unpack(found[_HEAD.size :]) if tag == _USER]
