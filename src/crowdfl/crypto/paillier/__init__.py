"""Paillier with threshold decryption: the scheme, its batches, packing, the width budget, and the kernels that backends run."""
