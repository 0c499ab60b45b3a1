"""The filter of system calls on every architecture, of which a machine has one: its numbers are the kernel's, and its
instructions, evaluated here as the kernel does, refuse what they are to refuse and nothing else."""

import errno
import os
import re
import runpy
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from encoder_conformance.platform.paths import PACKAGE

KEYLESS = runpy.run_path(str(PACKAGE / "worker" / "keyless.py"))
HEADERS = Path("/usr/include")
REFUSED = ("add_key", "request_key", "keyctl", "syslog")
KERNEL = {
    "x86_64": """
        #define EM_X86_64 62
        #define AUDIT_ARCH_X86_64 (EM_X86_64|__AUDIT_ARCH_64BIT|__AUDIT_ARCH_LE)
        #define __NR_syslog 103
        #define __NR_add_key 248
        #define __NR_request_key 249
        #define __NR_keyctl 250
    """,
    "aarch64": """
        #define EM_AARCH64 183
        #define AUDIT_ARCH_AARCH64 (EM_AARCH64|__AUDIT_ARCH_64BIT|__AUDIT_ARCH_LE)
        #define __NR_syslog 116
        #define __NR_add_key 217
        #define __NR_request_key 218
        #define __NR_keyctl 219
    """,
    "riscv64": """
        #define EM_RISCV 243
        #define AUDIT_ARCH_RISCV64 (EM_RISCV|__AUDIT_ARCH_64BIT|__AUDIT_ARCH_LE)
        #define __NR_syslog 116
        #define __NR_add_key 217
        #define __NR_request_key 218
        #define __NR_keyctl 219
    """,
}
"""Lines of linux/audit.h, linux/elf-em.h, and of x86-64's asm/unistd_64.h or else of asm-generic/unistd.h."""
OTHERS = {"i386": 0x40000003, "arm": 0x40000028, "riscv32": 0x400000F3, "s390x": 0x80000016, "none": 0}
_64_BITS, _LITTLE_ENDIAN = 0x80000000, 0x40000000
ALLOWED, SAYS_ERRNO = 0x7FFF0000, 0x00050000
X32 = 0x40000000
MOST = 1024
"""More than any architecture's number of system calls."""


def defined(header: str) -> dict[str, str]:
    return dict(re.findall(r"#define\s+(\w+)\s+(\S[^/\n]*?)\s*(?:/\*.*)?$", header, re.MULTILINE))


def architecture_of(names: dict[str, str], machine: str) -> int:
    words = names[f"AUDIT_ARCH_{machine.upper()}"].strip("()").split("|")
    flags = {"__AUDIT_ARCH_64BIT": _64_BITS, "__AUDIT_ARCH_LE": _LITTLE_ENDIAN}
    return sum(flags[word] if word in flags else int(names[word]) for word in words)


@pytest.mark.parametrize("machine", KERNEL)
def test_the_numbers_are_the_kernel_s(machine: str) -> None:
    assert set(KEYLESS["_CALLS"]) == set(KERNEL)
    architecture, numbers = KEYLESS["_CALLS"][machine]
    names = defined(KERNEL[machine])
    assert architecture == architecture_of(names, machine)
    assert numbers == tuple(int(names[f"__NR_{call}"]) for call in REFUSED)


@pytest.mark.linux
@pytest.mark.skipif(not (HEADERS / "asm-generic" / "unistd.h").is_file(), reason="has no headers of the kernel")
@pytest.mark.parametrize("machine", KERNEL)
def test_the_quoted_lines_are_this_machine_s(machine: str) -> None:
    """x86-64's own numbers are on such a machine only."""
    found = [*HEADERS.glob("*/asm/unistd_64.h")] if machine == "x86_64" else [HEADERS / "asm-generic" / "unistd.h"]
    files = [HEADERS / "linux" / "audit.h", HEADERS / "linux" / "elf-em.h", *found]
    there = defined("\n".join(file.read_text() for file in files))
    quoted = defined(KERNEL[machine])
    if not found:
        quoted = {name: value for name, value in quoted.items() if not name.startswith("__NR_")}
    assert {name: there[name] for name in quoted} == quoted


def answer(instructions: bytes, architecture: int, number: int) -> int:
    """What the kernel makes of one system call (struct seccomp_data: its number, then its architecture)."""
    steps = [*struct.iter_unpack("HBBI", instructions)]
    data, held, at = {0: number, 4: architecture}, 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:  # BPF_LD | BPF_W | BPF_ABS
                held = data[value]
            case 0x54:  # BPF_ALU | BPF_AND | BPF_K
                held &= value
            case 0x15:  # BPF_JMP | BPF_JEQ | BPF_K
                at += if_true if held == value else if_false
            case 0x06:  # BPF_RET | BPF_K
                return value
            case _:
                raise AssertionError(code)


@pytest.mark.parametrize("machine", KERNEL)
def test_keys_and_the_kernel_s_log_are_refused_and_nothing_else(machine: str) -> None:
    instructions = KEYLESS["_filter"](machine)
    names = defined(KERNEL[machine])
    refused = {int(names[f"__NR_{call}"]) for call in REFUSED}
    own = architecture_of(names, machine)
    for number in range(MOST):
        due = SAYS_ERRNO | errno.EPERM if number in refused else ALLOWED
        assert answer(instructions, own, number) == due
        assert answer(instructions, own, number | X32) == due
    for other in (*OTHERS.values(), *(architecture_of(defined(KERNEL[each]), each) for each in KERNEL)):
        if other != own:
            assert {answer(instructions, other, number) for number in range(MOST)} == {SAYS_ERRNO | errno.ENOSYS}


@pytest.mark.parametrize("machine", ["i686", "armv7l", "ppc64le", "s390x", "loongarch64", ""])
def test_nothing_is_started_on_an_architecture_that_is_not_known(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    monkeypatch.setattr(os, "execv", lambda *words: started.append(words))
    with pytest.raises(SystemExit, match=f"no filter of system calls is known for {machine}"):
        KEYLESS["main"](["/bin/true"])
    assert not started
