"""What is found out of how a module is called, for tests of every framework."""

from typing import Any

from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.exporting import Exported
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.offering import offered
from encoder_conformance.readers.module_target.probing import first_x, live_semantics


def called(module: object, heads: int = 2) -> ModuleDescription:
    """What is found out of its arguments; no layer is read."""
    framework = framework_of(module)
    assert framework is not None
    with framework.undisturbed():
        live = framework.live(module)
        read = live.bare()
        found = offered(read, live_semantics(read, first_x(read)), heads)
    return described(Examination(framework, live, read, found.semantics, Exported(), offered=found))


def said(findings: Any, *severities: str) -> list[str]:
    """The messages, of these severities or of errors and warnings."""
    return [each.message for each in findings if each.severity in (severities or ("error", "warning"))]
