"""What was fitted is said once, and every other place agrees."""

from pathlib import Path

import pytest

from slabq.fitted import fitted_page, fitted_values
from slabq.machine import machine_presets
from slabq.published import find_table, published_tables
from slabq.reproduce import Simulator, lacking_columns, why_not

PAGE = Path(__file__).resolve().parent.parent / "docs" / "fitted.md"

on_a_cell = pytest.mark.parametrize(
    "value",
    [value for value in fitted_values() if value.table],
    ids=lambda value: f"{value.machine}-{value.name}",
)


def test_the_page_is_what_the_files_say():
    assert PAGE.read_text() == fitted_page()


@on_a_cell
def test_a_constant_is_fitted_on_one_cell_of_a_table_of_its_machine(value):
    table = find_table(value.table)
    labels = {row.label: row for row in table.rows}

    assert table.machine_name == value.machine
    # cyclictest's load is hackbench: the same messages, the same constant.
    assert table.workload == {"cyclictest": "hackbench"}.get(value.name, value.name)
    assert table.is_fitted(labels[value.row], value.column)
    assert [(value.row, value.column)] == list(table.fitted)


@on_a_cell
def test_the_machine_has_the_value_that_is_said_to_be_fitted(value):
    machine = machine_presets()[value.machine]

    assert value.section == "syscall_ns"
    assert dict(machine.syscall_ns)[value.name] == value.value


def test_there_is_at_most_one_constant_for_a_workload_and_a_machine():
    keys = [(value.machine, value.name) for value in fitted_values() if value.table]

    assert len(keys) >= 5
    assert len(keys) == len(set(keys))


def test_a_table_names_no_cell_as_fitted_that_no_constant_was_fitted_on():
    laboratory = Simulator()
    said = {
        (value.table, value.row, value.column)
        for value in fitted_values()
        if value.table
    }

    for table in published_tables().values():
        if why_not(table, lacking_columns(table, "quick", laboratory)):
            continue  # this build cannot run it
        for label, column in table.fitted:
            assert (table.id, label, column) in said
