"""The frames that a call of Keras stands in, as of the user's own files."""

import sys
from traceback import FrameSummary, extract_stack

from encoder_conformance.readers.module_target.calling_lines import line_in

THEIRS = ("keras", "tensorflow", "jax", "torch")
"""Packages whose lines are not the user's."""
_OF_TENSORFLOW = "tensorflow.python.util.tf_stack"


def line_of_caller() -> str:
    """`model.py:12`, of the innermost frame that is the user's; "" for none. AutoGraph runs code that it generated into
    a file of its own, which is gone afterwards: TensorFlow knows the lines that it is of."""
    known = sys.modules.get(_OF_TENSORFLOW)
    if known is None:
        return line_in(extract_stack(), THEIRS)
    return line_in([FrameSummary(each.filename, each.lineno, each.name) for each in known.extract_stack()], THEIRS)
