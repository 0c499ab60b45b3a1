"""Notes the steps of one call of a module: what makes each value, of which others, and its numbers."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from encoder_conformance.protocol.steps import TracedStep, most_shown, of_parameters
from encoder_conformance.spec.axes import Array


class NotedSteps:
    """`values`: the numbers [*shape] of what is shown, by the number of its step. Of parameters, and of what is made of
    them alone, only what is small is shown."""

    def __init__(self, parameters: Iterable[int]) -> None:
        """`parameters`: the elements of each."""
        self.steps: list[TracedStep] = []
        self.values: dict[str, Array] = {}
        self._most, self._constant = most_shown(parameters), set[str]()

    def note(self, made: TracedStep, elements: int, numbers: Callable[[], Array | None]) -> str:
        """The number of a step. `numbers` gives its value [*shape], None where it is of no floating-point numbers."""
        number = str(len(self.steps))
        step = made.model_copy(update={"value": number})
        self.steps.append(step)
        if is_constant := of_parameters(step, self._constant):
            self._constant.add(number)
        if not is_constant or elements <= self._most:
            value = numbers()
            if value is not None:
                self.values[number] = value
        return number


class StepsOfObjects(NotedSteps):
    """Of a framework that calls one operator after another: a value is known by the object that holds it."""

    def __init__(
        self, parameters: Iterable[int], elements: Callable[[Any], int], numbers: Callable[[Any], Array | None]
    ) -> None:
        """`elements`: of a tensor; `numbers`: its value, which nothing changes later, None where not floating-point."""
        super().__init__(parameters)
        self._elements, self._numbers = elements, numbers
        self._names: dict[int, str] = {}
        self._held: list[Any] = []
        """Every tensor that has a name: the number of one that is gone would be another's."""

    def give(self, tensor: Any, name: str, kind: Literal["input", "parameter"]) -> None:
        """Notes what is there before the call."""
        self._add(tensor, TracedStep(value="", made_by=f"{kind} {name!r}", takes=(), given=kind))

    def called(self, operator: str, part: str, taken: Iterable[Any], made: Iterable[Any]) -> None:
        """Notes a call of an operator in a part of a module, "" where that is not known."""
        takes = tuple(self._names[id(each)] for each in taken if id(each) in self._names)
        made_by = f"{part}: {operator}" if part else operator
        for each in made:
            self._add(each, TracedStep(value="", made_by=made_by, takes=takes, operator=operator))

    def _add(self, tensor: Any, made: TracedStep) -> None:
        self._names[id(tensor)] = self.note(made, self._elements(tensor), lambda: self._numbers(tensor))
        self._held.append(tensor)
