"""What the reader of a queue does while nothing comes."""

from collections.abc import Iterator

import pytest

from encoder_conformance.idle import IdleQueue


def test_steps_are_taken_until_an_item_comes_and_go_on_at_the_next_wait() -> None:
    items, taken = IdleQueue[str](), list[int]()

    def steps() -> Iterator[None]:
        for step in range(5):
            taken.append(step)
            if step in (2, 4):
                items.put(f"after step {step}")
            yield

    items.steps = steps()
    assert items.next() == "after step 2"
    assert taken == [0, 1, 2]
    assert items.next() == "after step 4"
    assert taken == [0, 1, 2, 3, 4]


def test_an_item_that_is_there_is_not_kept_waiting_by_a_step() -> None:
    items = IdleQueue[str]()
    items.steps = iter(pytest.fail, None)
    items.put("first")
    assert items.next() == "first"


def test_without_steps_it_waits() -> None:
    items = IdleQueue[str]()
    items.steps = (items.put("last") for _ in range(1))
    assert items.next() == "last"
    items.put("again")
    assert items.next() == "again"
