"""Does a right implementation ever fail? The four implementations over all cases, both dtypes, seeds and thread counts.

    python -m benchmarks.false_alarms
    python -m benchmarks.false_alarms --seed 3 --threads 1 --out alarms

Runs `conform run` once for each seed (0, 1, 2) and thread count (1, 2), then prints one table: conform / applicable
checks, the largest rms σ and the largest max σ over all that were judged. Exit status 1 if any check failed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from encoder_conformance.implementation.manifest import known_folders
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.tally import Tally
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.outcome import EXPECTED
from tools.pages.tables import markdown

IMPLEMENTATIONS = tuple(sorted(known_folders()))
SEEDS, THREADS = (0, 1, 2), (1, 2)


def records_of(seed: int, threads: int, out: Path) -> list[Record]:
    """Every record of one run, which has to be complete."""
    chosen = [word for name in IMPLEMENTATIONS for word in ("--impl", name)]
    how = ["--seed", str(seed), "--threads", str(threads), "--out", str(out)]
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "encoder_conformance.commands.main", "run", *chosen, *how],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "stdout.txt").write_text(ended.stdout, encoding="utf-8")
    report = read_report(out) if ended.returncode in (0, 1) else None
    if report is None or not report.complete:
        sys.exit(f"seed {seed}, {threads} threads: conform run ended with status {ended.returncode}\n{ended.stdout}")
    seconds = time.monotonic() - begun
    print(f"seed {seed}, threads {threads}: {seconds:.0f} s, status {ended.returncode}", file=sys.stderr, flush=True)
    return list(report.records)


def cell(records: list[Record]) -> str:
    tally = Tally.of(record.outcome for record in records)
    rms = max((record.rms for record in records if record.rms is not None), default=0.0)
    largest = max((record.max for record in records if record.max is not None), default=0.0)
    return f"{tally.as_expected} / {tally.applicable}, {rms:.3g}, {largest:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, action="append", help="instead of 0, 1 and 2; may be given more than once")
    parser.add_argument("--threads", type=int, action="append", help="instead of 1 and 2; may be given more than once")
    parser.add_argument("--out", type=Path, help="where to keep the reports; default: nowhere")
    options = parser.parse_args()
    wanted = [(seed, n) for seed in options.seed or SEEDS for n in options.threads or THREADS]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        runs = {(seed, n): records_of(seed, n, folder / f"seed-{seed}-threads-{n}") for seed, n in wanted}
    rows = []
    for name in IMPLEMENTATIONS:
        own = {key: [record for record in records if record.implementation == name] for key, records in runs.items()}
        rows.append((name, *(cell(records) for records in own.values())))
    everything = [record for records in runs.values() for record in records]
    rows.append(("all", *(cell(records) for records in runs.values())))
    print("conform / applicable, largest rms σ, largest max σ\n")
    print(markdown(("implementation", *(f"seed {seed}, threads {n}" for seed, n in runs)), rows))
    for (seed, n), records in runs.items():
        for record in records:
            if record.outcome not in EXPECTED:
                where = f"{record.implementation} {record.case} {record.dtype} {record.check}"
                print(f"✗ seed {seed}, threads {n}: {where}: {record.outcome.value}: {record.message}")
    print(f"\n{Tally.of(record.outcome for record in everything)}")
    return 0 if all(record.outcome in EXPECTED for record in everything) else 1


if __name__ == "__main__":
    sys.exit(main())
