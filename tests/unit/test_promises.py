"""Every promise of docs/trust.md and docs/untrusted.md has tests that attack it, by name, and each is there."""

import re
from functools import cache
from pathlib import Path

import pytest

from encoder_conformance.platform.paths import ROOT

PAGE = "process/faults/test_untrusted_page.py"
EXACT, TEXTS, LIMITS = (f"process/faults/test_{name}.py" for name in ("exactness", "texts", "limits"))
WORKER, UNASKED = (f"process/faults/test_{name}.py" for name in ("worker_faults", "unasked_code"))
WIRE = "process/faults/test_wire_verdicts.py"
SCOPE = "it says what no test of this project can show: what is not asked, or what others have to do"
"""Not a promise."""

TRUST = {
    "answers zeros, a constant, or the input": (
        "process/faults/test_ignored_input.py::test_an_output_that_ignores_the_input_passes_no_invariant",
    ),
    "reads the goldens, which are files on the same disk": (
        f"{EXACT}::test_goldens_that_are_read_are_too_exact",
        "process/spec/test_seeds.py::test_goldens_learnt_by_heart_fail_at_another_seed",
    ),
    "computes the oracle itself, which is a Python module": (
        f"{EXACT}::test_the_oracles_own_equations_are_not_too_exact",
    ),
    "computes in float64 and rounds": f"{EXACT}::test_a_wider_format_is_too_exact_and_does_not_fail",
    "adds noise to either": SCOPE,
    "is right for the sizes of the suite alone": SCOPE,
    "says in its reasons or errors what the last line of a run says": (
        f"{TEXTS}::test_a_text_of_an_adapter_spoils_nothing",
        f"{TEXTS}::test_a_reason_of_a_manifest_spoils_nothing",
    ),
    "declares every hard check unsupported": (
        "process/worker/test_worker.py::test_an_opt_out_is_no_pass",
        "process/worker/test_worker.py::test_a_run_in_which_everything_is_opted_out_is_no_success",
    ),
    "A process of its own": (
        "unit/test_rooms.py::test_a_room_imports_the_rooms_below_it_alone",
        f"{UNASKED}::test_a_module_is_looked_for_without_importing_what_is_on_the_way",
        f"{WIRE}::test_nothing_in_an_answer_is_converted",
    ),
    "The parent's memory and disk": (
        "process/faults/test_memory.py::test_records_do_not_stay_in_memory",
        f"{LIMITS}::test_a_flood_on_standard_error_is_cut_on_disk_and_its_end_is_kept",
        f"{TEXTS}::test_settings_of_any_size_and_depth_leave_a_report",
    ),
    "Time": (
        "process/worker/test_worker.py::test_a_worker_that_sleeps_for_ever_times_out",
        f"{WORKER}::test_a_fault_ends_in_time_is_charged_rightly_and_leaves_nothing",
    ),
    "A worker's memory": (
        f"{LIMITS}::test_a_worker_that_holds_more_than_it_may_is_ended_and_costs_one_check",
        f"{LIMITS}::test_the_peak_of_a_worker_is_in_the_report",
    ),
    "Its environment": f"{UNASKED}::test_a_worker_sees_no_secret_but_what_its_manifest_names",
    "Isolation": f"{PAGE}::test_there_is_no_network_the_loopback_interface_of_the_host_included",
    "Expected values": f"{PAGE}::test_expected_values_are_not_there_by_any_path",
    "An end": (
        "process/faults/test_signals.py::test_a_signal_at_any_moment",
        "process/faults/test_signals.py::test_no_pool_outlives_its_command",
        f"{WORKER}::test_nothing_outlives_a_harness_that_is_killed",
    ),
    "Without `--isolate`, an adapter runs with your rights": SCOPE,
    "Without `--isolate`, a worker can read the specification": SCOPE,
    "A worker that runs as the same user": SCOPE,
    "A PyTorch checkpoint": (
        "frameworks/test_checkpoints.py::test_a_checkpoint_that_is_more_than_tensors_is_refused_without_bad_advice",
        f"{TEXTS}::test_the_advice_to_run_a_dangerous_file_is_not_relayed",
    ),
    "`--isolate` shows a worker the specification": f"{PAGE}::test_expected_values_are_not_there_by_any_path",
    "`logs/NAME.log` has": SCOPE,
    "`conform check`, `diff`": SCOPE,
    "`conform reproduce` runs": f"{PAGE}::test_what_follows_an_isolated_run_is_isolated",
    "`--memory` is looked at": f"{PAGE}::test_files_in_memory_are_memory",
    "Limits are of one run": SCOPE,
    "A record is on disk when": "process/commands/test_command.py::test_a_run_that_is_killed_leaves_what_was_judged",
    "A check whose worker commits": f"{WIRE}::test_an_end_of_its_own_is_the_fault_of_the_check_before",
    "Where user namespaces are forbidden": (
        "process/faults/test_isolation.py::test_where_no_namespace_may_be_made_it_is_refused_with_the_reason",
    ),
    "The packages of an environment": SCOPE,
    "A run in CI of a pull request": SCOPE,
}
UNTRUSTED = {
    "`conform list`, `conform new`": (
        "process/implementation/test_offered.py::test_a_listing_and_a_new_folder_execute_no_implementation",
    ),
    "`conform run`, `smoke`": f"{UNASKED}::test_no_interpreter_of_the_working_directory_is_executed",
    "`conform reproduce`": f"{PAGE}::test_what_follows_an_isolated_run_is_isolated",
    "`conform check`, `diff`": SCOPE,
    "`conform validate`": "process/commands/test_validate.py::test_an_isolated_validation_sees_the_file_and_no_other",
    "Looking for an implementation imports nothing": (
        f"{UNASKED}::test_a_module_of_the_working_directory_is_not_imported_to_look_for_another",
        f"{UNASKED}::test_a_module_is_looked_for_without_importing_what_is_on_the_way",
    ),
    "No program is executed outside of a worker": (
        f"{PAGE}::test_no_word_of_a_manifest_is_executed_outside",
        f"{PAGE}::test_a_bwrap_that_lies_in_its_folder_is_not_taken_for_bubblewrap",
        f"{UNASKED}::test_no_interpreter_of_the_working_directory_is_executed",
    ),
    "Packages that are installed can offer": (
        "process/implementation/test_offered.py::test_an_offered_implementation_is_listed_and_taken_by_name",
    ),
    "A specification, a layer and a manifest are YAML": (
        f"{LIMITS}::test_yaml_that_grows_is_refused_before_it_does",
        f"{LIMITS}::test_yaml_that_is_no_file_is_refused_and_not_waited_for",
        f"{UNASKED}::test_yaml_executes_nothing_and_a_base_is_no_path",
    ),
    "network": f"{PAGE}::test_there_is_no_network_the_loopback_interface_of_the_host_included",
    "your home, other users' files": f"{PAGE}::test_the_home_and_other_users_files_are_not_there_by_any_path",
    "the file system": (
        f"{PAGE}::test_all_is_read_only_but_the_scratch_folders",
        f"{PAGE}::test_what_the_interpreter_imports_from_is_there",
    ),
    "writing": f"{PAGE}::test_scratch_is_empty_limited_by_the_memory_and_a_home",
    "expected values": f"{PAGE}::test_expected_values_are_not_there_by_any_path",
    "other processes": f"{PAGE}::test_no_process_outside_is_seen_or_signalled",
    "rights": f"{PAGE}::test_nothing_is_remounted_uncovered_or_made_whoever_starts_it",
    "keys that the kernel keeps": f"{PAGE}::test_nothing_that_the_kernel_keeps_for_the_user_is_there",
    "environment variables": (
        f"{PAGE}::test_no_variable_of_the_users_is_passed_on_even_if_the_manifest_names_it",
        f"{UNASKED}::test_what_a_worker_needs_is_passed_on_and_no_secret_is",
    ),
    "memory, time, log": f"{PAGE}::test_files_in_memory_are_memory",
    "GPUs and other devices": f"{PAGE}::test_there_are_no_devices_but_those_of_every_program",
    "The folder of the implementation, and that of a model": (
        f"{PAGE}::test_a_home_or_a_folder_that_holds_one_is_not_shown_whole",
    ),
    "Of an interpreter": (
        f"{PAGE}::test_an_interpreter_of_a_home_is_shown_and_the_home_is_not",
        f"{UNASKED}::test_where_an_interpreter_imports_from_is_found_without_importing",
    ),
    "A program in another language": (
        f"{PAGE}::test_a_program_that_the_user_names_is_shown",
        f"{PAGE}::test_no_word_of_a_manifest_chooses_what_is_shown",
    ),
}
PAGES = {"trust.md": TRUST, "untrusted.md": UNTRUSTED}
_LEFT_OUT = ("## The claim", "*Suspiciously exact*", "## Pull requests in CI")
"""Where a part without promises begins; it ends with the next heading."""


