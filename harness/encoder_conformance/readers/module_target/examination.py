"""What is found out of one module: how it is called, what layer it is, which parameter is which, and the proof."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version

from encoder_conformance.protocol.findings import Finding
from encoder_conformance.protocol.module_description import Chance, Kept, LiveProof, MapSearch, OtherAnswer
from encoder_conformance.readers.module_target.exporting import Exported
from encoder_conformance.readers.module_target.frameworks import ModuleFramework
from encoder_conformance.readers.module_target.heads import denied
from encoder_conformance.readers.module_target.live import LiveModule, Loose
from encoder_conformance.readers.module_target.local import long_enough
from encoder_conformance.readers.module_target.locating import Place
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.module_target.offering import OfferedArguments
from encoder_conformance.readers.module_target.proving import Bench
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer


@dataclass
class Examination:
    """The findings on a module. `layer`: what it is, read off it; None where it is no layer that is known."""

    framework: ModuleFramework
    module: LiveModule
    """In float32, with its own parameters, as it was given: what is asked."""
    read: LiveModule
    """The same without what it was given in."""
    semantics: InputSemantics
    exported: Exported
    chance: Chance | None = None
    """How two answers to one question differ."""
    kept: Kept | None = None
    """What a call leaves behind in it."""
    loose: Loose = field(default_factory=Loose)
    left_out: tuple[str, ...] = ()
    """What the whole was given in of which it is a part, and this part is not."""
    other_answers: tuple[OtherAnswer, ...] = ()
    """The ways to call it in which it answers otherwise."""
    layer: Layer | None = None
    map: ElementMap | None = None
    offered: OfferedArguments | None = None
    """None before they were."""
    absent: tuple[str, ...] = ()
    always_causal: bool = False
    causal_unless: str = ""
    dtypes: tuple[DtypeName, ...] = ("float32",)
    """What it is read and proved in, the widest first."""
    taken: tuple[DtypeName, ...] = ()
    """Those of the formats asked for in which it computes."""
    as_given: DtypeName | None = None
    """The format in which it answers with its parameters as they were given, where these are not all wide."""
    proof: LiveProof | None = None
    searched: MapSearch | None = None
    heads_known: bool = True
    """Whether the number of heads is more than a guess."""
    stages: dict[str, Place] = field(default_factory=dict)
    stated: Layer | None = None
    own_values: dict[str, Array] = field(default_factory=dict)
    narrow_inside: bool = False
    """Whether it is right in float32, and in float64 no more exact: something in it is cast, or a number in it has no
    more digits."""
    epsilon_of_format: bool = False
    """Whether that is so for its norms' epsilon alone, which is another in each format."""
    trains_unless_told: bool = False
    padded_item_is_nan: bool = False
    padded_item_raises: str = ""
    padding_moves_rows: bool = False
    """Whether what its submodules show has other rows where padding is hidden, or rows in another order."""
    of_no_step: tuple[str, ...] = ()
    """Own parameters that change the output, and are part of no step: it is proved with the numbers that they have."""
    folded: bool = False
    """Whether weights that it computes of others were made one each, in the copy that is asked."""
    lengths: tuple[int, ...] = ()
    """The numbers of positions that it takes, of those up to 65, where it does not take any."""
    tied: tuple[tuple[str, str], ...] = ()
    read_twice: tuple[tuple[str, str, str], ...] = ()
    wrong_by_that_alone: bool = False
    """Whether it is what was read off it where the places of `read_twice` have what they read."""
    unread: tuple[tuple[str, str], ...] = ()
    notes: tuple[Finding, ...] = ()
    given: tuple[str, ...] = ()
    """The arguments that its model gives it beside x."""
    given_by: str = ""

    @property
    def heads_denied(self) -> int | None:
        """The number of heads that its attributes say, where it was found to have another."""
        known = self.layer or (self.stated if self.searched and self.searched.deviation is not None else None)
        return None if known is None else denied(self.module, known.attention.num_heads)

    @property
    def mapped_to(self) -> Layer | None:
        """The layer whose parameters the map has: that which was read, or else the stated one."""
        return self.layer if self.searched is None and self.layer is not None else self.stated

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the framework's distributions that are here."""
        found = {}
        for name in (*self.framework.packages, "numpy", "onnx"):
            with suppress(PackageNotFoundError):
                found[name] = version(name)
        return found

    def bench(self, dtype: DtypeName) -> Bench:
        """A copy of the module in this dtype."""
        return Bench(self.read.in_dtype(dtype), self.semantics, dtype, self.always_causal)

    def long_bench(self, dtype: DtypeName, layer: Layer) -> Bench:
        """The same, with so many positions that the layer's window shows, and its buckets, where it takes them."""
        bench = self.bench(dtype)
        longer = replace(bench, semantics=long_enough(self.semantics, layer))
        return longer if longer.semantics.S == self.semantics.S or longer.module.takes(longer.x()) else bench
