"""`python -m benchmarks.zoo SECTION [NAME…]`: asks anew what docs/zoo.json keeps of a section, and writes docs/zoo.md.

Sections: oracle, layers, files, elsewhere. Each takes minutes; of the last two NAME says which rows, and each row is
kept when it is done. The checks by `hf:NAME` and the exports of whole models are benchmarks.published_encoders' own.
"""

import sys

from benchmarks.zoo.page import PAGE, page
from benchmarks.zoo.results import keep, keep_row, read
from encoder_conformance.spec.load import published_layers


def main(arguments: list[str]) -> int:
    section, *names = arguments or [""]
    match section:
        case "oracle":
            from benchmarks.zoo.oracle import compared

            keep(section, *compared())
        case "layers":
            from benchmarks.zoo.judged import judged

            keep(section, *judged())
        case "files":
            from benchmarks.zoo import files

            for name in names or published_layers():
                keep_row(section, name, files.judged(name), files.versions())
        case "elsewhere":
            from benchmarks.zoo import elsewhere

            for name in names or elsewhere.here():
                keep_row(section, name, elsewhere.checked(name), elsewhere.versions())
        case _:
            print(__doc__)
            return 2
    PAGE.write_text(page(read()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
