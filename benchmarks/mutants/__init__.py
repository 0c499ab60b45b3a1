"""Bugs that no list has: mutated equations of a layer, and whether a diagnosis finds them again.

Each mutant changes one place of one stage's specified equation at random: another operand of the same shape, another
operator, function, axis, number or order of elements; a term left out, doubled or scaled; the mask otherwise. The
oracle computes it in float32, and a diagnosis is given what the implementation would show. Mutants that change nothing
that is compared are counted as equivalent.

A diagnosis is *right* where the equation that it states gives what the mutant gives, in cases that it was not shown.
It is *false* where it says "explained" and that is not so. The search for equations knows nothing of this package: it
has edits of its own, and fits numbers to the data.

Other mutants are of an encoder's own code (`code`): one node of its syntax tree is another.
"""
