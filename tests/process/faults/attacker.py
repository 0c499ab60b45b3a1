"""A hostile adapter: it tries what docs/untrusted.md says that nobody in a sandbox can do, and answers with what came
of it. The folder has what it looks for in told.json."""

# ruff: noqa: PTH112, PTH115, PTH123, PTH208, PTH109

import ctypes
import json
import mmap
import os
import pwd
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import read_frame, write_frame

LIBC = ctypes.CDLL(None, use_errno=True)
MS_BIND, MS_REMOUNT, MS_REC = 4096, 32, 16384
MNT_DETACH = 2
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000


def attempt(action: Callable[[], object]) -> str:
    """What it gave, or why it failed."""
    try:
        return repr(action())
    except OSError as error:
        return f"failed: {error.strerror}"


def system(name: str, *arguments: object) -> int:
    """A system call. Raises OSError."""
    if (result := getattr(LIBC, name)(*arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def remount(place: str) -> int:
    return system("mount", b"none", place.encode(), None, MS_BIND | MS_REMOUNT, None)


KEYCTL_GET_KEYRING_ID, KEYCTL_READ, SYSLOG_READ_ALL = 0, 11, 3
SESSION, OF_USER = -3, -4
ADD_KEY, REQUEST_KEY, KEYCTL, SYSLOG = (248, 249, 250, 103) if os.uname().machine == "x86_64" else (217, 218, 219, 116)
X32 = 1 << 30


def call_of_32_bits() -> int:
    """keyctl as a program of 32 bits calls it (int 0x80): another table of system calls. Raises OSError."""
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(bytes.fromhex("53 b8 20 01 00 00 31 db b9 fd ff ff ff ba 01 00 00 00 cd 80 5b c3"))
        at = ctypes.addressof(ctypes.c_char.from_buffer(code))
        if (result := ctypes.CFUNCTYPE(ctypes.c_int)(at)()) < 0:
            raise OSError(-result, os.strerror(-result))
        return result


def keys(told: dict[str, object]) -> dict[str, str]:
    """What the kernel keeps for the user beside files, by every way to ask for it."""
    name, kept = str(told["key-name"]).encode(), ctypes.create_string_buffer(64)
    calls = {
        "session": (KEYCTL, KEYCTL_GET_KEYRING_ID, SESSION, 1),
        "of-user": (KEYCTL, KEYCTL_GET_KEYRING_ID, OF_USER, 1),
        "by-name": (REQUEST_KEY, b"user", name, None, 0),
        "by-number": (KEYCTL, KEYCTL_READ, told["key"], kept, 64),
        "add": (ADD_KEY, b"user", b"theirs", b"x", 1, SESSION),
        "log": (SYSLOG, SYSLOG_READ_ALL, kept, 64),
        "x32": (KEYCTL | X32, KEYCTL_GET_KEYRING_ID, SESSION, 1),
    }
    found = {each: attempt(lambda to=to: system("syscall", *to)) for each, to in calls.items()}
    if os.uname().machine == "x86_64":
        found["32-bit"] = attempt(call_of_32_bits)
    return {**found, "read": repr(kept.value)}


def write(place: str) -> object:
    with open(place, "w") as written:
        return written.write("x")


def reads(path: str) -> Callable[[], str]:
    return lambda: Path(path).read_text()


def connect(family: int, address: object) -> object:
    with socket.socket(family) as one:
        one.settimeout(1)
        return one.connect(address)


def looked(told: dict[str, object]) -> dict[str, object]:
    """By name, what was tried and what came of it."""
    here, home, secret = os.getcwd(), str(told["home"]), str(told["secret"])
    code = sys.modules["encoder_conformance"].__path__[0]
    goldens = [Path(folder) for folder in told["goldens"]]
    writable = (here, "/usr", "/etc", code, "/", "/dev", "/proc/self/oom_score_adj", "/proc/sys/kernel/core_pattern")
    found: dict[str, object] = {
        "interfaces": [name for _, name in socket.if_nameindex()],
        "connect": attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", told["port"]))),
        "outside": attempt(lambda: connect(socket.AF_INET, ("192.0.2.1", 80))),
        "abstract": attempt(lambda: connect(socket.AF_UNIX, f"\0{told['abstract']}")),
        "home": attempt(lambda: os.listdir(home)),
        "secret": {
            each: attempt(reads(each))
            for each in (
                secret,
                os.path.relpath(secret, here),
                f"{here}/../home/secret.txt",
                "link/secret.txt",
                f"/proc/self/root{secret}",
                f"/proc/1/root{secret}",
                "/proc/1/cwd/../home/secret.txt",
            )
        },
        "write": {
            place: attempt(lambda at=place: write(f"{at}/written" if Path(at).is_dir() else at)) for place in writable
        },
        "remount": {place: attempt(lambda at=place: remount(at)) for place in ("/", "/usr", here, "/proc")},
        "uncover": [attempt(lambda at=place: system("umount2", str(at).encode(), MNT_DETACH)) for place in goldens],
        "namespace": [attempt(lambda kind=kind: system("unshare", kind)) for kind in (CLONE_NEWUSER, CLONE_NEWNS)],
        "keys": keys(told),
        "names-of-keys": attempt(reads("/proc/keys")),
        "device": attempt(lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0))),
        "root": attempt(lambda: os.chroot("/tmp")),
        "devices": sorted(os.listdir("/dev")),
        "goldens": [str(each) for folder in goldens for each in folder.glob("*")],
        "top": sorted(os.listdir("/")),
        "own-home": os.listdir(own) if os.path.isdir(own := pwd.getpwuid(os.getuid()).pw_dir) else [],
        "processes": [pid for pid in os.listdir("/proc") if pid.isdigit()],
        "signal": attempt(lambda: os.kill(int(told["pid"]), 0)),
        "environment": sorted(os.environ),
        "descriptors": {each: attempt(lambda at=each: os.readlink(f"/proc/self/fd/{at}")) for each in range(64)},
        "capabilities": [line for line in Path("/proc/self/status").read_text().splitlines() if line[:3] == "Cap"],
        "their-code": attempt(lambda: __import__("theirs").VALUE),
    }
    for name, place in {"tmp": "/tmp", "shm": "/dev/shm"}.items():
        found[name] = os.listdir(place)
        found[f"{name}-size"] = os.statvfs(place).f_blocks * os.statvfs(place).f_frsize
        found[f"{name}-write"] = attempt(lambda at=place: write(f"{at}/scratch"))
    found["home-write"] = attempt(lambda: write(str(Path.home() / "scratch")))
    return found


requests, answers = open_wire()
request = read_frame(requests)
settings = looked(json.loads(Path("told.json").read_text()))
write_frame(answers, {"id": request.message["id"], "ok": True, "protocol": 3, "settings": settings})
read_frame(requests)
