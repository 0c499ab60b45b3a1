"""A run as JUnit XML: a suite for each implementation, a test case for each check."""

import junitparser

from encoder_conformance.judging.records import Record, Report
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.outcome import Outcome


def junit(report: Report) -> bytes:
    """The report as JUnit XML, in UTF-8.

    What does not conform is a failure, and what gave no answer an error. An opt-out is skipped, with its reason. A
    check that was not run is an error too, unless the user ended the run: nothing that was planned is green unseen.
    """
    suites = junitparser.JUnitXml()
    for implementation in report.implementations:
        suite = junitparser.TestSuite(implementation.name)
        suite.timestamp, suite.hostname = report.started.partition("+")[0], "localhost"
        for name, version in implementation.versions.items():
            suite.add_property(name, version)
        of_it = [record for record in report.records if record.implementation == implementation.name]
        suite.add_testcases([_test_case(record, report) for record in of_it])
        suites.append(suite)
    suites.update_statistics()
    suites._elem.attrib.pop("skipped", None)  # an attribute of a suite alone, by the schema of Jenkins
    written: bytes = suites.tostring()
    return written


def _test_case(record: Record, report: Report) -> junitparser.TestCase:
    layer, _, situation = record.case.partition("/")
    classname = f"{record.implementation}.{layer}".replace("/", ".")
    test_case = junitparser.TestCase(f"{situation} {record.dtype} {record.check}", classname, record.seconds)
    if record.outcome is Outcome.DEVIATES:
        test_case.system_out = f"deviates as declared: {', '.join(record.deviations)}"
    elif result := _result(record, report):
        test_case.result = [result]
    return test_case


def _result(record: Record, report: Report) -> junitparser.Failure | junitparser.Error | junitparser.Skipped | None:
    if record.outcome is Outcome.PASS:
        return None
    message = " ".join(record.message.split())
    if record.outcome is Outcome.UNSUPPORTED or (record.outcome is Outcome.NOT_RUN and report.ended_by):
        return junitparser.Skipped(message)
    kind = junitparser.Failure if record.outcome.state in ("stale", "out of line") else junitparser.Error
    result = kind(message, record.outcome.value)
    diagnoses = [diagnosis_text(each) for each in report.diagnoses_of(record) if record.case in each.cases]
    result.text = "\n".join([record.message, *diagnoses])
    return result
