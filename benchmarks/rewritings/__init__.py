"""Honest reformulations of each step of a layer: is any of them ever accused?

Each rewriting is a whole layer in PyTorch, as `layer.py` writes it, with one step done in another way that people use:
another order of summation, another algebraic form, a fused or a blocked form. It is judged by the public judging
functions, over every small required golden, in each number format, at three input seeds (rule P-6).

A rewriting that is accused is a hole in the noise model, unless it is less exact than a clause allows. Those are in the
catalogue too, each with the clause, and are to be accused somewhere.
"""