def promises(page: str) -> list[str]:
    """The rows of its tables, without their heads, and its bullets, in one line each and without bold type."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for begin in _LEFT_OUT:
        before, found, after = text.partition(begin)
        text = before + (after[after.find("\n## ") :] if found and "\n## " in after else "" if found else after)
    tables = re.findall(r"^\|[^\n]*\n\|[-|: ]+\n((?:\|[^\n]*\n)+)", text, re.MULTILINE)
    rows = [row.strip("| ") for table in tables for row in table.splitlines()]
    bullets = re.findall(r"^- (.*?)(?=\n- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", each).replace("**", "") for each in (*rows, *bullets)]


@cache
def names_in(file: str) -> frozenset[str]:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    return frozenset(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_has_its_tests_and_no_other_is_listed(page: str) -> None:
    if not (ROOT / "docs" / page).is_file():  # a wheel has no docs/
        return
    found, listed = promises(page), PAGES[page]
    assert len(found) >= len(listed)
    assert not [each for each in found if not any(each.startswith(begin) for begin in listed)]
    assert not [begin for begin in listed if not any(each.startswith(begin) for each in found)]


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_listed_is_there(page: str) -> None:
    for of in PAGES[page].values():
        for each in () if of == SCOPE else (of,) if isinstance(of, str) else of:
            file, name = each.split("::")
            assert name in names_in(file), each
