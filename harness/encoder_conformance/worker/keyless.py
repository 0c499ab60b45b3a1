"""Becomes a command that may ask the kernel for no key, and not for its log. Run as a script, never imported.

    python -I -S keyless.py COMMAND…

A process keeps the session keyring of what started it, whatever namespaces it is in (keyrings(7)). So the system calls
for keys are refused by a filter (seccomp(2)), which holds for all that the command starts, and which nothing takes off.
"""

import ctypes
import errno
import os
import struct
import sys

_CALLS = {
    "x86_64": (0xC000003E, (248, 249, 250, 103)),
    "aarch64": (0xC00000B7, (217, 218, 219, 116)),
    "riscv64": (0xC00000F3, (217, 218, 219, 116)),
}
"""Machine → its AUDIT_ARCH, and its numbers of add_key, request_key, keyctl and syslog."""
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets in struct seccomp_data."""
_LOAD, _AND, _IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_WITHOUT_X32 = 0xBFFFFFFF
"""x86-64 has the same calls once more, for programs of 32 bits with its registers."""
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _filter(machine: str) -> bytes:
    """Instructions of the Berkeley packet filter: code, jumps if true and if false, and a value. Calls by the numbers
    of another architecture, such as those of 32 bits, are all refused."""
    architecture, refused = _CALLS[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_AND, 0, 0, _WITHOUT_X32),
    ]
    for number in refused:
        steps += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    return b"".join(struct.pack("HBBI", *step) for step in (*steps, (_RETURN, 0, 0, _ALLOW)))


def _set(option: int, value: int, argument: object = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), argument, ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(command: list[str]) -> None:
    machine = os.uname().machine
    if machine not in _CALLS:
        sys.exit(f"no filter of system calls is known for {machine}")
    instructions = _filter(machine)
    program = _Program(len(instructions) // struct.calcsize("HBBI"), instructions)
    try:
        _set(_PR_SET_NO_NEW_PRIVS, 1)
        _set(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))
    except OSError as error:
        sys.exit(f"the kernel takes no filter of system calls: {error.strerror}")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
