"""Arithmetic on shared numbers: openings, products, comparisons, reciprocals, lanes, and the halves of a program."""
