"""`python -m benchmarks.performance.onnx_tests FILE`: ONNX's own backend node tests, run with ONNX Runtime.

FILE gets how many tests were run and how many seconds they took, without what imports and collects them.
"""

import json
import sys
import time
import unittest
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import onnx.backend.test
import onnxruntime.backend


def tests() -> Iterator[unittest.TestCase]:
    """Every node test on the CPU that is not skipped from the start."""
    np.seterr(all="ignore")  # its own collecting divides by zero, on purpose
    runner = onnx.backend.test.BackendTest(onnxruntime.backend, __name__)
    suite = unittest.TestLoader().loadTestsFromTestCase(runner.test_cases["OnnxBackendNodeModelTest"])
    for test in suite:
        if isinstance(test, unittest.TestCase) and test.id().endswith("_cpu"):
            yield test


def main() -> None:
    suite = unittest.TestSuite(tests())
    begun = time.perf_counter()
    found = unittest.TextTestRunner(stream=StringIO()).run(suite)
    seconds = time.perf_counter() - begun
    judged = found.testsRun - len(found.skipped)
    wrong = len(found.failures) + len(found.errors)
    said = {"judged": judged, "not passed": wrong, "skipped": len(found.skipped), "seconds": seconds}
    Path(sys.argv[1]).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
